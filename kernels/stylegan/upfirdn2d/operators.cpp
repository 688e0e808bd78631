// upfirdn2d: checks, results, formula and derivative. kernels.h says what the kernels compute.
#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>

#include "stylegan/upfirdn2d/kernels.h"
// It needs the headers above.
#include <ATen/ops/constant_pad_nd_ops.h>

#include <array>
#include <vector>

#include "core/host/autograd.h"
#include "core/host/checks.h"
#include "core/host/formula.h"
#include "core/host/result_like.h"
#include "core/launch/device.h"
#include "stylegan/filters.h"
#include "stylegan/upfirdn2d/operators.h"

namespace lltm_jit {
namespace {

using at::Tensor;
using c10::SymInt;
using OptionalTensor = std::optional<Tensor>;

// The arguments of a call.
struct Call {
  const Tensor& x;
  const Tensor& f;  // may be undefined
  at::IntArrayRef up, down;
  c10::SymIntArrayRef padding;
  bool flip;
  double gain;

  Call(const Tensor& x_, const OptionalTensor& f_, at::IntArrayRef up_, at::IntArrayRef down_,
       c10::SymIntArrayRef padding_, bool flip_, double gain_)
      : x(x_),
        f(as_tensor(f_)),
        up(up_),
        down(down_),
        padding(padding_),
        flip(flip_),
        gain(gain_) {}

