// What this binary was built from: printed by --version, and recorded with every run so that a result can be
// traced to the code that made it.
#pragma once

#include <map>
#include <string>

namespace redline {

struct BuildInfo {
  std::string version;     // "0.1.0"
  std::string commit;      // twelve hex digits, "+changes" when the tree was edited; "unknown" without git
  std::string build_type;  // "Release", "Debug"; with "sanitize=address,undefined" appended where it applies
  std::string compiler;    // "GNU 12.2.0"
};

BuildInfo build_info();

// What a file says of the program that wrote it: "version", "commit" and "build" (the build type).
std::map<std::string, std::string> program_facts();
// The same for people, and for formats that have room for one text: "redline 0.1.0 (1f0c3a5b7d9e, Release)".
std::string program_text();

}  // namespace redline
