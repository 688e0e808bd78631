#include "rnn/sequence/all_steps/products.h"

#include <algorithm>
#include <vector>

#include "core/host/autograd.h"
#include "core/host/checks.h"
#include "core/host/formula.h"
#include "core/launch/device.h"
#include "core/products/library.h"
#include "core/products/processor.h"
#include "rnn/sequence/all_steps/in_float/kernels.h"
#include "rnn/sequence/all_steps/on_cpu.h"
#include "rnn/sequence/all_steps/small/products.h"
#include "rnn/sequence/all_steps/weight_gradients.h"

namespace lltm_jit {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

#ifdef LLTM_JIT_CUDA
// Vectors, the rows of A or the columns of B, in the form of in_float/kernels.h.
FloatFactor float_factor(const Tensor& vectors) {
  const bool depth_inside = vectors.stride(1) == 1;
  return {.numbers = static_cast<const float*>(vectors.const_data_ptr()),
          .vectors = vectors.size(0),
          .depth = vectors.size(1),
          .row_stride = vectors.stride(depth_inside ? 0 : 1),
          .depth_inside = depth_inside};
}

// For fewer multiplications, or results that fill half of a tile, the kernels around a product take as long as it
// saves. With TF32 the library needs none.
constexpr int64_t kManyProducts = int64_t(1) << 29, kFewColumns = 64;

bool pays_in_parts(const Tensor& a, const Tensor& b, bool tf32) {
  const int64_t columns = b.size(1);
  if (tf32 || a.scalar_type() != at::kFloat || columns <= kFewColumns ||
      a.size(0) * a.size(1) * columns < kManyProducts) {
    return false;
  }
  const auto one_stride_is_1 = [](const Tensor& t) { return t.stride(0) == 1 || t.stride(1) == 1; };
  if (!one_stride_is_1(a) || !one_stride_is_1(b)) return false;
  bool runs = false;
  C10_CUDA_CHECK(float_product_runs(float_factor(a), float_factor(b.t()), &runs));
  return runs;
}

// results = A B, or results += A B, plus `initial` in each row.
void multiply_parts(const Tensor& a, const Tensor& b, const float* initial, bool adds,
                    const Tensor& results) {
  const int64_t rows = a.size(0), columns = b.size(1);
  FloatProductArgs args{.a = float_factor(a),
                        .b = float_factor(b.t()),
                        .initial = initial,
                        .adds = adds,
                        .results = static_cast<float*>(results.mutable_data_ptr())};
  C10_CUDA_CHECK(float_product_splits(args.a, args.b, &args.splits));
  const Tensor magnitudes = a.new_zeros({rows + columns}, at::kInt);
  const Tensor parts = a.new_empty({float_parts_bytes(args.b)}, at::kByte);
  const Tensor sums = args.splits > 1 ? a.new_empty({args.splits, rows, columns}) : Tensor();
  args.magnitudes = static_cast<uint32_t*>(magnitudes.mutable_data_ptr());
  args.b_parts = parts.mutable_data_ptr();
  args.sums = sums.defined() ? static_cast<float*>(sums.mutable_data_ptr()) : nullptr;
  C10_CUDA_CHECK(launch_float_product(args, c10::cuda::getCurrentCUDAStream()));
}

Tensor multiply_in_parts(const Tensor& a, const Tensor& b, const OptionalTensor& initial) {
  // Splits at most this many numbers of B at a time, however long the sequence.
  constexpr int64_t kNumbersAtOnce = int64_t(1) << 25;
  const Tensor c = empty({a.sym_size(0), b.sym_size(1)}, a);
  const OptionalTensor first = initial ? OptionalTensor(initial->clone()) : std::nullopt;
  const auto* first_data = first ? static_cast<const float*>(first->const_data_ptr()) : nullptr;
  const int64_t depth = a.size(1);
  const int64_t piece = std::max(kNumbersAtOnce / b.size(1) / 64 * 64, int64_t(64));
  for (int64_t from = 0; from < depth; from += piece) {
    const int64_t count = std::min(piece, depth - from);
    multiply_parts(a.narrow(1, from, count), b.narrow(0, from, count),
                   from == 0 ? first_data : nullptr, /*adds=*/from > 0, c);
  }
  return c;
}
#endif

}  // namespace

bool multiplies_as_floats(const Tensor& factor) {
  return factor.is_cpu() && !multiplies_in_hardware(floating_type(factor.scalar_type()));
}

