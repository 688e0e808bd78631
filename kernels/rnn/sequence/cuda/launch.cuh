// Launches the kernels of Note [Sequences in one launch].
#pragma once

#include "core/cuda/launch.cuh"
#include "rnn/sequence/cuda/shape.h"
#include "rnn/sequence/sequence.h"

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

}  // namespace lltm_jit
