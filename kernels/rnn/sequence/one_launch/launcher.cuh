// Launches the kernels of Note [Sequences in one launch].
#pragma once

#include "core/launch/launch.cuh"
#include "rnn/sequence/kernels.h"
#include "rnn/sequence/one_launch/shape.h"

namespace lltm_jit {

// Whether the code that runs here has what a kernel of a shape needs.
template <typename Shape, typename Kernel>
cudaError_t check_code(Kernel* kernel) {
  int architecture = 0;
  const cudaError_t error = code_architecture(kernel, &architecture);
  if (error != cudaSuccess) return error;
  return architecture < (Shape::kShape.blocks > 1 ? 90 : 80) ? cudaErrorNotSupported : cudaSuccess;
}

// Lets a kernel's clusters be of 16 blocks, which not all chips can.
template <typename Kernel>
cudaError_t allow_large_clusters(Kernel* kernel) {
  const auto ask = [&](int, bool* allowed) {
    *allowed = true;
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  };
  bool allowed = false;
  return ask_once(ask, &allowed);
}

// How many blocks of a kernel run at once, one an SM. Asked once for each kernel, a variable of which each
// variant's library has its own.
template <typename Shape, typename Kernel>
cudaError_t blocks_at_once(Kernel* kernel, int shared_bytes, int* blocks) {
  const auto ask = [&](int device, int* value) {
    int of_sm = 0, sms = 0;
    cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &of_sm, kernel, Shape::kShape.threads(), shared_bytes);
    if (error == cudaSuccess) {
      error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    }
    *value = of_sm > 0 ? sms : 0;
    return error;
  };
  return ask_once(ask, blocks);
}

// Launches a kernel of Note [The whole grid]. cudaErrorNotSupported: the blocks cannot all run at once here.
template <typename Shape, typename Args>
cudaError_t launch_grid(void (*kernel)(Args), int shared_bytes, int arrays, const Args& args,
                        cudaStream_t stream) {
  constexpr SequenceShape kShape = Shape::kShape;
  cudaError_t error = check_code<Shape>(kernel);
  if (error == cudaSuccess) error = allow_all_shared_memory(kernel);
  int at_once = 0;
  if (error == cudaSuccess) error = blocks_at_once<Shape>(kernel, shared_bytes, &at_once);
  if (error != cudaSuccess) return error;
  if (at_once < kShape.blocks) return cudaErrorNotSupported;
  error = cudaMemsetAsync(args.workspace, 0xff,
                          kShape.operands_bytes(args.steps, args.batch_size, arrays), stream);
  if (error != cudaSuccess) return error;
  const int64_t sets = ceil_div(args.batch_size, kShape.rows);
  cudaLaunchAttribute cooperative{};
  cooperative.id = cudaLaunchAttributeCooperative;
  cooperative.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim =
      static_cast<unsigned>(kShape.blocks * min(sets, int64_t(at_once / kShape.blocks)));
  config.blockDim = kShape.threads();
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &cooperative;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, args);
}

// cudaErrorNotSupported: the code is for chips that are too old for the shape.
template <typename Shape, typename Args>
cudaError_t launch_clusters(void (*kernel)(Args), int shared_bytes, const Args& args,
                            cudaStream_t stream) {
  constexpr SequenceShape kShape = Shape::kShape;
  cudaError_t error = check_code<Shape>(kernel);
  if constexpr (kShape.blocks > 8) {
    if (error == cudaSuccess) error = allow_large_clusters(kernel);
  }
  if (error != cudaSuccess) return error;
  const int64_t clusters = ceil_div(args.batch_size, kShape.rows);
  return launch<kShape.blocks>(kernel, static_cast<unsigned>(clusters * kShape.blocks),
                               kShape.threads(), shared_bytes, stream, args);
}

// arrays: of h's size, that the blocks exchange.
template <typename Shape, typename Args>
cudaError_t launch_sets(void (*kernel)(Args), int shared_bytes, int arrays, const Args& args,
                        cudaStream_t stream) {
  if constexpr (Shape::kShape.grid) {
    return launch_grid<Shape>(kernel, shared_bytes, arrays, args, stream);
  } else {
    return launch_clusters<Shape>(kernel, shared_bytes, args, stream);
  }
}

}  // namespace lltm_jit
