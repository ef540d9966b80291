// Counts and amounts as people read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace redline {

// "1,281,167".
std::string format_grouped(std::int64_t count);

// "1 step", "1,000 steps": for nouns whose plural ends in s.
std::string counted(std::int64_t count, std::string_view noun);

// With its sign and this many decimals: "+1.25", "-0.3", "+0.00"; never "-0.00".
std::string format_signed(double value, int decimals);

// "0.812 J", "812 J", "12.3 kJ", "4.09 MJ": three significant digits.
std::string format_joules(double joules);

}  // namespace redline
