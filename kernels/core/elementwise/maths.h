// Elementwise operators: their maths, and the arguments that CPU loop and CUDA kernel share.
//
// An operator's maths is a struct with kInputs, kOutputs and
//   template <typename T> static void apply(const T (&in)[kInputs], T (&out)[kOutputs])
// where T is the arithmetic type: a scalar, a SIMD vector, or a tensor where torch computes. kIntegers
// says whether it takes integers, and complex numbers as two real ones each.
// Parameters are the struct's data members, and apply() then a const member function:
//   struct LeakyRelu { double slope; ... out[0] = where_positive(in[0], in[0], T(slope) * in[0]) }
// The host calls elementwise<Op>() (core/elementwise/host.h), for which the two functions below are
// instantiated. core/elementwise/define.h makes operators with derivatives of such structs.
#pragma once

#include <cstdint>

#include "core/launch/api.h"
#include "core/math/scalar.h"

namespace lltm_jit {

// What the derivative of an operator is computed from, beside the gradient of its result.
enum class Saves : int8_t { Nothing, Inputs, Result };

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
// Enqueue on `stream`; numel is positive.
template <typename Op>
cudaError_t launch_elementwise(const ElementwiseArgs<Op>& args, cudaStream_t stream);
#endif

}  // namespace lltm_jit
