// The CPU loops of elementwise operators.
#pragma once

#include <algorithm>

#include "core/elementwise/maths.h"
#include "core/launch/parallel.h"
#include "core/types/vectorized.h"

namespace lltm_jit {

// The same grain as torch's for elementwise operators: smaller tensors stay on the calling thread.
constexpr int64_t kElementwiseGrain = 32768;

template <typename Op, typename scalar_t>
void elementwise_loop(const ElementwiseArgs<Op>& args) {
  using Vec = at::vec::Vectorized<opmath_t<scalar_t>>;
  at::parallel_for(0, args.numel, kElementwiseGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += Vec::size()) {
      const int64_t n = std::min<int64_t>(Vec::size(), end - i);
      Vec in[Op::kInputs], out[Op::kOutputs];
      for (int k = 0; k < Op::kInputs; ++k) {
        in[k] = load(static_cast<const scalar_t*>(args.inputs[k]) + i, n);
      }
      args.op.apply(in, out);
      for (int k = 0; k < Op::kOutputs; ++k) {
        store(static_cast<scalar_t*>(args.outputs[k]) + i, out[k], n);
      }
    }
  });
}

// The compiler vectorises this loop by itself.
template <typename Op, typename integer_t>
void integer_loop(const ElementwiseArgs<Op>& args) {
  at::parallel_for(0, args.numel, kElementwiseGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      integer_t in[Op::kInputs], out[Op::kOutputs];
      for (int k = 0; k < Op::kInputs; ++k) {
        in[k] = static_cast<const integer_t*>(args.inputs[k])[i];
      }
      args.op.apply(in, out);
      for (int k = 0; k < Op::kOutputs; ++k) {
        static_cast<integer_t*>(args.outputs[k])[i] = out[k];
      }
    }
  });
}

template <typename Op>
void elementwise_cpu(const ElementwiseArgs<Op>& args) {
  if constexpr (Op::kIntegers) {
    if (is_integer(args.type)) {
      return dispatch_integer(args.type,
                              [&](auto integer) { integer_loop<Op, decltype(integer)>(args); });
    }
  }
  dispatch_floating(args.type, [&](auto scalar) { elementwise_loop<Op, decltype(scalar)>(args); });
}

}  // namespace lltm_jit
