// torch's own, whose blocks can be released. See lltm_jit_registrations.h.
#pragma once

#include <lltm_jit_registrations.h>
#include_next <torch/csrc/stable/library.h>

#include <optional>
#include <stdexcept>

namespace torch::stable::detail {

class __attribute__((visibility("hidden"))) ReleasableInit final : public lltm_jit::Registration {
 public:
  ReleasableInit(StableLibrary::Kind kind, void (*init)(StableLibrary&), const char* name_space,
                 const char* key, const char* file, uint32_t line)
      : Registration(name_space), kind_(kind), init_(init), key_(key), file_(file), line_(line) {
    lltm_jit::registrations().add(this);
  }
  void put() const override {
    // The library does not look at the error.
    TorchLibraryHandle trial;
    if (kind_ == StableLibrary::Kind::DEF) {
      if (aoti_torch_library_init_def(name_space, file_, line_, &trial))
        throw std::runtime_error(std::string("there already is a library ") + name_space);
      aoti_torch_delete_library_object(trial);
    }
    library_.emplace(kind_, name_space, key_, file_, line_);
    init_(*library_);
  }
  void release() const override { library_.reset(); }

 private:
  StableLibrary::Kind kind_;
  void (*init_)(StableLibrary&);
  const char *key_, *file_;
  uint32_t line_;
  mutable std::optional<StableLibrary> library_;
};

}  // namespace torch::stable::detail

#define StableTorchLibraryInit ReleasableInit
