// Makes a differentiable operator from the maths of an elementwise function: checks, kernels,
// formulas and autograd. Beside the members that core/elementwise/maths.h asks for, the struct has
//   kNames     the inputs' names, for messages
//   kSaves     the tensors that its derivative is computed from
//   Gradient   a struct of the same kind: from the result's gradient and what is saved, the inputs' gradients
#pragma once

#include "core/elementwise/declare.h"
#include "core/elementwise/host.h"
#include "core/host/autograd.h"
#include "core/host/tensor_value.h"

namespace lltm_jit {

// The operators of a struct, and their names: LLTM_JIT_DEFINE_ELEMENTWISE specialises it.
template <typename Op>
struct Defined;

enum class Dtypes { Floating, FloatingOrComplex, Numeric };

// Checks the dtype of tensor `leader`, and that the others have its shape, dtype and device.
inline void check_alike(const char* function, const char* const* names, TensorRefs tensors,
                        size_t leader, Dtypes dtypes) {
  const Argument first{function, names[leader], tensors.begin()[leader]};
  const auto dtype = [&] { return first.tensor.scalar_type(); };
  dtypes == Dtypes::Floating ? check_floating_point(first) : check_numeric(first);
  TORCH_CHECK(dtypes == Dtypes::Numeric || !c10::isIntegralType(dtype(), /*includeBool=*/false),
              function, "(): expected ", first.name,
              " to have a floating-point or complex dtype, but got ", dtype());
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (i == leader) continue;
    const Argument other{function, names[i], tensors.begin()[i]};
    const std::string shape = std::string(first.name) + ".shape";
    check_like(other, first, first.tensor.sym_sizes(), shape.c_str());
  }
}

// Computes an operator's results with operations of torch.
template <typename Op>
std::array<at::Tensor, Op::kOutputs> by_formula(
    const std::array<TensorValue, Op::kInputs>& inputs) {
  const NoAutocast no_autocast;
  // torch cannot compute in some unsigned dtypes. Integers wrap, so long integers give the same bits.
  const auto dtype = inputs[0].is_constant() ? at::kFloat : inputs[0].tensor.scalar_type();
  const bool as_long = c10::isBarebonesUnsignedType(dtype);
  TensorValue in[Op::kInputs], out[Op::kOutputs];
  for (size_t i = 0; i < Op::kInputs; ++i) {
    in[i] = as_long ? TensorValue(inputs[i].tensor.to(at::kLong)) : inputs[i];
  }
  Op::apply(in, out);
  std::array<at::Tensor, Op::kOutputs> results;
  for (size_t i = 0; i < Op::kOutputs; ++i) {
    results[i] = as_long ? out[i].tensor.to(dtype) : out[i].tensor;
  }
  return results;
}

template <typename Op, typename Function>
struct Gradient;
template <typename Op, typename Result, typename... Tensors>
struct Gradient<Op, Result(const at::Tensor&, Tensors...)> {
  using Maths = typename Op::Gradient;
  static_assert(Maths::kInputs == 1 + sizeof...(Tensors) && Maths::kOutputs == Op::kInputs,
                "the numbers in operators.h are not those of the maths");

  static void check(const at::Tensor& grad, Tensors... saved) {
    check_alike(Defined<Op>::kBackward, Maths::kNames, {grad, saved...}, sizeof...(Tensors) > 0,
                Op::kIntegers ? Dtypes::FloatingOrComplex : Dtypes::Floating);
  }

  static Result kernel(const at::Tensor& grad, Tensors... saved) {
    check(grad, saved...);
    return result(elementwise(Maths{}, {grad, saved...}));
  }

  static Result formula(const at::Tensor& grad, Tensors... saved) {
    check(grad, saved...);
    return result(by_formula<Maths>({grad, saved...}));
  }

  static std::vector<at::Tensor> of_pass(const BackwardPass& pass) {
    return of_pass(pass, std::index_sequence_for<Tensors...>());
  }

 private:
  static Result result(const std::array<at::Tensor, Op::kInputs>& grads) {
    return std::apply([](const auto&... each) { return Result(each...); }, grads);
  }

