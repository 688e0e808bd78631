// bias_act and fused_bias_act: argument checks, derivatives, autocast. The maths is in kernels.h,
// the CPU's and CUDA's code in kernels.cpp, the formula in formula.cpp.
#include "stylegan/bias_act/operators.h"

#include <cmath>

#include "core/host/autograd.h"
#include "core/host/checks.h"
#include "core/host/formula.h"
#include "core/types/cpu.h"

// Included, not compiled apart: it needs the same headers, which take half of its compile time.
#include "stylegan/bias_act/formula.cpp"

namespace lltm_jit {

// -------------------------------------------------------------------------------------- checks --

int64_t bias_dim(const BiasActKind& kind, const Tensor& x) {
  return kind.dim < 0 ? kind.dim + x.dim() : kind.dim;
}

Clamp rounded_clamp(const BiasActKind& kind, at::ScalarType dtype) {
  if (!kind.clamp) return kind.clamp;
  double rounded = 0;
  dispatch_floating(floating_type(dtype),
                    [&](auto number) { rounded = static_cast<decltype(number)>(*kind.clamp); });
  return rounded;
}

void check_bias(const char* function, const char* input_name, const Tensor& input,
                const char* bias_name, const OptionalTensor& bias, int64_t dim) {
  const Argument input_arg{function, input_name, input};
  check_floating_point(input_arg);
  if (!bias) return;
  const Argument bias_arg{function, bias_name, *bias};
  check_same_dtype(bias_arg, input_arg);
  check_same_device(bias_arg, input_arg);
  const int64_t rank = input.dim();
  TORCH_CHECK(dim >= -rank && dim < rank, function, "(): expected dim to be one of the ", rank,
              " dimensions of ", input_name, ", but got ", dim);
  check_rank(bias_arg, 1, "[channels]");
  const auto channels = input.sym_size(dim);
  if (same_shape(bias->sym_sizes(), channels)) return;  // needs no message
  const std::string shape = std::string("[") + input_name + ".shape[" + std::to_string(dim) + "]]";
  check_shape(bias_arg, channels, shape.c_str());
}

namespace {

void check_kind(const char* function, const BiasActKind& kind) {
  TORCH_CHECK(kind.act >= 1 && kind.act <= 9, function,
              "(): expected act to be a number from 1 to 9, but got ", kind.act);
  TORCH_CHECK(!kind.clamp || *kind.clamp >= 0, function,
              "(): expected clamp to be None or not negative, but got ", *kind.clamp);
}

}  // namespace

void check_bias_act(const BiasActInputs& in) {
  check_bias("bias_act", "x", in.x, "b", in.b, in.kind.dim);
  check_kind("bias_act", in.kind);
}

void check_backward(const BiasActBackwardInputs& in) {
  const char* function = "bias_act_backward";
  check_kind(function, in.kind);
  check_bias(function, "grad", in.grad, "b", in.b, in.kind.dim);
  if (in.saved) {
    check_like({function, "saved", *in.saved}, {function, "grad", in.grad}, in.grad.sym_sizes(),
               "grad.shape");
  }
  TORCH_CHECK(in.saved || (in.kind.activation() == Act::Linear && !in.kind.clamp), function,
              "(): expected saved to be a tensor, but got None");
}

namespace {

// -------------------------------------------------------------------------------------- autograd --

// Whether y gives the derivative of a line: see Note [What a derivative needs]. The smallest t
// other than 0 is the smallest number of its type; a gain of one half would round it to 0.
bool y_has_sign(const BiasActKind& kind) {
  if (kind.activation() == Act::Linear) return true;
  if (kind.activation() == Act::Lrelu && !(kind.alpha >= 0)) return false;
  return std::abs(kind.gain) > 0.5 && std::isfinite(kind.gain);
}

std::vector<Tensor> gradients(const BiasActKind& kind, const BackwardPass& pass) {
  const auto& saved = pass.saved;
  OptionalTensor of = saved.empty() ? OptionalTensor() : saved[0],
                 b = saved.size() == 2 ? as_optional(saved[1]) : std::nullopt;
  if (kind.activation() == Act::Linear && of) {
    of = below_autograd(ops::bias_act, *of, b, kind.dim, kind.act, kind.alpha, kind.gain,
                        kind.clamp);
    b = std::nullopt;
  }
  auto [grad_x, grad_b] =
      ops::bias_act_backward(pass.grads[0], of, b, kind.dim, kind.act, kind.alpha, kind.gain,
                             kind.clamp, {pass.wanted[0], pass.wanted[1]});
  return {grad_x, grad_b};
}

Tensor bias_act_autograd(const BiasActInputs& in) {
  const auto& [x, b, kind] = in;
  if (any_forward_grad(x, b)) return bias_act_formula(in);
  const bool differentiable = any_requires_grad(x, b), line = is_straight(kind.activation());
  if (differentiable && line && !y_has_sign(kind)) return bias_act_formula(in);
  const Tensor y =
      below_autograd(ops::bias_act, x, b, kind.dim, kind.act, kind.alpha, kind.gain, kind.clamp);
  if (!differentiable) return y;
  const Derivative derivative{
      "BiasActBackward", [kind = kind](const BackwardPass& pass) { return gradients(kind, pass); }};
  const Tensor& b_or_none = as_tensor(b);
  const bool linear = kind.activation() == Act::Linear;
  if (linear && !kind.clamp) {
    record(derivative, {x, b_or_none}, {y});
  } else if (linear || !line) {
    record(derivative, {x, b_or_none}, {y}, /*saved=*/{x, b_or_none});
  } else {
    record(derivative, {x, b_or_none}, {y}, /*saved=*/{}, /*saved_outputs=*/{y});
  }
  return y;
}

// grad_x of a line is linear in grad, so its derivative is the same operator; grad_b is its sum.
std::vector<Tensor> second_gradients(const BiasActKind& kind, const BackwardPass& pass) {
  const Tensor &of_grad_x = pass.grads[0], &of_grad_b = pass.grads[1];
  const Tensor &grad = pass.saved[0], &saved = pass.saved[1];
  Tensor total = of_grad_x;
  if (of_grad_b.defined()) {
    const Tensor& model = saved.defined() ? saved : grad;
    const Tensor spread = along(of_grad_b, bias_dim(kind, model), model);
    total = total.defined() ? total + spread : spread.expand_as(model);
  }
  auto [d_grad, none] =
      ops::bias_act_backward(total, as_optional(saved), std::nullopt, kind.dim, kind.act,
                             kind.alpha, kind.gain, kind.clamp, {true, false});
  return {d_grad, none};
}

BiasActGradients backward_autograd(const BiasActBackwardInputs& in) {
  const auto& [grad, saved, b, kind, mask] = in;
  const bool differentiable = any_requires_grad(grad, saved, b);
  // No published network takes second derivatives of a curve, so these need no speed.
  const bool by_torch = differentiable && !is_straight(kind.activation());
  if (by_torch || any_forward_grad(grad, saved, b)) return backward_formula(in);
  auto [grad_x, grad_b] = below_autograd(ops::bias_act_backward, grad, saved, b, kind.dim, kind.act,
                                         kind.alpha, kind.gain, kind.clamp, mask);
  if (differentiable) {
    const Derivative derivative{"BiasActSecondBackward", [kind = kind](const BackwardPass& pass) {
                                  return second_gradients(kind, pass);
                                }};
    const Tensor &saved_or_none = as_tensor(saved), &none = as_tensor(std::nullopt);
    // Without a second derivative, only the shape of grad is needed.
    record(derivative, {grad, saved_or_none}, {grad_x, grad_b},
           /*saved=*/{saved_or_none.defined() ? none : grad, saved_or_none});
  }
  return {grad_x, grad_b};
}

// -------------------------------------------------------------------------------------- autocast --

// x decides: it keeps its dtype, and b is cast to it.
OptionalTensor following(const OptionalTensor& b, const Tensor& x) {
  const bool cast = x.defined() && b && b->defined() && b->scalar_type() != x.scalar_type() &&
                    x.is_floating_point() && b->is_floating_point();
  return cast ? OptionalTensor(b->to(x.scalar_type())) : b;
}

std::tuple<Tensor, OptionalTensor, int64_t, int64_t, double, double, Clamp> autocast(
    const BiasActInputs& in) {
  const auto& [x, b, kind] = in;
  return {x, following(b, x), kind.dim, kind.act, kind.alpha, kind.gain, kind.clamp};
}

// -------------------------------------------------------------------------------- fused_bias_act --

struct FusedInputs {
  const Tensor& input;
  const OptionalTensor &bias, &refer;
  int64_t act, grad;
  double alpha, scale;
};

// fused_bias_act takes an empty tensor for an absent one.
OptionalTensor given(const OptionalTensor& tensor) {
  return tensor && tensor->defined() && tensor->sym_numel() != 0 ? tensor : std::nullopt;
}

Tensor fused_formula(const FusedInputs& in) {
  const char* function = "fused_bias_act";
  const Tensor& input = in.input;
  const OptionalTensor bias = given(in.bias);
  check_bias(function, "input", input, "bias", bias, 1);
  TORCH_CHECK(in.act == 1 || in.act == 3, function,
              "(): expected act to be 1 (linear) or 3 (leaky ReLU), but got ", in.act);
  TORCH_CHECK(in.grad >= 0 && in.grad <= 2, function, "(): expected grad to be 0, 1 or 2, but got ",
              in.grad);
  if (in.grad == 2) return result_like(input, input.new_zeros_symint(input.sym_sizes()));
  const bool of_refer = in.act == 3 && in.grad == 1;
  if (!of_refer) {
    return ops::bias_act(input, bias, 1, in.act, in.alpha, in.scale, std::nullopt);
  }
  const bool none = !in.refer || !in.refer->defined();
  TORCH_CHECK(!none, function,
              "(): expected refer to be a tensor for act 3 and grad 1, but got None");
  check_like({function, "refer", *in.refer}, {function, "input", input}, input.sym_sizes(),
             "input.shape");
  if (!bias && in.scale > 0) {  // else the kernel lacks the bias or reads a wrong sign
    return std::get<0>(ops::bias_act_backward(input, in.refer, std::nullopt, 1, in.act, in.alpha,
                                              in.scale, std::nullopt, {true, false}));
  }
  const NoAutocast guard;
  const Tensor t = bias ? widened(input) + along(widened(*bias), 1, input) : widened(input);
  const auto scaled = [&](double slope) { return t.mul(slope * in.scale); };
  return result_like(input,
                     scaled(1).where(in.refer->gt(0), scaled(in.alpha)).to(input.scalar_type()));
}

std::tuple<Tensor, OptionalTensor, OptionalTensor, int64_t, int64_t, double, double> fused_autocast(
    const FusedInputs& in) {
  return {in.input, following(in.bias, in.input), in.refer, in.act, in.grad, in.alpha, in.scale};
}

}  // namespace

// ------------------------------------------------------------------------------------- operators --

Operator<OfBiasAct> ops::bias_act{
    .name = "lltm_jit::bias_act",
    .kernel = flat<bias_act_kernel>,
    .formula = flat<bias_act_formula>,
    .autograd = flat<bias_act_autograd>,
    .autocast = flat<autocast>,
};

Operator<OfBiasActBackward> ops::bias_act_backward{
    .name = "lltm_jit::bias_act_backward",
    .kernel = flat<backward_kernel>,
    .formula = flat<backward_formula>,
    .autograd = flat<backward_autograd>,
};

Composite<OfFusedBiasAct> ops::fused_bias_act{
    .name = "lltm_jit::fused_bias_act",
    .formula = flat<fused_formula>,
    .autocast = flat<fused_autocast>,
};

}  // namespace lltm_jit
