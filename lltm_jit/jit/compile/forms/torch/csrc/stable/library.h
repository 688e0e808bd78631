// torch's header, with blocks that can be released. See lltm_jit_registrations.h.
#pragma once

#include <lltm_jit_registrations.h>
#include_next <torch/csrc/stable/library.h>

#include <stdexcept>

namespace torch::stable::detail {
using ReleasableInit = lltm_jit::Block<StableLibrary, StableLibrary::Kind, const char*>;
}  // namespace torch::stable::detail

// StableLibrary ignores the error of a second definition, so a trial definition finds it.
template <>
inline void torch::stable::detail::ReleasableInit::check() const {
  TorchLibraryHandle trial;
  if (kind_ != torch::stable::detail::StableLibrary::Kind::DEF) return;
  if (aoti_torch_library_init_def(name_space, file_, line_, &trial))
    throw std::runtime_error(std::string("there already is a library ") + name_space);
  aoti_torch_delete_library_object(trial);
}

#define StableTorchLibraryInit ReleasableInit
