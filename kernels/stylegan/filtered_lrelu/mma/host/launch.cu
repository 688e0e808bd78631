// Launches of variants/mma.cu.
#include <cmath>
#include <limits>

#include "core/launch/driver.h"
#include "core/launch/launch.cuh"
#include "stylegan/filtered_lrelu/mma/call.cuh"
#include "stylegan/filtered_lrelu/plan.h"

namespace lltm_jit {
namespace {

// Fills the kernel's arguments; false if the call does not fit this shape.
bool make_call(const FilteredLreluArgs& args, const MmaShape& shape, MmaCall* call) {
  if (!plan_mma(args, shape, &call->plan)) return false;
  call->args = args;
  call->channels = FastDivisor(static_cast<uint32_t>(args.channels));
  call->segments = FastDivisor(static_cast<uint32_t>(call->plan.segments));
  call->blocks = FastDivisor(static_cast<uint32_t>(call->plan.blocks));
  call->walks = static_cast<int>(args.batch * args.channels * call->plan.parts());
  call->map = SignMap<int>(args.sign_h, args.sign_w, args.sign_phase_y, args.sign_phase_x);
  call->map_shift = (call->plan.columns.sign_tile & 3) * 2;

  // Note [Slopes]
  const double factor = std::abs(args.slope) > 1 ? std::abs(args.slope) : 1;
  call->slope = static_cast<float>(args.slope / factor);
  call->pass = static_cast<float>(1 / factor);
  call->up_sign = args.gain < 0 ? -1.f : 1.f;
  call->gain = static_cast<float>(std::abs(args.gain) * factor);
  call->clamp = static_cast<float>(args.gain == 0 ? std::numeric_limits<double>::infinity()
                                                  : args.clamp / std::abs(args.gain * factor));

  call->load_bytes = args.x_strides[3] == 1 ? access_bytes(args, true) : 2;
  call->store_bytes = access_bytes(args, false);
  return true;
}

}  // namespace

cudaError_t launch_walks(const void* kernel, const MmaShape& shape, const FilteredLreluArgs& args,
                         cudaStream_t stream) {
  MmaCall call{};
  if (!make_call(args, shape, &call)) return cudaErrorNotSupported;
  const int threads = 32 * shape.warps, shared_bytes = shape.shared_bytes(element_bytes(args));
  FlrGpu gpu{};
  LLTM_JIT_TRY(flr_describe_gpu(&gpu));
  const Driver* driver = nullptr;
  ReadyKernel ready;
  LLTM_JIT_TRY(find_driver(&driver));
  const Wanted wanted{threads, shared_bytes, /*cluster=*/1, /*grid=*/false};
  LLTM_JIT_TRY(find_ready(*driver, kernel, &wanted, &ready));
  if (ready.architecture < 80 || shared_bytes > gpu.shared_bytes) return cudaErrorNotSupported;
  const int blocks = max(min(gpu.sms, call.walks), ceil_div(call.walks, shape.warps * kMostWalks));
  void* arguments[] = {&call};
  return launch_ready(*driver, ready,
                      {blocks, threads, shared_bytes, /*cluster=*/1, /*grid=*/false, stream},
                      arguments);
}

}  // namespace lltm_jit