  // Sizes on the axes x and y, a tensor's last and last but one dimension.
  SymInt in(int axis) const { return x.sym_size(3 - axis); }
  SymInt taps(int axis) const { return taps_along(f, 1 - axis); }
  SymInt out(int axis) const {
    return (in(axis) * up[axis] + padding[2 * axis] + padding[2 * axis + 1] - taps(axis)) /
               down[axis] +
           1;
  }
  std::array<SymInt, 4> result_sizes() const {
    return {x.sym_size(0), x.sym_size(1), out(1), out(0)};
  }
};

// --------------------------------------------------------------------------------------- checks --

void check_factors(const char* name, at::IntArrayRef factors) {
  TORCH_CHECK(factors.size() == 2 && factors[0] >= 1 && factors[1] >= 1, "upfirdn2d(): expected ",
              name, " to be two positive numbers [x, y], but got ", factors);
}

void check(const Call& call) {
  const Argument x{"upfirdn2d", "x", call.x};
  check_floating_point(x);
  check_rank(x, 4, "[batch_size, channels, height, width]");
  if (call.f.defined()) check_filter({"upfirdn2d", "f", call.f}, x);
  check_factors("up", call.up);
  check_factors("down", call.down);
  TORCH_CHECK(call.padding.size() == 4,
              "upfirdn2d(): expected padding to be four numbers [x0, x1, y0, y1], but got ",
              call.padding);
  for (const int axis : {0, 1}) {
    const SymInt padded =
        call.in(axis) * call.up[axis] + call.padding[2 * axis] + call.padding[2 * axis + 1];
    TORCH_SYM_CHECK(padded.sym_ge(call.taps(axis)), "upfirdn2d(): expected the ",
                    axis == 0 ? "width" : "height",
                    " of the upsampled and padded x to be at least the ", call.taps(axis),
                    " taps of the filter, but got ", padded);
  }
}

// --------------------------------------------------------------------------------------- kernel --

UpfirdnAxis axis_of(const Call& call, int axis) {
  return {
      .in = call.x.size(3 - axis),
      .out = call.out(axis).expect_int(),
      .up = call.up[axis],
      .down = call.down[axis],
      .pad = call.padding[2 * axis].expect_int(),
      .taps = call.taps(axis).expect_int(),
  };
}

Tensor kernel(const Tensor& x_, const OptionalTensor& f_, at::IntArrayRef up, at::IntArrayRef down,
              c10::SymIntArrayRef padding, bool flip, double gain) {
  const Call call(x_, f_, up, down, padding, flip, gain);
  check(call);
  const KernelGuard guard(x_);
  const auto format = x_.suggest_memory_format();
  Tensor y = empty(call.result_sizes(), x_, format);
  if (x_.is_meta() || y.numel() == 0) return y;
  const Tensor x = x_.contiguous(format), f = call.f.defined() ? call.f.contiguous() : call.f;
  const Upfirdn2dArgs args{
      .x = x.const_data_ptr(),
      .f = f.defined() ? f.const_data_ptr() : nullptr,
      .y = y.mutable_data_ptr(),
      .batch = x.size(0),
      .channels = x.size(1),
      .horizontal = axis_of(call, 0),
      .vertical = axis_of(call, 1),
      .gain = gain,
      .separable = !f.defined() || f.dim() == 1,
      .flip = flip,
      .channels_last = format == at::MemoryFormat::ChannelsLast,
      .type = floating_type(x.scalar_type()),
      .filter_type = f.defined() ? floating_type(f.scalar_type()) : ElementType::Float,
  };
  LLTM_JIT_RUN(x, args, upfirdn2d_cpu, launch_upfirdn2d);
  return y;
}

// -------------------------------------------------------------------------------------- formula --

// The formula, as the operator is defined: zeros, padding, products with each tap, every down-th result. It
// uses no convolution or matrix product, for which torch's settings allow fewer bits (TF32, bfloat16).

// Pads and then crops: a side may lose more than the image has.
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

// The elements of a dimension that one of the taps meets, every step-th.
Tensor met(const Tensor& x, int64_t dim, int64_t tap, int64_t taps, int64_t step) {
  return x.slice_symint(dim, tap, x.sym_size(dim) - taps + tap + 1, step);
}

// Correlates along one dimension.
Tensor correlate(const Tensor& x, const Tensor& taps, int64_t dim, int64_t step) {
  const int64_t count = known_size(taps, 0);
  const auto part = [&](int64_t t) { return met(x, dim, t, count, step).mul(taps.select(0, t)); };
  Tensor sum = part(0);
  for (int64_t t = 1; t < count; ++t) sum = sum.add(part(t));
  return sum;
}

}  // namespace

Tensor upfirdn2d_in_torch(const Upfirdn2dInTorch& in) {
  const Tensor y = pad(with_zeros(in.x, in.up), in.padding);
  if (!in.f.defined()) {
    return met(met(y, 2, 0, 1, in.down[1]), 3, 0, 1, in.down[0]);
  }
  if (in.f.dim() == 1) {
    const Tensor taps = in.flip ? in.f : in.f.flip(0);
    return correlate(correlate(y, taps, 3, in.down[0]), taps, 2, in.down[1]);
  }
  const Tensor taps = in.flip ? in.f : in.f.flip({0, 1});
  const int64_t count = known_size(taps, 0);
  const auto part = [&](int64_t row) {
    return correlate(met(y, 2, row, count, in.down[1]), taps.select(0, row), 3, in.down[0]);
  };
  Tensor sum = part(0);
  for (int64_t row = 1; row < count; ++row) sum = sum.add(part(row));
  return sum;
}

namespace {

// 16-bit types compute in float, and are rounded once at the end.
Tensor formula(const Tensor& x, const OptionalTensor& f, at::IntArrayRef up, at::IntArrayRef down,
               c10::SymIntArrayRef padding, bool flip, double gain) {
  const Call call(x, f, up, down, padding, flip, gain);
  check(call);
  const NoAutocast guard;
  const auto dtype = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const Tensor y = upfirdn2d_in_torch({.x = x.to(dtype),
                                       .f = call.f.defined() ? call.f.to(dtype) : call.f,
                                       .up = up,
                                       .down = down,
                                       .padding = padding,
                                       .flip = flip});
  return result_like(x, y.mul(gain).to(x.scalar_type()));
}

// ------------------------------------------------------------------------------------- autograd --

// Note [The gradient is an upfirdn2d]
// The transpose of one axis puts gradient o at o down - pad + t for tap t, and keeps every up-th.
// So it exchanges the factors and flips the filter; the padding follows from the sizes.
Tensor transposed(const Tensor& grad, const OptionalTensor& f, at::IntArrayRef up,
                  at::IntArrayRef down, c10::SymIntArrayRef padding, bool flip, double gain) {
  return ops::upfirdn2d(grad, f, down, up, padding, !flip, gain);
}

Tensor autograd(const Tensor& x, const OptionalTensor& f, at::IntArrayRef up, at::IntArrayRef down,
                c10::SymIntArrayRef padding, bool flip, double gain) {
  TORCH_CHECK(!any_requires_grad(f) && !any_forward_grad(f),
              "upfirdn2d(): expected f not to require a gradient, since it gets none; ",
              "pass f.detach()");
  if (any_forward_grad(x)) return formula(x, f, up, down, padding, flip, gain);
  const Tensor y = below_autograd(ops::upfirdn2d, x, f, up, down, padding, flip, gain);
  if (!any_requires_grad(x)) return y;
  const Call call(x, f, up, down, padding, flip, gain);
  std::vector<SymInt> pads;
  for (const int axis : {0, 1}) {
    pads.push_back(call.taps(axis) - padding[2 * axis] - 1);
    pads.push_back(call.in(axis) * up[axis] - call.out(axis) * down[axis] + padding[2 * axis] -
                   up[axis] + 1);
  }
  const bool no_samples = call.in(0) == 0 || call.in(1) == 0;  // leaves no room for a filter
  const auto gradients =
      [up = up.vec(), down = down.vec(), pads, flip, gain, no_samples,
       sizes = x.sym_sizes().vec()](const BackwardPass& pass) -> std::vector<Tensor> {
    if (no_samples) return {pass.grads[0].new_zeros_symint(sizes)};
    return {transposed(pass.grads[0], as_optional(pass.saved[0]), up, down, pads, flip, gain)};
  };
  record({"Upfirdn2dBackward", gradients}, {x}, {y}, /*saved=*/{as_tensor(f)});
  return y;
}

}  // namespace

Operator<Tensor(const Tensor&, const OptionalTensor&, at::IntArrayRef, at::IntArrayRef,
                c10::SymIntArrayRef, bool, double)>
    ops::upfirdn2d{
        .name = "lltm_jit::upfirdn2d",
        .kernel = kernel,
        .formula = formula,
        .autograd = autograd,
        .without_autocast = true,
    };

namespace {

std::array<int64_t, 2> both(const char* name, at::IntArrayRef factors) {
  TORCH_CHECK(factors.size() == 1 || factors.size() == 2, "resample2d(): expected ", name,
              " to be one number or two, but got ", factors);
  return {factors.front(), factors.back()};
}

std::array<int64_t, 4> all_sides(at::IntArrayRef padding) {
  switch (padding.size()) {
    case 1:
      return {padding[0], padding[0], padding[0], padding[0]};
    case 2:
      return {padding[0], padding[0], padding[1], padding[1]};
    default:
      TORCH_CHECK(padding.size() == 4,
                  "resample2d(): expected padding to be one number, two or four, but got ",
                  padding);
      return {padding[0], padding[1], padding[2], padding[3]};
  }
}

}  // namespace

Tensor resample2d(const Tensor& x, const OptionalTensor& f, at::IntArrayRef up_,
                  at::IntArrayRef down_, at::IntArrayRef padding, bool flip, double gain,
                  bool centered) {
  const auto up = both("up", up_), down = both("down", down_);
  auto given = all_sides(padding);
  if (centered) {
    const Tensor& filter = as_tensor(f);
    const bool has_taps = filter.defined() && (filter.dim() == 1 || filter.dim() == 2);
    for (const int axis : {0, 1}) {
      const int64_t taps = has_taps ? filter.size(filter.dim() == 1 ? 0 : 1 - axis) : 1;
      // A shift rounds down.
      given[2 * axis] += (taps + up[axis] - down[axis]) >> 1;
      given[2 * axis + 1] += (taps - up[axis] - down[axis] + 1) >> 1;
    }
    gain *= static_cast<double>(up[0]) * static_cast<double>(up[1]);
  }
  const SymInt sides[] = {given[0], given[1], given[2], given[3]};
  return ops::upfirdn2d(x, f, up, down, sides, flip, gain);
}

}  // namespace lltm_jit
