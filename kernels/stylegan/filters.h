// FIR filters as arguments: [taps], applied on each axis, [taps_y, taps_x], or none.
#pragma once

#include <optional>

#include "core/host/checks.h"

namespace lltm_jit {

// torch.ops passes None as an undefined tensor.
inline bool has_taps(const std::optional<at::Tensor>& f) { return f && f->defined(); }

inline void check_filter(const Argument& f, const Argument& x) {
  check_floating_point(f);
  TORCH_CHECK(f.tensor.dim() == 1 || f.tensor.dim() == 2, f.function, "(): expected ", f.name,
              " to have shape [taps] or [taps_y, taps_x], but got ", f.tensor.sym_sizes());
  TORCH_SYM_CHECK(f.tensor.sym_numel().sym_ge(1), f.function, "(): expected ", f.name,
                  " to have at least one tap, but got shape ", f.tensor.sym_sizes());
  check_same_device(f, x);
}

// The taps of a filter along y (dimension 0) or x (1).
inline c10::SymInt taps_along(const std::optional<at::Tensor>& f, int64_t dim) {
  return has_taps(f) ? f->sym_size(f->dim() == 2 ? dim : 0) : 1;
}

}  // namespace lltm_jit
