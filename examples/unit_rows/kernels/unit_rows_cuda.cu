#include "core/launch/launch.cuh"
#include "unit_rows.h"

using namespace lltm_jit;

// A block takes a row at a time. The 16-bit types are computed in float.
template <typename scalar_t>
__global__ void unit_rows_kernel(UnitRowsArgs args) {
  using opmath = opmath_t<scalar_t>;
  __shared__ opmath scale;
  wait_for_predecessor();
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const auto* x = static_cast<const scalar_t*>(args.x) + row * args.columns;
    auto* y = static_cast<scalar_t*>(args.y) + row * args.columns;
    opmath sum = 0;
    for (int64_t i = threadIdx.x; i < args.columns; i += kThreads) {
      sum += to_opmath(x[i]) * to_opmath(x[i]);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) scale = 1 / sqrt(sum + opmath(args.eps));
    __syncthreads();
    for (int64_t i = threadIdx.x; i < args.columns; i += kThreads) {
      y[i] = from_opmath<scalar_t>(scale * to_opmath(x[i]));
    }
    __syncthreads();  // before the next row's sum
  }
}

cudaError_t launch_unit_rows(const UnitRowsArgs& args, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(min(args.rows, int64_t(1) << 16));
  return dispatch_floating(args.type, [&](auto scalar) {
    return launch(unit_rows_kernel<decltype(scalar)>, blocks, kThreads, 0, stream, args);
  });
}
