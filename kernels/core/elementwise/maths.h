// Elementwise operators: their maths, and the arguments that the CPU loop and the CUDA kernel share.
//
// An operator's maths is a struct with kInputs, kOutputs and
//   template <typename T> static void apply(const T (&in)[kInputs], T (&out)[kOutputs])
// where T is the arithmetic type: a scalar, a SIMD vector, or a tensor in formulas. kIntegers says
// whether the operator takes integers, and complex numbers as pairs of real ones.
// Parameters are data members of the struct; apply() is then a const member function:
//   struct LeakyRelu { double slope; ... out[0] = where_positive(in[0], in[0], T(slope) * in[0]) }
// The host calls elementwise(op, inputs) (core/elementwise/host.h), which needs instances of the two
// functions below. core/elementwise/define.h makes differentiable operators of such structs.
#pragma once

#include <cstdint>

#include "core/launch/api.h"
#include "core/math/scalar.h"

namespace lltm_jit {

// The tensors that an operator's derivative is computed from, beside the gradient of its result.
enum class Saves : int8_t { Nothing, Inputs, Result };

inline bool is_integer(ElementType type) { return type >= ElementType::Int8; }

// Calls `function` with a number of the unsigned type of an integer's width: unsigned numbers wrap.
template <typename Function>
auto dispatch_integer(ElementType type, const Function& function) {
  switch (type) {
    case ElementType::Int8:
      return function(uint8_t{});
    case ElementType::Int16:
      return function(uint16_t{});
    case ElementType::Int32:
      return function(uint32_t{});
    default:
      return function(uint64_t{});
  }
}

template <typename Op>
struct ElementwiseArgs {
  const void* inputs[Op::kInputs];  // each [numel], dense, of `type`
  void* outputs[Op::kOutputs];      // each [numel], dense, of `type`; may be one of the inputs
  int64_t numel;
  ElementType type;
  Op op;
};

template <typename Op>
void elementwise_cpu(const ElementwiseArgs<Op>& args);

#ifdef LLTM_JIT_CUDA
// Enqueues on `stream`; numel is positive.
template <typename Op>
cudaError_t launch_elementwise(const ElementwiseArgs<Op>& args, cudaStream_t stream);
#endif

}  // namespace lltm_jit
