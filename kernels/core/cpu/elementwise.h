// The CPU loops of elementwise operators.
#pragma once

#include <algorithm>

#include "core/cpu/parallel.h"
#include "core/cpu/vectorized.h"
#include "core/math/elementwise.h"

namespace lltm_jit {

// torch's own grain for elementwise work: smaller tensors stay on the calling thread.
constexpr int64_t kElementwiseGrain = 32768;

// Elements [first, first + n), at most a vector's lanes; apply(in, out) is the operator's.
template <typename Op, typename scalar_t, typename Apply>
inline void elementwise_step(const ElementwiseArgs<Op>& args, int64_t first, int64_t n,
                             const Apply& apply) {
  at::vec::Vectorized<opmath_t<scalar_t>> in[Op::kInputs], out[Op::kOutputs];
  for (int k = 0; k < Op::kInputs; ++k) {
    in[k] = load(static_cast<const scalar_t*>(args.inputs[k]) + first, n);
  }
  apply(in, out);
  for (int k = 0; k < Op::kOutputs; ++k) {
    store(static_cast<scalar_t*>(args.outputs[k]) + first, out[k], n);
  }
}

template <typename Op, typename scalar_t>
void elementwise_loop(const ElementwiseArgs<Op>& args) {
  constexpr int64_t kLanes = at::vec::Vectorized<opmath_t<scalar_t>>::size();
  at::parallel_for(0, args.numel, kElementwiseGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kLanes) {
      elementwise_step<Op, scalar_t>(args, i, std::min(kLanes, end - i),
                                     [&](const auto& in, auto& out) { args.op.apply(in, out); });
    }
  });
}

// Runs of elements whose channels are one (inner > 1) or each the next (inner == 1).
template <typename Op, typename scalar_t>
void channels_loop(const ChannelArgs<Op>& args) {
  using Vec = at::vec::Vectorized<opmath_t<scalar_t>>;
  const bool last = args.inner == 1;
  const int64_t length = last ? args.channels : args.inner;
  const auto* values = static_cast<const scalar_t*>(args.values);
  at::parallel_for(0, args.numel, kElementwiseGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end;) {
      const int64_t place = i % length, run_end = std::min(end, i + length - place);
      const scalar_t* value = last ? values + place : values + i / length % args.channels;
      for (const int64_t run = i; i < run_end; i += Vec::size()) {
        const int64_t n = std::min<int64_t>(Vec::size(), run_end - i);
        const Vec channel =
            last ? load(value + (i - run), n) : Vec(static_cast<opmath_t<scalar_t>>(*value));
        elementwise_step<Op, scalar_t>(
            args, i, n, [&](const auto& in, auto& out) { args.op.apply(in, channel, out); });
      }
      i = run_end;
    }
  });
}

// Integers, unsigned so that they wrap; the compiler vectorises this loop by itself.
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
    switch (args.type) {
      case ElementType::Int8:
        return integer_loop<Op, uint8_t>(args);
      case ElementType::Int16:
        return integer_loop<Op, uint16_t>(args);
      case ElementType::Int32:
        return integer_loop<Op, uint32_t>(args);
      case ElementType::Int64:
        return integer_loop<Op, uint64_t>(args);
      default:
        break;
    }
  }
  dispatch_floating(args.type, [&](auto scalar) { elementwise_loop<Op, decltype(scalar)>(args); });
}

template <typename Op>
void elementwise_cpu_channels(const ChannelArgs<Op>& args) {
  dispatch_floating(args.type, [&](auto scalar) { channels_loop<Op, decltype(scalar)>(args); });
}

}  // namespace lltm_jit