Tensor multiply_steps(const Tensor& a, const Tensor& b, bool tf32, const OptionalTensor& initial) {
  if (multiplies_as_floats(a)) {
    const auto first = initial ? OptionalTensor(initial->to(at::kFloat)) : std::nullopt;
    return multiply_steps(a.to(at::kFloat), b.to(at::kFloat), tf32, first).to(a.scalar_type());
  }
  if (a.is_cpu() && a.size(1) > 0) {
    if (a.scalar_type() == at::kFloat) return multiply_on_cpu<float>(a, b, initial);
    if (a.scalar_type() == at::kDouble) return multiply_on_cpu<double>(a, b, initial);
  }
  if (const Tensor small = multiply_small(a, b, initial); small.defined()) return small;
#ifdef LLTM_JIT_CUDA
  if (a.is_cuda() && pays_in_parts(a, b, tf32)) return multiply_in_parts(a, b, initial);
#endif
  return product_of_library(a, b, tf32, initial);
}

namespace {

// Whether the library multiplies all blocks in one batch, as it does on a GPU.
bool in_one_batch(const Tensor& a, const Tensor& b, bool tf32) {
#ifdef LLTM_JIT_CUDA
  if (a.is_cuda()) return !pays_in_parts(a.select(0, 0).select(0, 0), b.select(0, 0), tf32);
#endif
  return false;
}

}  // namespace

Tensor multiply_heads(const Tensor& grads, const Tensor& old, int64_t heads, bool tf32) {
  if (multiplies_as_floats(grads)) {
    return multiply_heads(grads.to(at::kFloat), old.to(at::kFloat), heads, tf32)
        .to(grads.scalar_type());
  }
  const int64_t rows = old.size(0), units = old.size(1) / heads;
  const int64_t gates = grads.size(1) / heads / units;
  // [heads, gates, units, rows] and [heads, rows, units]
  const Tensor a = grads.unflatten(1, {gates, heads, units}).permute({2, 1, 3, 0});
  const Tensor b = old.unflatten(1, {heads, units}).transpose(0, 1);
  const Tensor result = empty({heads, gates * units, units}, grads);
  const Tensor blocks = result.view({heads, gates, units, units});
  if (rows == 0) {
    result.zero_();
  } else if (a.is_cpu() && a.scalar_type() == at::kFloat) {
    multiply_blocks_on_cpu<float>(a, b, blocks);
  } else if (a.is_cpu() && a.scalar_type() == at::kDouble) {
    multiply_blocks_on_cpu<double>(a, b, blocks);
  } else if (in_one_batch(a, b, tf32)) {
    // In `grads`, a head's gates are as far apart as the units of all heads. So the gates come
    // first in a batch, which needs a copy of `old` for each gate.
    const Tensor each = b.expand({gates, heads, rows, units}).reshape({-1, rows, units});
    Tensor products = empty({gates * heads, units, units}, grads);
    multiply_by_library(a.transpose(0, 1).flatten(0, 1), each, tf32, products);
    blocks.copy_(products.view({gates, heads, units, units}).transpose(0, 1));
  } else {
    for (int64_t i = 0; i < heads * gates; ++i) {
      const int64_t head = i / gates, gate = i % gates;
      blocks.select(0, head).select(0, gate).copy_(
          multiply_steps(a.select(0, head).select(0, gate), b.select(0, head), tf32));
    }
  }
  return result;
}

