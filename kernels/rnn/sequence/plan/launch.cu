#include "core/launch/fast_divide.cuh"
#include "core/launch/launch.cuh"
#include "rnn/sequence/plan/launch.h"

namespace lltm_jit {
namespace {

// A kernel that may have all shared memory of the current device.
struct ReadyKernel {
  const void* kernel;
  int device, architecture;  // of its code
  int blocks;                // of a grid, that run at once, one an SM
};

cudaError_t make_ready(const SequenceShape* shape, int shared_bytes, ReadyKernel* ready) {
  cudaFuncAttributes attributes{};
  cudaError_t error = cudaFuncGetAttributes(&attributes, ready->kernel);
  ready->architecture = attributes.ptxVersion;
  if (error != cudaSuccess || !shape) return error;
  error = allow_all_shared_memory(ready->kernel);
  if (error != cudaSuccess) return error;
  if (!shape->grid) {
    if (shape->blocks <= 8 || ready->architecture < 90) return cudaSuccess;
    return cudaFuncSetAttribute(ready->kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  }
  int of_sm = 0, sms = 0;
  error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&of_sm, ready->kernel, shape->threads(),
                                                        shared_bytes);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, ready->device);
  }
  ready->blocks = of_sm > 0 ? sms : 0;
  return error;
}

// The same, done once a thread and device for the kernels that take turns.
cudaError_t find_ready(const void* kernel, const SequenceShape* shape, int shared_bytes,
                       ReadyKernel* ready) {
  constexpr unsigned kLast = 32;
  static thread_local ReadyKernel last[kLast];
  static thread_local unsigned count = 0;
  *ready = {kernel};
  cudaError_t error = cudaGetDevice(&ready->device);
  if (error != cudaSuccess) return error;
  for (const auto& each : last) {
    if (each.kernel != kernel || each.device != ready->device) continue;
    *ready = each;
    return cudaSuccess;
  }
  error = make_ready(shape, shared_bytes, ready);
  if (error == cudaSuccess) last[count++ % kLast] = *ready;
  return error;
}

// Of Note [The whole grid]. arrays: of h's size, that the blocks exchange.
cudaError_t launch_grid(const ReadyKernel& ready, const SequenceShape& shape, int shared_bytes,
                        int arrays, const SequenceSizes& sizes, void* workspace, void** arguments,
                        cudaStream_t stream) {
  if (ready.blocks < shape.blocks) return cudaErrorNotSupported;
  const cudaError_t error = cudaMemsetAsync(
      workspace, 0xff, shape.operands_bytes(sizes.steps, sizes.batch_size, arrays), stream);
  if (error != cudaSuccess) return error;
  const int64_t sets = ceil_div(sizes.batch_size, shape.rows);
  cudaLaunchAttribute cooperative{};
  cooperative.id = cudaLaunchAttributeCooperative;
  cooperative.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim =
      static_cast<unsigned>(shape.blocks * min(sets, int64_t(ready.blocks / shape.blocks)));
  config.blockDim = shape.threads();
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &cooperative;
  config.numAttrs = 1;
  return cudaLaunchKernelExC(&config, ready.kernel, arguments);
}

template <typename Args>
cudaError_t launch_sets(const void* kernel, const SequenceShape& shape, int shared_bytes,
                        int arrays, const Args& args, cudaStream_t stream) {
  ReadyKernel ready;
  const cudaError_t error = find_ready(kernel, &shape, shared_bytes, &ready);
  if (error != cudaSuccess) return error;
  if (ready.architecture < (shape.blocks > 1 ? 90 : 80)) return cudaErrorNotSupported;
  void* arguments[] = {const_cast<Args*>(&args)};
  if (shape.grid) {
    return launch_grid(ready, shape, shared_bytes, arrays, args, args.workspace, arguments, stream);
  }
  const int64_t clusters = ceil_div(args.batch_size, shape.rows);
  return launch_code(kernel, ready.architecture, arguments,
                     static_cast<unsigned>(clusters * shape.blocks), shape.threads(), shared_bytes,
                     shape.blocks, stream);
}

template <typename Args>
cudaError_t launch_one_step(const void* kernel, const Args& args, cudaStream_t stream) {
  ReadyKernel ready;
  const cudaError_t error = find_ready(kernel, nullptr, 0, &ready);
  if (error != cudaSuccess) return error;
  const int64_t count = args.sequence.batch_size * args.sequence.hidden_size;
  Divisor hidden(args.sequence.hidden_size, count);
  void* arguments[] = {const_cast<Args*>(&args), &hidden};
  return launch_code(kernel, ready.architecture, arguments, blocks_for(count), kThreads, 0,
                     /*cluster=*/1, stream);
}

}  // namespace

cudaError_t launch_sequence(const void* kernel, const SequenceShape& shape,
                            const SequenceForwardArgs& args, cudaStream_t stream) {
  const SequenceSizes& sizes = args;
  return launch_sets(kernel, shape, shape.forward_bytes(sizes.gates), 1, args, stream);
}
cudaError_t launch_sequence(const void* kernel, const SequenceShape& shape,
                            const SequenceBackwardArgs& args, cudaStream_t stream) {
  const SequenceSizes& sizes = args;
  const int bytes = shape.backward_bytes(sizes.gates, sizes.states, sizes.adds_gates);
  return launch_sets(kernel, shape, bytes, sizes.gates, args, stream);
}

cudaError_t launch_step(const void* kernel, const ForwardStepArgs& args, cudaStream_t stream) {
  return launch_one_step(kernel, args, stream);
}
cudaError_t launch_step(const void* kernel, const BackwardStepArgs& args, cudaStream_t stream) {
  return launch_one_step(kernel, args, stream);
}

}  // namespace lltm_jit
