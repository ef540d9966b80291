// A shared library that may be missing, loaded at run time.
#pragma once

#include <dlfcn.h>

#include <string>
#include <type_traits>
#include <utility>

#include "base/error.h"

namespace redline {

// Stays loaded until the process ends: libraries that start threads or hook into a driver must not be
// unloaded.
class SharedLibrary {
 public:
  // Takes a name for the loader, or a path. Never throws: loaded() says whether it was found, error() why
  // not.
  explicit SharedLibrary(std::string name)
      : name_(std::move(name)), handle_(::dlopen(name_.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) {
    if (handle_ == nullptr) error_ = ::dlerror();
  }

  bool loaded() const { return handle_ != nullptr; }
  const std::string& error() const { return error_; }

  // A function of the type that it is assigned to: int (*init)() = library.find("nvmlInit_v2");
  class Symbol {
   public:
    explicit Symbol(void* address) : address_(address) {}
    template <typename Function>
    requires std::is_function_v<Function>
    operator Function*() const { return reinterpret_cast<Function*>(address_); }

   private:
    void* address_;
  };
  // Null if the library or the function is missing.
  Symbol find(const char* name) const {
    return Symbol(handle_ == nullptr ? nullptr : ::dlsym(handle_, name));
  }
  // Throws UnavailableError, with the remedy, instead.
  Symbol need(const char* name, const char* remedy) const {
    if (!loaded()) throw UnavailableError("there is no {} ({}): {}", name_, error_, remedy);
    void* found = ::dlsym(handle_, name);
    if (found == nullptr) throw UnavailableError("{} has no {}: {}", name_, name, remedy);
    return Symbol(found);
  }

 private:
  std::string name_;
  void* handle_;
  std::string error_;
};

}  // namespace redline
