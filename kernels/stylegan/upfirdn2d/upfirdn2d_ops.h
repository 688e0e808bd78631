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

// upfirdn2d with the padding that makes the result up / down times as large, and `padding` more. What a
// call from Python would spend on it shows at small sizes.
at::Tensor centered_upfirdn2d(const at::Tensor& x, const std::optional<at::Tensor>& f,
                              at::IntArrayRef up, at::IntArrayRef down, at::IntArrayRef padding,
                              bool flip_filter, double gain);

}  // namespace lltm_jit
