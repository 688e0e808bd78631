// bias_act's derivative on the GPU: dx and, in the same pass, the partial sums of db.
#include "stylegan/bias_act/cuda/passes.cuh"

namespace lltm_jit {
namespace {

// Adds the parts' sums, in double. A block sums neighbouring channels; each of its lanes reads
// every kPartLanes-th part.
constexpr int kSumChannels = 8, kPartLanes = kThreads / kSumChannels;

template <typename scalar_t>
__global__ void __launch_bounds__(kThreads) add_parts_kernel(BiasActArgs args, PassPlan plan) {
  __shared__ double lane_sums[kThreads];
  wait_for_predecessor();
  const auto* parts = static_cast<const opmath_t<scalar_t>*>(args.parts);
  const int lane = threadIdx.x / kSumChannels;
  const int64_t channel = int64_t(blockIdx.x) * kSumChannels + threadIdx.x % kSumChannels;
  // A channel has slots in runs of `inner`, or a single slot.
  const int64_t inner = plan.rows ? args.inner : 1, pattern = args.channels * inner;
  double sum = 0;
  if (channel < args.channels) {
    for (int64_t slot = channel * inner; slot < plan.slots; slot += pattern) {
      for (int64_t place = 0; place < inner; ++place) {
#pragma unroll 8
        for (int64_t part = lane; part < plan.parts; part += kPartLanes) {
          sum += parts[part * plan.slots + slot + place];
        }
      }
    }
  }
  lane_sums[threadIdx.x] = sum;
  for (int lanes = kPartLanes / 2; lanes > 0; lanes /= 2) {
    __syncthreads();
    if (lane < lanes) {
      lane_sums[threadIdx.x] += lane_sums[threadIdx.x + lanes * kSumChannels];
    }
  }
  if (lane == 0 && channel < args.channels) {
    static_cast<scalar_t*>(args.sums)[channel] =
        from_opmath<scalar_t>(static_cast<opmath_t<scalar_t>>(lane_sums[threadIdx.x]));
  }
}

template <typename scalar_t>
cudaError_t launch_backward_as(const BiasActArgs& args, cudaStream_t stream) {
  const auto plan = pass_plan<scalar_t>(args);
  LLTM_JIT_TRY(launch_pass<scalar_t>(args, plan, stream));
  if (!args.sums || sums_are_whole(args, plan)) return cudaSuccess;
  return launch(add_parts_kernel<scalar_t>,
                static_cast<unsigned>(ceil_div(args.channels, int64_t(kSumChannels))), kThreads, 0,
                stream, args, plan);
}

}  // namespace

cudaError_t launch_bias_act_backward(const BiasActArgs& args, cudaStream_t stream) {
  return dispatch_floating(
      args.type, [&](auto scalar) { return launch_backward_as<decltype(scalar)>(args, stream); });
}

int64_t sum_parts_numel_cuda(const BiasActArgs& args) {
  int64_t numel = 0;
  dispatch_floating(args.type, [&](auto scalar) {
    const auto plan = pass_plan<decltype(scalar)>(args);
    numel = plan.parts * plan.slots;
    return cudaSuccess;
  });
  return numel;
}

}  // namespace lltm_jit
