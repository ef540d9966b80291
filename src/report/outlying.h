// Which groups of repeated measurements stand out: devices by their runs, nodes by their devices, cabinets by
// their nodes. Made for small studies: p-values are corrected for the number of groups, so the rule "p <= a"
// flags anything in at most a fraction a of studies without outliers.
#pragma once

#include <vector>

namespace redline::report {

inline constexpr std::size_t kFewestGroups = 4;  // with fewer, nothing says which one is odd

// Takes the values of each group as logs of times, all finite. Two things must both be unlikely to be chance,
// and the larger p-value counts:
// - the group's median lies so far from those of the other groups, which may differ among themselves
//   (Rosner's generalised ESD on the medians, so that several odd groups do not hide each other);
// - more than half of its own values lie that far out, given how values within the other groups scatter
//   (heavy tails assumed: a t law with 6 degrees of freedom, or what is seen, whichever is worse).
// With one value per group the second test is impossible, and the first assumes heavier tails. Returns 1 for
// every group if there are fewer than kFewestGroups. Empty groups get 1.
std::vector<double> standing_out(const std::vector<std::vector<double>>& groups);

// P(T > t) of Student's t distribution, t >= 0.
double student_tail(double t, double degrees);

}  // namespace redline::report
