// A Config as a TOML file: read with -c, written to every run folder, so that a run can be repeated with
// -c runs/<name>/config.toml.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "train/config.h"

namespace redline::train {

// Facts about a run that are stored with its options and ignored when the file is read: version, machine, …
using Facts = std::vector<std::pair<std::string, std::string>>;

// Sets what the file sets, in a Config of defaults. Throws UsageError naming file and line for a syntax
// error, a value of the wrong type, or an unknown key (with the nearest known one); IoError when it cannot be
// read.
Config read_config(const std::filesystem::path& path);
// The same for the text itself; `name` stands for the file in messages.
Config parse_config(const std::string& text, const std::string& name);

// Every value of such a file as text, by "section.key", even unknown ones: to show what another version
// wrote. Text is without quotes. Throws UsageError for a syntax error.
Facts list_values(const std::string& text, const std::string& name);

// One option's value as the file has it; empty when it has none.
std::string value_text(const Field& field, const Config& config);

// All options that have a value, defaults included, by section; the facts in [record].
std::string to_toml(const Config& config, const Facts& facts = {});

}  // namespace redline::train
