// An option as help, manual page and completion show it: the value it takes, and what it does.
#pragma once

#include <memory>
#include <string>

#include <CLI/App.hpp>

namespace redline::cli {

// "N", "X X", "val|train", "[RUN]", "FILE..."; empty for a flag.
std::string value_text(const CLI::Option& option);
// Whether its value is a number, or several.
bool takes_numbers(const CLI::Option& option);
// Its description, with its default unless the text already has it.
std::string description(const CLI::Option& option);

// Lays out the help of every command: one form of values and defaults, lines of at most 100 columns.
std::shared_ptr<CLI::Formatter> help_formatter();

}  // namespace redline::cli
