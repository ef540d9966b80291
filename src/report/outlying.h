// Which groups of repeated measurements stand out: devices by their runs, nodes by their devices, cabinets by
// their nodes. Made for small studies: every p-value is already corrected for the number of groups, so a rule
// "p <= a" flags anything at all in at most the part a of studies in which nothing is there to be found.
#pragma once

#include <vector>

namespace redline::report {

inline constexpr std::size_t kFewestGroups = 4;  // with fewer, nobody can say which one is odd

// The values of each group, as logarithms of times, finite. Two things must both be unlikely to be chance,
// and the larger p-value counts:
// - the group's median lies so far from those of the other groups, which may differ among themselves
//   (Rosner's generalised ESD on the medians, so that several odd groups do not hide each other);
// - more than half of its own values lie that far out, given how values within the other groups scatter
//   (heavy tails assumed: a t law with 6 degrees of freedom, or what is seen, whichever is worse).
// Where every group has one value, the second cannot be asked, and the first takes heavier tails for granted.
// Gives 1 for every group when there are fewer than kFewestGroups of them. Empty groups get 1.
std::vector<double> standing_out(const std::vector<std::vector<double>>& groups);

// P(T > t) of Student's law, t >= 0.
double student_tail(double t, double degrees);

}  // namespace redline::report
