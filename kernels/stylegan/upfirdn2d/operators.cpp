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
#include "core/launch/device.h"
#include "stylegan/filters.h"
#include "stylegan/upfirdn2d/operators.h"

namespace lltm_jit {
namespace {

using at::Tensor;
using c10::SymInt;
using OptionalTensor = std::optional<Tensor>;

// --------------------------------------------------------------------------------------- checks --

void check_factors(const char* name, at::IntArrayRef factors) {
  TORCH_CHECK(factors.size() == 2 && factors[0] >= 1 && factors[1] >= 1, "upfirdn2d(): expected ",
              name, " to be two positive numbers [x, y], but got ", factors);
}

void check(const Upfirdn2dInputs& in) {
  const Argument x{"upfirdn2d", "x", in.x};
  check_floating_point(x);
  check_rank(x, 4, "[batch_size, channels, height, width]");
  if (has_taps(in.f)) check_filter({"upfirdn2d", "f", *in.f}, x);
  check_factors("up", in.up);
  check_factors("down", in.down);
  TORCH_CHECK(in.padding.size() == 4,
              "upfirdn2d(): expected padding to be four numbers [x0, x1, y0, y1], but got ",
              in.padding);
  for (const int axis : {0, 1}) {
    TORCH_SYM_CHECK(in.padded(axis).sym_ge(in.taps(axis)), "upfirdn2d(): expected the ",
                    axis == 0 ? "width" : "height",
                    " of the upsampled and padded x to be at least the ", in.taps(axis),
                    " taps of the filter, but got ", in.padded(axis));
  }
}

// --------------------------------------------------------------------------------------- kernel --

UpfirdnAxis axis_of(const Upfirdn2dInputs& in, int axis) {
  return {
      .in = in.x.size(3 - axis),
      .out = in.out(axis).expect_int(),
      .up = in.up[axis],
      .down = in.down[axis],
      .pad = in.padding[2 * axis].expect_int(),
      .taps = in.taps(axis).expect_int(),
  };
}

Tensor kernel(const Upfirdn2dInputs& in) {
  check(in);
  const KernelGuard guard(in.x);
  const auto format = in.x.suggest_memory_format();
  Tensor y = empty({in.x.sym_size(0), in.x.sym_size(1), in.out(1), in.out(0)}, in.x, format);
  if (in.x.is_meta() || y.numel() == 0) return y;
  const Tensor x = in.x.contiguous(format), f = has_taps(in.f) ? in.f->contiguous() : Tensor();
  const Upfirdn2dArgs args{
      .x = x.const_data_ptr(),
      .f = f.defined() ? f.const_data_ptr() : nullptr,
      .y = y.mutable_data_ptr(),
      .batch = x.size(0),
      .channels = x.size(1),
      .horizontal = axis_of(in, 0),
      .vertical = axis_of(in, 1),
      .gain = in.gain,
      .separable = !f.defined() || f.dim() == 1,
      .flip = in.flip,
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

Tensor upfirdn2d_in_torch(const Upfirdn2dInputs& in) {
  const Tensor y = pad(with_zeros(in.x, in.up), in.padding);
  if (!has_taps(in.f)) return met(met(y, 2, 0, 1, in.down[1]), 3, 0, 1, in.down[0]);
  if (in.f->dim() == 1) {
    const Tensor taps = in.flip ? *in.f : in.f->flip(0);
    return correlate(correlate(y, taps, 3, in.down[0]), taps, 2, in.down[1]);
  }
  const Tensor taps = in.flip ? *in.f : in.f->flip({0, 1});
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
Tensor formula(const Upfirdn2dInputs& in) {
  check(in);
  const NoAutocast guard;
  const auto dtype = in.x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const Tensor x = in.x.to(dtype);
  const OptionalTensor f = has_taps(in.f) ? OptionalTensor(in.f->to(dtype)) : std::nullopt;
  const Tensor y = upfirdn2d_in_torch({x, f, in.up, in.down, in.padding, in.flip, in.gain});
  return result_like(in.x, y.mul(in.gain).to(in.x.scalar_type()));
}

// ------------------------------------------------------------------------------------- autograd --

// Note [The gradient is an upfirdn2d]
// The transpose of one axis puts gradient o at o down - pad + t for tap t, and keeps every up-th.
// So it exchanges the factors and flips the filter; the padding follows from the sizes.
Tensor autograd(const Upfirdn2dInputs& in) {
  const auto& [x, f, up, down, padding, flip, gain] = in;
  TORCH_CHECK(!any_requires_grad(f) && !any_forward_grad(f),
              "upfirdn2d(): expected f not to require a gradient, since it gets none; ",
              "pass f.detach()");
  if (any_forward_grad(x)) return formula(in);
  const Tensor y = below_autograd(ops::upfirdn2d, x, f, up, down, padding, flip, gain);
  if (!any_requires_grad(x)) return y;
  std::vector<SymInt> pads;
  for (const int axis : {0, 1}) {
    const SymInt& before = padding[2 * axis];
    pads.push_back(in.taps(axis) - before - 1);
    pads.push_back(in.in(axis) * up[axis] - in.out(axis) * down[axis] + before - up[axis] + 1);
  }
  const bool no_samples = in.in(0) == 0 || in.in(1) == 0;  // leaves no room for a filter
  const auto gradients =
      [up = up.vec(), down = down.vec(), pads, flip = flip, gain = gain, no_samples,
       sizes = x.sym_sizes().vec()](const BackwardPass& pass) -> std::vector<Tensor> {
    const Tensor& grad = pass.grads[0];
    if (no_samples) return {grad.new_zeros_symint(sizes)};
    return {ops::upfirdn2d(grad, as_optional(pass.saved[0]), down, up, pads, !flip, gain)};
  };
  record({"Upfirdn2dBackward", gradients}, {x}, {y}, /*saved=*/{as_tensor(f)});
  return y;
}

}  // namespace

decltype(ops::upfirdn2d) ops::upfirdn2d{
    .name = "lltm_jit::upfirdn2d",
    .kernel = flat<kernel>,
    .formula = flat<formula>,
    .autograd = flat<autograd>,
    .without_autocast = true,
};

namespace {

// Repeats each of the numbers equally often, to get `count`.
template <size_t count>
std::array<int64_t, count> repeated(at::IntArrayRef numbers) {
  std::array<int64_t, count> result;
  for (size_t k = 0; k < count; ++k) result[k] = numbers[k * numbers.size() / count];
  return result;
}

std::array<int64_t, 2> both(const char* name, at::IntArrayRef factors) {
  TORCH_CHECK(factors.size() == 1 || factors.size() == 2, "resample2d(): expected ", name,
              " to be one number or two, but got ", factors);
  return repeated<2>(factors);
}

}  // namespace

Tensor resample2d(const Tensor& x, const OptionalTensor& f, at::IntArrayRef up_,
                  at::IntArrayRef down_, at::IntArrayRef padding, bool flip, double gain,
                  bool centered) {
  const auto up = both("up", up_), down = both("down", down_);
  TORCH_CHECK(padding.size() == 1 || padding.size() == 2 || padding.size() == 4,
              "resample2d(): expected padding to be one number, two or four, but got ", padding);
  auto given = repeated<4>(padding);
  if (centered) {
    const bool refused = has_taps(f) && f->dim() != 1 && f->dim() != 2;  // by upfirdn2d
    for (const int axis : {0, 1}) {
      const int64_t taps = refused ? 1 : taps_along(f, 1 - axis).expect_int();
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