// The part of all steps' gates that comes from the input: checks, products, formula and derivative.
namespace {

constexpr const char *kForward = "input_gates", *kBackward = "input_gates_backward";

void check_operands(const char* function, const Tensor& input, const Tensor& weight_ih) {
  const Argument input_arg{function, "input", input};
  const Argument weight_arg{function, "weight_ih", weight_ih};
  check_floating_point(input_arg);
  check_same_dtype(weight_arg, input_arg);
  check_same_device(weight_arg, input_arg);
  check_rank(input_arg, 3, "[steps, batch_size, input_size]");
  check_rank(weight_arg, 2, "[gates*hidden_size, input_size]");
  check_shape(weight_arg, {weight_ih.sym_size(0), input.sym_size(2)},
              "[gates*hidden_size, input_size]");
}

void check_backward(const Tensor& grad_gates, const Tensor& input, const Tensor& weight_ih) {
  check_operands(kBackward, input, weight_ih);
  check_like({kBackward, "grad_gates", grad_gates}, {kBackward, "input", input},
             {input.sym_size(0), input.sym_size(1), weight_ih.sym_size(0)},
             "[steps, batch_size, gates*hidden_size]");
}

// The tensor as a matrix: a row for each step and row of the batch.
Tensor matrix(const Tensor& tensor) { return tensor.flatten(0, 1); }

Tensor kernel(const Tensor& input, const Tensor& weight_ih, const OptionalTensor& bias, bool tf32) {
  check_input_gates(input, weight_ih, bias);
  const KernelGuard guard(input);
  if (input.is_meta()) {
    return empty({input.sym_size(0), input.sym_size(1), weight_ih.sym_size(0)}, input);
  }
  return multiply_steps(matrix(input), weight_ih.t(), tf32, bias)
      .view({input.size(0), input.size(1), weight_ih.size(0)});
}

InputGradients backward_kernel(const Tensor& grad_gates, const Tensor& input,
                               const Tensor& weight_ih, std::array<bool, 3> mask, bool tf32) {
  check_backward(grad_gates, input, weight_ih);
  const KernelGuard guard(input);
  InputGradients grads;
  auto& [grad_input, grad_weight, grad_bias] = grads;
  if (input.is_meta()) {
    if (mask[0]) grad_input = empty(input.sym_sizes(), input);
    if (mask[1]) grad_weight = empty(weight_ih.sym_sizes(), input);
    if (mask[2]) grad_bias = empty({weight_ih.sym_size(0)}, input);
    return grads;
  }
  const Tensor grad = matrix(grad_gates);
  const Tensor rows = mask[1] ? matrix(input) : Tensor();  // may be a copy
#ifdef LLTM_JIT_CUDA
  if (mask[0] && mask[1]) {
    auto of_input = small_product(grad, weight_ih), of_weight = small_product(grad.t(), rows);
    if (of_input && of_weight && !of_weight->a.depth_inside) {
      grad_input = empty(input.sym_sizes(), input);
      grad_weight = empty(weight_ih.sym_sizes(), input);
      of_input->results = grad_input.mutable_data_ptr();
      of_weight->results = grad_weight.mutable_data_ptr();
      if (mask[2]) {
        grad_bias = empty({weight_ih.size(0)}, input);
        of_weight->sums = grad_bias.mutable_data_ptr();
      }
      multiply_small({{*of_input, *of_weight}, 2});
      return grads;
    }
  }
#endif
  if (mask[0]) grad_input = multiply_steps(grad, weight_ih, tf32).view(input.sizes());
  if (mask[1]) {
    grad_weight = multiply_small(grad.t(), rows, std::nullopt, mask[2] ? &grad_bias : nullptr);
  }
  if (mask[1] && !grad_weight.defined()) grad_weight = multiply_steps(grad.t(), rows, tf32);
  if (mask[2] && !grad_bias.defined()) grad_bias = lltm_jit::grad_bias(grad_gates);
  return grads;
}

Tensor formula(const Tensor& input, const Tensor& weight_ih, const OptionalTensor& bias,
               bool /*tf32*/) {
  check_input_gates(input, weight_ih, bias);
  const NoAutocast guard;
  const Tensor gates = input.matmul(weight_ih.t());
  return bias ? gates + *bias : gates;
}

InputGradients backward_formula(const Tensor& grad_gates, const Tensor& input,
                                const Tensor& weight_ih, std::array<bool, 3> mask, bool /*tf32*/) {
  check_backward(grad_gates, input, weight_ih);
  const NoAutocast guard;
  const Tensor grad = matrix(grad_gates);
  return {mask[0] ? grad_gates.matmul(weight_ih) : Tensor(),
          mask[1] ? grad.t().mm(matrix(input)) : Tensor(), mask[2] ? grad.sum(0) : Tensor()};
}

std::vector<Tensor> gradients(const BackwardPass& pass, bool tf32) {
  auto [input, weight_ih, bias] =
      ops::input_gates_backward(pass.grads[0], pass.saved[0], pass.saved[1],
                                {pass.wanted[0], pass.wanted[1], pass.wanted[2]}, tf32);
  return {input, weight_ih, bias};
}

Tensor autograd(const Tensor& input, const Tensor& weight_ih, const OptionalTensor& bias,
                bool tf32) {
  if (any_forward_grad(input, weight_ih, bias)) return formula(input, weight_ih, bias, tf32);
  const Tensor gates = below_autograd(ops::input_gates, input, weight_ih, bias, tf32);
  if (any_requires_grad(input, weight_ih, bias)) {
    const auto derivative = [tf32](const BackwardPass& pass) { return gradients(pass, tf32); };
    record({"InputGatesBackward", derivative}, {input, weight_ih, as_tensor(bias)}, {gates},
           /*saved=*/{input, weight_ih});
  }
  return gates;
}

}  // namespace

void check_input_gates(const Tensor& input, const Tensor& weight_ih, const OptionalTensor& bias) {
  check_operands(kForward, input, weight_ih);
  if (!bias) return;
  check_like({kForward, "bias", *bias}, {kForward, "input", input}, {weight_ih.sym_size(0)},
             "[gates*hidden_size]");
}

Operator<Tensor(const Tensor&, const Tensor&, const OptionalTensor&, bool)> ops::input_gates{
    .name = "lltm_jit::input_gates",
    .kernel = kernel,
    .formula = formula,
    .autograd = autograd,
};

Operator<InputGradients(const Tensor&, const Tensor&, const Tensor&, std::array<bool, 3>, bool)>
    ops::input_gates_backward{
        .name = "lltm_jit::input_gates_backward",
        .kernel = backward_kernel,
        .formula = backward_formula,
        .autograd = ByFormula<ops::input_gates_backward>::autograd,
    };

}  // namespace lltm_jit
