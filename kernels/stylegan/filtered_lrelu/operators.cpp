// filtered_lrelu: checks and derivatives. The kernels are chosen in kernels.cpp; the formula is in
// formula.cpp.
//
// Note [Derivatives of filtered_lrelu]
// Given the signs of v, the operator is linear in x. Its transpose is the same operator with the
// filters and the factors exchanged, the filters flipped, and paddings for which samples meet the same
// taps: see transposed(). So one operator is the backward pass, and its own backward pass at any order.
#include "stylegan/filtered_lrelu/operators.h"

#include <algorithm>

#include "core/host/autograd.h"
#include "core/host/checks.h"
#include "stylegan/filtered_lrelu/mma/plan.h"
#include "stylegan/filters.h"

// Included, not compiled apart: it needs the same headers, which take half of its compile time.
#include "stylegan/filtered_lrelu/formula.cpp"

namespace lltm_jit {
namespace {

constexpr const char *kForward = "filtered_lrelu", *kLinear = "filtered_lrelu_linear";

// Checks that both kinds of call need. Results need at least `least_out` rows and columns.
template <typename Inputs>
FlrSizes check(const char* function, const Inputs& in, int64_t least_out) {
  const Argument x{function, "x", in.x};
  check_floating_point(x);
  check_rank(x, 4, "[batch, channels, height, width]");
  if (in.fu) check_filter({function, "fu", *in.fu}, x);
  if (in.fd) check_filter({function, "fd", *in.fd}, x);
  constexpr int64_t kMostFactor = 1024;  // rows between the filters have up * down parts
  const auto check_factor = [&](const char* name, int64_t factor) {
    TORCH_CHECK(factor >= 1 && factor <= kMostFactor, function, "(): expected ", name,
                " to be from 1 to ", kMostFactor, ", but got ", factor);
  };
  check_factor("up", in.up);
  check_factor("down", in.down);
  TORCH_CHECK(in.padding.size() == 4, function,
              "(): expected padding to have 4 numbers [left, right, top, bottom], but got ",
              in.padding.size());
  const auto sizes = [&](int64_t axis, const char* name) {
    const auto padded = in.x.sym_size(2 + axis) * in.up + in.padding[axis == 0 ? 2 : 0] +
                        in.padding[axis == 0 ? 3 : 1];
    const auto mid = padded - (taps_along(in.fu, axis) - 1),
               valid = mid - (taps_along(in.fd, axis) - 1);
    const int64_t least = (least_out - 1) * in.down + 1;
    TORCH_CHECK(valid.sym_ge(least).expect_true(__FILE__, __LINE__), function, "(): expected the ",
                name, " of x, times up and with the padding, to be at least ",
                taps_along(in.fu, axis) + taps_along(in.fd, axis) - 2 + least,
                " for the filters, but got ", padded);
    return std::pair(mid, (valid + (in.down - 1)) / in.down);
  };
  const auto [mid_h, out_h] = sizes(0, "height");
  const auto [mid_w, out_w] = sizes(1, "width");
  return {mid_h, mid_w, out_h, out_w};
}

}  // namespace

FlrSizes check_filtered_lrelu(const FlrInputs& in) {
  const FlrSizes sizes = check(kForward, in, /*least_out=*/1);
  TORCH_CHECK(in.clamp.value_or(0) >= 0, kForward,
              "(): expected clamp to be None or at least 0, but got ", *in.clamp);
  if (in.b) {
    check_like({kForward, "b", *in.b}, {kForward, "x", in.x}, {in.x.sym_size(1)}, "[channels]");
  }
  return sizes;
}

FlrSizes check_filtered_lrelu_linear(const FlrLinearInputs& in) {
  // If x has no rows or columns, neither has its gradient.
  const FlrSizes sizes = check(kLinear, in, /*least_out=*/0);
  TORCH_CHECK(in.sign_size.size() == 2 && in.sign_offset.size() == 2 && in.sign_phase.size() == 2,
              kLinear,
              "(): expected sign_size, sign_offset and sign_phase to have 2 numbers each, but got ",
              in.sign_size.size(), ", ", in.sign_offset.size(), " and ", in.sign_phase.size());
  const Argument x{kLinear, "x", in.x}, signs{kLinear, "signs", in.signs};
  check_dense(signs);
  TORCH_CHECK(in.signs.scalar_type() == at::kInt, kLinear,
              "(): expected signs to have dtype Int, but got ", in.signs.scalar_type());
  check_same_device(signs, x);
  const auto words = sign_map(in.sign_size, in.sign_phase).words_per_plane();
  check_shape(signs, {in.x.sym_size(0), in.x.sym_size(1), words}, "[batch, channels, words]");
  return sizes;
}

Tensor float_taps(const OptionalTensor& filter) {
  return filter ? filter->to(at::kFloat).contiguous() : Tensor();
}

SymSignMap sign_map(c10::SymIntArrayRef size, at::IntArrayRef phase) {
  TORCH_CHECK(phase.size() == 2 && phase[0] >= 0 && phase[0] < 16 && phase[1] >= 0 && phase[1] < 16,
              "filtered_lrelu(): expected sign_phase to be 2 numbers of 0 to 15, but got ", phase);
  return {size[0], size[1], static_cast<int>(phase[0]), static_cast<int>(phase[1])};
}

// Note [Phases of symbolic paddings]
// The phases that fit the tensor cores' tiles follow from the padding by a search. While torch.compile
// traces an unknown padding, a search would make it compile the graph again for each value. So the map
// then has the phases 0, which the other kernels support for any padding, and tensor cores for some.
std::array<int64_t, 2> sign_phase(const FlrInputs& in) {
  if (!in.padding[0].maybe_as_int() || !in.padding[2].maybe_as_int()) return {0, 0};
  const auto as_int = [](const c10::SymInt& value) {
    return static_cast<int>(value.guard_int(__FILE__, __LINE__));
  };
  FilteredLreluArgs call{};
  call.up = static_cast<int>(in.up);
  call.down = static_cast<int>(in.down);
  call.fu.width = as_int(taps_along(in.fu, 1));
  call.fd.width = as_int(taps_along(in.fd, 1));
  call.pad_x = as_int(in.padding[0]);
  call.pad_y = as_int(in.padding[2]);
  const SignPhases phases = sign_phases(call);
  return {phases.rows, phases.columns};
}

// -------------------------------------------------------------------------------------- autograd --

namespace {

// The part of a call that its derivative keeps: all but the tensors.
struct LinearCall {
  int64_t up, down;
  std::vector<c10::SymInt> padding, sign_size, sign_offset;
  std::vector<int64_t> sign_phase;
  double gain, slope;
  bool flip_filter;
  c10::SymInt in_h, in_w;
};

// The transpose of a call, for the gradient of its result.
LinearCall transposed(const LinearCall& call, const Tensor& grad, const OptionalTensor& fu,
                      const OptionalTensor& fd) {
  LinearCall result = call;
  std::swap(result.up, result.down);
  result.flip_filter = !call.flip_filter;
  result.gain = call.gain * static_cast<double>(call.up * call.up) /
                static_cast<double>(call.down * call.down);
  result.in_h = grad.sym_size(2);
  result.in_w = grad.sym_size(3);
  const c10::SymInt in[] = {call.in_w, call.in_h};
  for (int64_t i = 0; i < 2; ++i) {  // width, height
    const int64_t axis = 1 - i;
    const auto reach = taps_along(fu, axis) - 1;
    const auto& before = call.padding[2 * i];
    result.padding[2 * i] = reach + taps_along(fd, axis) - 1 - before;
    result.padding[2 * i + 1] =
        in[i] * call.up - grad.sym_size(2 + axis) * call.down + before - (call.up - 1);
    result.sign_offset[axis] = call.sign_offset[axis] + before - reach;
  }
  return result;
}

std::tuple<Tensor, Tensor> run(const LinearCall& call, const Tensor& x, const Tensor& signs,
                               const OptionalTensor& fu, const OptionalTensor& fd, bool with_sums) {
  return ops::filtered_lrelu_linear(x, signs, fu, fd, call.up, call.down, call.padding,
                                    call.sign_size, call.sign_offset, call.sign_phase, call.gain,
                                    call.slope, call.flip_filter, with_sums);
}

// The gradients of x and of its bias, from the saved fu, fd and signs.
std::vector<Tensor> gradients(const LinearCall& call, const BackwardPass& pass,
                              const Tensor& grad) {
  const OptionalTensor fu = as_optional(pass.saved[0]), fd = as_optional(pass.saved[1]);
  auto [grad_x, grad_b] =
      run(transposed(call, grad, fu, fd), grad, pass.saved[2], fd, fu, pass.wanted[1]);
  return {grad_x, grad_b};
}

template <typename Inputs>
LinearCall linear_call(const Inputs& in, c10::SymIntArrayRef sign_size,
                       c10::SymIntArrayRef sign_offset, at::IntArrayRef sign_phase) {
  return {.up = in.up,
          .down = in.down,
          .padding = in.padding.vec(),
          .sign_size = sign_size.vec(),
          .sign_offset = sign_offset.vec(),
          .sign_phase = sign_phase.vec(),
          .gain = in.gain,
          .slope = in.slope,
          .flip_filter = in.flip_filter,
          .in_h = in.x.sym_size(2),
          .in_w = in.x.sym_size(3)};
}

template <typename Op, typename... More>
auto call_below(const Op& op, const FlrInputs& in, const More&... more) {
  return below_autograd(op, in.x, in.fu, in.fd, in.b, in.up, in.down, in.padding, in.gain, in.slope,
                        in.clamp, in.flip_filter, more...);
}

std::tuple<Tensor, Tensor> forward_autograd(const FlrForwardInputs& forward) {
  const FlrInputs& in = forward.call;
  if (any_forward_grad(in.x, in.b)) return filtered_lrelu_forward_formula(forward);
  auto results = call_below(ops::filtered_lrelu_forward, in, *forward.sign_phase);
  if (!any_requires_grad(in.x, in.b)) return results;
  const auto& [y, signs] = results;
  const FlrSizes sizes = check_filtered_lrelu(in);
  const c10::SymInt whole[] = {sizes.mid_h, sizes.mid_w}, origin[] = {0, 0};
  const LinearCall call = linear_call(in, whole, origin, *forward.sign_phase);
  record({"FilteredLreluBackward",
          [call](const BackwardPass& pass) { return gradients(call, pass, pass.grads[0]); }},
         {in.x, as_tensor(in.b)}, {y}, /*saved=*/{as_tensor(in.fu), as_tensor(in.fd), signs});
  return results;
}

Tensor kernel(const FlrInputs& in) { return std::get<0>(filtered_lrelu_forward_kernel({in})); }
Tensor formula(const FlrInputs& in) { return std::get<0>(filtered_lrelu_forward_formula({in})); }

// Note [Phases are arguments]
// The phases are arguments of the call that writes signs and of the one that reads them. So a graph
// that torch.compile has kept from another version of this package still agrees with itself.
Tensor autograd(const FlrInputs& in) {
  TORCH_CHECK(
      !any_requires_grad(in.fu, in.fd) && !any_forward_grad(in.fu, in.fd),
      "filtered_lrelu(): expected fu and fd not to require a gradient, since they get none; ",
      "pass them detached");
  if (any_forward_grad(in.x, in.b)) return formula(in);
  if (!any_requires_grad(in.x, in.b)) return call_below(ops::filtered_lrelu, in);
  check_filtered_lrelu(in);
  return std::get<0>(forward_autograd({in, sign_phase(in)}));
}

// The gradient of a linear call's x, from the gradients of y and of y's sums.
std::vector<Tensor> linear_gradients(const LinearCall& call, const FlrSizes& sizes,
                                     const BackwardPass& pass) {
  Tensor grad = pass.grads[0];
  if (pass.grads[1].defined() && pass.grads[1].sym_numel() != 0) {
    const Tensor &sums = pass.grads[1], &signs = pass.saved[2];
    const Tensor spread =
        sums.view_symint({1, sums.sym_size(0), 1, 1})
            .expand_symint({signs.sym_size(0), sums.sym_size(0), sizes.out_h, sizes.out_w});
    grad = grad.defined() ? grad.add(spread) : spread;
  }
  if (!grad.defined()) return {Tensor()};
  return {gradients(call, pass, grad)[0]};
}

std::tuple<Tensor, Tensor> linear_autograd(const FlrLinearInputs& in) {
  const auto& [x, signs, fu, fd, up, down, padding, sign_size, sign_offset, sign_phase, gain, slope,
               flip_filter, with_sums] = in;
  if (any_forward_grad(x)) return filtered_lrelu_linear_formula(in);
  auto results =
      below_autograd(ops::filtered_lrelu_linear, x, signs, fu, fd, up, down, padding, sign_size,
                     sign_offset, sign_phase, gain, slope, flip_filter, with_sums);
  if (!any_requires_grad(x)) return results;
  const FlrSizes sizes = check_filtered_lrelu_linear(in);
  const LinearCall call = linear_call(in, sign_size, sign_offset, sign_phase);
  record({"FilteredLreluLinearBackward",
          [call, sizes](const BackwardPass& pass) { return linear_gradients(call, sizes, pass); }},
         {x}, {std::get<0>(results), std::get<1>(results)},
         /*saved=*/{as_tensor(fu), as_tensor(fd), signs});
  return results;
}

}  // namespace

// ------------------------------------------------------------------------------------- operators --

Operator<OfFlr> ops::filtered_lrelu{
    .name = "lltm_jit::filtered_lrelu",
    .kernel = flat<kernel>,
    .formula = flat<formula>,
    .autograd = flat<autograd>,
};

Operator<OfFlrForward> ops::filtered_lrelu_forward{
    .name = "lltm_jit::filtered_lrelu_forward",
    .kernel = flat<filtered_lrelu_forward_kernel>,
    .formula = flat<filtered_lrelu_forward_formula>,
    .autograd = flat<forward_autograd>,
};

Operator<OfFlrLinear> ops::filtered_lrelu_linear{
    .name = "lltm_jit::filtered_lrelu_linear",
    .kernel = flat<filtered_lrelu_linear_kernel>,
    .formula = flat<filtered_lrelu_linear_formula>,
    .autograd = flat<linear_autograd>,
};

}  // namespace lltm_jit
