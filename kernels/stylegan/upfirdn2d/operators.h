// The operators of upfirdn2d.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>

#include <optional>

#include "core/host/operator.h"

namespace lltm_jit::ops {

using at::Tensor;

// up and down are [x, y]; padding is [x0, x1, y0, y1]; f is [taps], [fh, fw] or absent.
extern Operator<Tensor(const Tensor& x, const std::optional<Tensor>& f, at::IntArrayRef up,
                       at::IntArrayRef down, c10::SymIntArrayRef padding, bool flip_filter,
                       double gain)>
    upfirdn2d;

}  // namespace lltm_jit::ops

namespace lltm_jit {

// upfirdn2d for Python's functions: up and down may be one number, and padding one or two. In
// Python, handling them would show in the time of small calls. `centered` adds the padding that
// makes the result up / down times as large, and the gain of up_x up_y that keeps its brightness.
at::Tensor resample2d(const at::Tensor& x, const std::optional<at::Tensor>& f, at::IntArrayRef up,
                      at::IntArrayRef down, at::IntArrayRef padding, bool flip_filter, double gain,
                      bool centered);

// The formula in operations of torch: unchecked, without a gain, in the dtype of x and f. f may be undefined.
struct Upfirdn2dInTorch {
  at::Tensor x, f;
  at::IntArrayRef up, down;
  c10::SymIntArrayRef padding;
  bool flip;
};
at::Tensor upfirdn2d_in_torch(const Upfirdn2dInTorch& in);

}  // namespace lltm_jit
