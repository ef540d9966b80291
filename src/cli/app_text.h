// A manual page and shell completion, generated from the commands and options that parse the command line.
#pragma once

#include <string>

#include <CLI/App.hpp>

namespace redline::cli {

std::string manual_page(const CLI::App& app, const std::string& version);  // roff, for man
std::string bash_completion(const CLI::App& app);
std::string zsh_completion(const CLI::App& app);

}  // namespace redline::cli
