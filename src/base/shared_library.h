// A shared library that may not be there, looked up while the program runs.
#pragma once

#include <dlfcn.h>

#include <string>

namespace redline {

class SharedLibrary {
 public:
  // Takes a name for the loader, or a path. Never throws: loaded() says whether it is there.
  explicit SharedLibrary(const std::string& name) : handle_(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {}
  ~SharedLibrary() {
    if (handle_ != nullptr) ::dlclose(handle_);
  }
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;

  bool loaded() const { return handle_ != nullptr; }
  // Null when the library, or the function in it, is not there.
  template <typename Function>
  Function* find(const char* name) const {
    return handle_ == nullptr ? nullptr : reinterpret_cast<Function*>(::dlsym(handle_, name));
  }

 private:
  void* handle_;
};

}  // namespace redline
