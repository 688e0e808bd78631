// Elementwise operators: arguments shared by the CPU loop and the CUDA kernel.
//
// An operator's maths is a struct with kInputs, kOutputs and
//   template <typename T> static void apply(const T (&in)[kInputs], T (&out)[kOutputs])
// where T is the arithmetic type, scalar or SIMD vector.
#pragma once

#include <cstdint>

#include "core/cuda_api.h"
#include "core/scalar.h"

namespace lltm_jit {

template <typename Op>
struct ElementwiseArgs {
  const void* inputs[Op::kInputs];  // each [numel], dense, of `type`
  void* outputs[Op::kOutputs];      // each [numel], dense, of `type`; may be one of the inputs
  int64_t numel;
  ElementType type;
};

}  // namespace lltm_jit
