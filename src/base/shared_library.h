// A shared library that may not be there, looked up while the program runs.
#pragma once

#include <dlfcn.h>

#include <string>
#include <utility>

#include "base/error.h"

namespace redline {

// Stays loaded until the process ends: libraries that start threads, or have their hooks in a driver, do not
// survive being unloaded.
class SharedLibrary {
 public:
  // Takes a name for the loader, or a path. Never throws: loaded() says whether it is there, error() why not.
  explicit SharedLibrary(std::string name)
      : name_(std::move(name)), handle_(::dlopen(name_.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) {
    if (handle_ == nullptr) error_ = ::dlerror();
  }

  bool loaded() const { return handle_ != nullptr; }
  const std::string& error() const { return error_; }

  // Null when the library, or the function in it, is not there.
  template <typename Function>
  Function* find(const char* name) const {
    return handle_ == nullptr ? nullptr : reinterpret_cast<Function*>(::dlsym(handle_, name));
  }
  // Throws UnavailableError, with the remedy, instead.
  template <typename Function>
  void find(const char* name, Function*& function, const char* remedy) const {
    function = find<Function>(name);
    if (function == nullptr) throw UnavailableError("{} has no {}: {}", name_, name, remedy);
  }

 private:
  std::string name_;
  void* handle_;
  std::string error_;
};

}  // namespace redline
