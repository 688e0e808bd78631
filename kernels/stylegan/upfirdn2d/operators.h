// The operators of upfirdn2d.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>

#include <optional>

#include "core/host/operator.h"
#include "stylegan/filters.h"

namespace lltm_jit {

// The arguments of a call.
struct Upfirdn2dInputs {
  const at::Tensor& x;
  const std::optional<at::Tensor>& f;  // [taps], [fh, fw] or absent
  at::IntArrayRef up, down;            // [x, y]
  c10::SymIntArrayRef padding;         // [x0, x1, y0, y1]
  bool flip;
  double gain;

  // Sizes on the axes x and y, a tensor's last and last but one dimension.
  c10::SymInt in(int axis) const { return x.sym_size(3 - axis); }
  c10::SymInt padded(int axis) const {
    return in(axis) * up[axis] + padding[2 * axis] + padding[2 * axis + 1];
  }
  c10::SymInt taps(int axis) const { return taps_along(f, 1 - axis); }
  c10::SymInt out(int axis) const { return (padded(axis) - taps(axis)) / down[axis] + 1; }
};

namespace ops {
extern Operator<at::Tensor(const at::Tensor& x, const std::optional<at::Tensor>& f,
                           at::IntArrayRef up, at::IntArrayRef down, c10::SymIntArrayRef padding,
                           bool flip_filter, double gain)>
    upfirdn2d;
}  // namespace ops

// upfirdn2d for Python's functions: up and down may be one number, and padding one or two. In
// Python, handling them would show in the time of small calls. `centered` adds the padding that
// makes the result up / down times as large, and the gain of up_x up_y that keeps its brightness.
at::Tensor resample2d(const at::Tensor& x, const std::optional<at::Tensor>& f, at::IntArrayRef up,
                      at::IntArrayRef down, at::IntArrayRef padding, bool flip_filter, double gain,
                      bool centered);

// The formula in operations of torch: unchecked, without the gain, in the dtype of x and f.
at::Tensor upfirdn2d_in_torch(const Upfirdn2dInputs& in);

}  // namespace lltm_jit
