// FIR filters as arguments: [taps], applied on each axis, [taps_y, taps_x], or none.
#pragma once

#include "core/host/checks.h"

namespace lltm_jit {

inline void check_filter(const Argument& f, const Argument& x) {
  check_floating_point(f);
  TORCH_CHECK(f.tensor.dim() == 1 || f.tensor.dim() == 2, f.function, "(): expected ", f.name,
              " to have shape [taps] or [taps_y, taps_x], but got ", f.tensor.sym_sizes());
  TORCH_SYM_CHECK(f.tensor.sym_numel().sym_ge(1), f.function, "(): expected ", f.name,
                  " to have at least one tap, but got shape ", f.tensor.sym_sizes());
  check_same_device(f, x);
}

// The taps of a filter, which may be undefined, along y (dimension 0) or x (1).
inline c10::SymInt taps_along(const at::Tensor& f, int64_t dim) {
  if (!f.defined()) return 1;
  return f.sym_size(f.dim() == 2 ? dim : 0);
}

}  // namespace lltm_jit
