// torch's own, whose blocks can be released. See lltm_jit_registrations.h.
#pragma once

#include <lltm_jit_registrations.h>
#include_next <torch/library.h>

#include <optional>

namespace torch::detail {

class __attribute__((visibility("hidden"))) ReleasableInit final : public lltm_jit::Registration {
 public:
  ReleasableInit(Library::Kind kind, void (*init)(Library&), const char* name_space,
                 std::optional<c10::DispatchKey> key, const char* file, uint32_t line)
      : Registration(name_space), kind_(kind), init_(init), key_(key), file_(file), line_(line) {
    lltm_jit::registrations().add(this);
  }
  void put() const override {
    library_.emplace(kind_, name_space, key_, file_, line_);
    init_(*library_);
  }
  void release() const override { library_.reset(); }

 private:
  Library::Kind kind_;
  void (*init_)(Library&);
  std::optional<c10::DispatchKey> key_;
  const char* file_;
  uint32_t line_;
  mutable std::optional<Library> library_;
};

}  // namespace torch::detail

#define TorchLibraryInit ReleasableInit
