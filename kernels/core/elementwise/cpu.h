// The CPU loops of elementwise operators.
#pragma once

#include <algorithm>

#include "core/elementwise/maths.h"
#include "core/launch/parallel.h"
#include "core/types/vectorized.h"

namespace lltm_jit {

// The same grain as torch's for elementwise operators: smaller tensors stay on the calling thread.
constexpr int64_t kElementwiseGrain = 32768;

// Loops over vectors or, for integers, over numbers, which the compiler vectorises by itself.
template <typename Op, typename scalar_t>
void elementwise_loop(const ElementwiseArgs<Op>& args) {
  using Vec = at::vec::Vectorized<opmath_t<scalar_t>>;
  constexpr bool kNumbers = std::is_integral_v<scalar_t>;
  constexpr int64_t kStep = kNumbers ? 1 : Vec::size();
  at::parallel_for(0, args.numel, kElementwiseGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kStep) {
      const int64_t n = std::min(kStep, end - i);
      std::conditional_t<kNumbers, scalar_t, Vec> in[Op::kInputs], out[Op::kOutputs];
      for (int k = 0; k < Op::kInputs; ++k) {
        const auto* input = static_cast<const scalar_t*>(args.inputs[k]) + i;
        if constexpr (kNumbers) {
          in[k] = *input;
        } else {
          in[k] = load(input, n);
        }
      }
      args.op.apply(in, out);
      for (int k = 0; k < Op::kOutputs; ++k) {
        auto* output = static_cast<scalar_t*>(args.outputs[k]) + i;
        if constexpr (kNumbers) {
          *output = out[k];
        } else {
          store(output, out[k], n);
        }
      }
    }
  });
}

template <typename Op>
void elementwise_cpu(const ElementwiseArgs<Op>& args) {
  const auto run = [&](auto number) { elementwise_loop<Op, decltype(number)>(args); };
  if constexpr (Op::kIntegers) {
    if (is_integer(args.type)) return dispatch_integer(args.type, run);
  }
  dispatch_floating(args.type, run);
}

}  // namespace lltm_jit
