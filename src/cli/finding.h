// What `redline doctor` says about one thing.
#pragma once

#include <string>

namespace redline::cli {

enum class Status { ok, note, missing };

struct Finding {
  std::string name;
  Status status = Status::ok;
  std::string value;
  std::string advice = {};  // what to do; empty when all is well
};

}  // namespace redline::cli
