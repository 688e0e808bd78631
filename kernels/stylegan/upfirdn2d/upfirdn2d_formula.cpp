// upfirdn2d in operations of torch, as it is defined: zeros, padding, products with each tap, every
// down-th result. Not as a convolution or a product of matrices, which torch may compute with fewer bits
// (TF32, bfloat16), as settings of the process say.
#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>
// Needs the ones above.
#include <ATen/ops/constant_pad_nd_ops.h>

#include <vector>

#include "stylegan/upfirdn2d/upfirdn2d_ops.h"

namespace lltm_jit {
namespace {

using at::Tensor;
using c10::SymInt;

// Crops after padding: a side may lose more than the image has.
Tensor pad(const Tensor& x, c10::SymIntArrayRef padding) {
  std::vector<SymInt> zeros, crops;
  bool pads = false, crop = false;
  for (const SymInt& p : padding) {
    const bool negative = p < 0;
    zeros.push_back(negative ? SymInt(0) : p);
    crops.push_back(negative ? p : SymInt(0));
    crop |= negative;
    pads |= p > 0;
  }
  const Tensor padded = pads ? at::_ops::constant_pad_nd::call(x, zeros, 0) : x;
  return crop ? at::_ops::constant_pad_nd::call(padded, crops, 0) : padded;
}

Tensor with_zeros(const Tensor& x, at::IntArrayRef up) {
  if (up[0] == 1 && up[1] == 1) return x;
  const auto sizes = x.sym_sizes();
  const Tensor y = at::_ops::constant_pad_nd::call(
      x.reshape_symint({sizes[0], sizes[1], sizes[2], 1, sizes[3], 1}),
      std::vector<SymInt>{0, up[0] - 1, 0, 0, 0, up[1] - 1}, 0);
  return y.reshape_symint({sizes[0], sizes[1], sizes[2] * up[1], sizes[3] * up[0]});
}

int64_t known_size(const Tensor& taps, int64_t dim) {
  return taps.sym_size(dim).guard_int(__FILE__, __LINE__);
}

// Of a dimension, `out` elements from `first` on, each step-th.
Tensor every(const Tensor& x, int64_t dim, int64_t first, const SymInt& out, int64_t step) {
  return x.slice_symint(dim, first, first + (out - 1) * step + 1, step);
}

// Along one dimension.
Tensor correlate(const Tensor& x, const Tensor& taps, int64_t dim, const SymInt& out,
                 int64_t step) {
  const auto part = [&](int64_t t) { return every(x, dim, t, out, step).mul(taps.select(0, t)); };
  Tensor sum = part(0);
  for (int64_t t = 1; t < known_size(taps, 0); ++t) sum = sum.add(part(t));
  return sum;
}

}  // namespace

Tensor upfirdn2d_in_torch(const Upfirdn2dInTorch& in) {
  const Tensor y = pad(with_zeros(in.x, in.up), in.padding);
  if (!in.f.defined()) {
    return every(every(y, 2, 0, in.out[1], in.down[1]), 3, 0, in.out[0], in.down[0]);
  }
  if (in.f.dim() == 1) {
    const Tensor taps = in.flip ? in.f : in.f.flip(0);
    return correlate(correlate(y, taps, 3, in.out[0], in.down[0]), taps, 2, in.out[1], in.down[1]);
  }
  const Tensor taps = in.flip ? in.f : in.f.flip({0, 1});
  const auto part = [&](int64_t row) {
    return correlate(every(y, 2, row, in.out[1], in.down[1]), taps.select(0, row), 3, in.out[0],
                     in.down[0]);
  };
  Tensor sum = part(0);
  for (int64_t row = 1; row < known_size(taps, 0); ++row) sum = sum.add(part(row));
  return sum;
}

}  // namespace lltm_jit