  template <size_t... k>
  static std::vector<at::Tensor> of_pass(const BackwardPass& pass, std::index_sequence<k...>) {
    // A tuple, also of a single gradient.
    const std::tuple grads(Defined<Op>::backward(pass.grads[0], pass.saved[k]...));
    return std::apply([](const auto&... each) { return std::vector<at::Tensor>{each...}; }, grads);
  }
};

template <typename Op, typename Function>
struct Forward;
template <typename Op, typename... Tensors>
struct Forward<Op, at::Tensor(Tensors...)> {
  static_assert(Op::kInputs == sizeof...(Tensors) && Op::kOutputs == 1,
                "the numbers in operators.h are not those of the maths");

  static void check(Tensors... inputs) {
    check_alike(Defined<Op>::kName, Op::kNames, {inputs...}, 0,
                Op::kIntegers ? Dtypes::Numeric : Dtypes::Floating);
  }

  static at::Tensor kernel(Tensors... inputs) {
    check(inputs...);
    return elementwise(Op{}, {inputs...})[0];
  }

  static at::Tensor formula(Tensors... inputs) {
    check(inputs...);
    return by_formula<Op>({inputs...})[0];
  }

  static at::Tensor autograd(Tensors... inputs) {
    if (any_forward_grad(inputs...)) return formula(inputs...);
    const at::Tensor result = below_autograd(Defined<Op>::forward, inputs...);
    if (!any_requires_grad(inputs...)) return result;
    const Derivative derivative{Defined<Op>::kNode, Defined<Op>::gradients};
    if constexpr (Op::kSaves == Saves::Inputs) {
      record(derivative, {inputs...}, {result}, /*saved=*/{inputs...});
    } else if constexpr (Op::kSaves == Saves::Result) {
      record(derivative, {inputs...}, {result}, /*saved=*/{}, /*saved_outputs=*/{result});
    } else {
      record(derivative, {inputs...}, {result});
    }
    return result;
  }
};

// The derivative of an operator with one input. It is differentiable, because its parts are.
template <typename Op>
at::Tensor derivative_formula(const at::Tensor& z) {
  check_floating_point({Defined<Op>::kDerivative, "z", z});
  const at::Tensor saved = Op::kSaves == Saves::Inputs ? z : Defined<Op>::forward(z);
  return by_formula<typename Op::Gradient>({TensorValue(1), saved})[0];
}

}  // namespace lltm_jit

#define LLTM_JIT_DEFINE_ELEMENTWISE(op, Op, inputs, saved)                        \
  LLTM_JIT_DECLARE_ELEMENTWISE(op, Op, inputs, saved)                             \
  template <>                                                                     \
  struct Defined<Op> {                                                            \
    static constexpr char kName[] = #op, kBackward[] = #op "_backward";           \
    static constexpr char kDerivative[] = "d_" #op, kNode[] = #Op "Backward";     \
    static constexpr auto& forward = ops::op;                                     \
    static constexpr auto& backward = ops::op##_backward;                         \
    static std::vector<at::Tensor> gradients(const BackwardPass& pass) {          \
      return Gradient<Op, decltype(ops::op##_backward)::Function>::of_pass(pass); \
    }                                                                             \
  };                                                                              \
  decltype(ops::op) ops::op{                                                      \
      .name = "lltm_jit::" #op,                                                   \
      .kernel = Forward<Op, decltype(ops::op)::Function>::kernel,                 \
      .formula = Forward<Op, decltype(ops::op)::Function>::formula,               \
      .autograd = Forward<Op, decltype(ops::op)::Function>::autograd,             \
  };                                                                              \
  decltype(ops::op##_backward) ops::op##_backward{                                \
      .name = "lltm_jit::" #op "_backward",                                       \
      .kernel = Gradient<Op, decltype(ops::op##_backward)::Function>::kernel,     \
      .formula = Gradient<Op, decltype(ops::op##_backward)::Function>::formula,   \
      .autograd = ByFormula<ops::op##_backward>::autograd,                        \
  };
#define LLTM_JIT_DEFINE_DERIVATIVE(op, Op, inputs, saved) \
  LLTM_JIT_DECLARE_DERIVATIVE(op, Op, inputs, saved)      \
  ElementwiseDerivative ops::d_##op{.name = "lltm_jit::d_" #op, .formula = derivative_formula<Op>};
