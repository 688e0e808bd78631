// torch's header, with blocks that can be released. See lltm_jit_registrations.h.
#pragma once

#include <lltm_jit_registrations.h>
#include_next <torch/library.h>

namespace torch::detail {
using ReleasableInit = lltm_jit::Block<Library, Library::Kind, std::optional<c10::DispatchKey>>;
}  // namespace torch::detail

#define TorchLibraryInit ReleasableInit
