// The CUDA kernel of elementwise operators. Memory bounds its speed, so each access has 16 bytes,
// and enough threads run that an SM has over 32 KB of loads in flight.
#pragma once

#include "core/elementwise/maths.h"
#include "core/launch/launch.cuh"

namespace lltm_jit {

template <typename Op, typename scalar_t, int kVec>
LLTM_JIT_DEVICE void elementwise_apply(const ElementwiseArgs<Op>& args, int64_t first) {
  using opmath = opmath_t<scalar_t>;
  opmath in[Op::kInputs][kVec], out[Op::kOutputs][kVec];
  LLTM_JIT_UNROLLED(k, Op::kInputs) {
    load_pack<kVec>(static_cast<const scalar_t*>(args.inputs[k]) + first, in[k]);
  }
  LLTM_JIT_UNROLLED(v, kVec) {
    opmath x[Op::kInputs], y[Op::kOutputs];
    LLTM_JIT_UNROLLED(k, Op::kInputs) x[k] = in[k][v];
    args.op.apply(x, y);
    LLTM_JIT_UNROLLED(k, Op::kOutputs) out[k][v] = y[k];
  }
  LLTM_JIT_UNROLLED(k, Op::kOutputs) {
    store_pack<kVec>(static_cast<scalar_t*>(args.outputs[k]) + first, out[k]);
  }
}

// Computes the first packs * kVec elements a pack at a time, the others one by one.
template <typename Op, typename scalar_t, int kVec>
__global__ void elementwise_kernel(ElementwiseArgs<Op> args, int64_t packs) {
  wait_for_predecessor();
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t p = thread; p < packs; p += stride) {
    elementwise_apply<Op, scalar_t, kVec>(args, p * kVec);
  }
  for (int64_t i = packs * kVec + thread; i < args.numel; i += stride) {
    elementwise_apply<Op, scalar_t, 1>(args, i);
  }
}

// The part of the launch that element types share, so that it is compiled once and not for each type.
template <typename Op>
cudaError_t launch_elementwise_kernel(void (*kernel)(ElementwiseArgs<Op>, int64_t), int vec,
                                      const ElementwiseArgs<Op>& args, cudaStream_t stream) {
  bool vectorize = true;
  for (const void* pointer : args.inputs) vectorize &= aligned(kAccessBytes, pointer);
  for (const void* pointer : args.outputs) vectorize &= aligned(kAccessBytes, pointer);
  const int64_t packs = vectorize ? args.numel / vec : 0;
  const int64_t rest = args.numel - packs * vec;
  return launch(kernel, blocks_for(max(packs, rest)), kThreads, 0, stream, args, packs);
}

template <typename Op, typename scalar_t>
cudaError_t launch_elementwise_as(const ElementwiseArgs<Op>& args, cudaStream_t stream) {
  constexpr int kVec = kAccessBytes / sizeof(scalar_t);
  return launch_elementwise_kernel(elementwise_kernel<Op, scalar_t, kVec>, kVec, args, stream);
}

template <typename Op>
cudaError_t launch_elementwise(const ElementwiseArgs<Op>& args, cudaStream_t stream) {
  const auto run = [&](auto number) {
    return launch_elementwise_as<Op, decltype(number)>(args, stream);
  };
  if constexpr (Op::kIntegers) {
    if (is_integer(args.type)) return dispatch_integer(args.type, run);
  }
  return dispatch_floating(args.type, run);
}

}  // namespace lltm_jit
