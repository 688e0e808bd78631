#include "core/launch/launch.cuh"
#include "rnn/sequence/steps/few_rows.h"

namespace lltm_jit {
namespace {

constexpr int kRows = FewRowsArgs::kMostRows, kWarps = 16, kBlock = 32 * kWarps;
constexpr int kWidth = 4, kColumns = 32 * kWidth;  // that a warp reads of a row of weights at once

using Four = Pack<float, kWidth>;

LLTM_JIT_DEVICE void multiply_add(float factor, const Four& four, float (&sums)[kWidth]) {
  LLTM_JIT_UNROLLED(i, kWidth) sums[i] = fmaf(factor, four.values[i], sums[i]);
}

extern __shared__ __align__(16) float shared[];

// ------------------------------------------------------------------------- rows of the weights --

// A warp multiplies some rows of the weights; its lanes divide the depth.
constexpr int kOutputs = 4, kSums = kOutputs * kRows;

// Adds the sums of all lanes: then lane l has the sums 2 l and 2 l + 1 in the first two places.
template <int kHalf = kSums / 2, int kBit = 16>
LLTM_JIT_DEVICE void add_lanes(float (&sums)[kSums]) {
  const bool upper = threadIdx.x & kBit;
  LLTM_JIT_UNROLLED(i, kHalf) {
    const float kept = upper ? sums[i + kHalf] : sums[i];
    const float sent = upper ? sums[i] : sums[i + kHalf];
    sums[i] = kept + __shfl_xor_sync(~0u, sent, kBit);
  }
  if constexpr (kBit > 1) add_lanes<kHalf / 2, kBit / 2>(sums);
}

int row_stride_in_shared(int64_t depth) {
  return static_cast<int>(ceil_div(depth, kColumns) * kColumns);
}

__global__ void __launch_bounds__(kBlock) multiply_rows(FewRowsArgs args, int shared_stride) {
  wait_for_predecessor();
  const int lane = threadIdx.x % 32, depth = static_cast<int>(args.depth);
  for (int i = threadIdx.x * kWidth; i < kRows * shared_stride; i += kBlock * kWidth) {
    const int row = i / shared_stride, k = i % shared_stride;
    const bool inside = row < args.count && k < depth;
    *reinterpret_cast<Four*>(shared + i) =
        load_or_zero<kWidth>(inside ? args.rows + row * args.row_stride + k : args.weights, inside);
  }
  __syncthreads();
  const int64_t units = args.outputs / kOutputs;
  // Neighbouring units belong to different blocks, so that all SMs have as many.
  for (int64_t unit = blockIdx.x + int64_t(threadIdx.x / 32) * gridDim.x; unit < units;
       unit += int64_t(gridDim.x) * kWarps) {
    const float* weights = args.weights + unit * kOutputs * args.weights_stride;
    const auto load = [&](int k, Four(&fours)[kOutputs]) {
      LLTM_JIT_UNROLLED(o, kOutputs) {
        fours[o] = load_or_zero<kWidth>(weights + o * args.weights_stride + (k < depth ? k : 0),
                                        k < depth);
      }
    };
    float sums[kSums] = {};
    Four next[kOutputs];
    load(lane * kWidth, next);
    for (int k = lane * kWidth; k < shared_stride; k += kColumns) {
      Four now[kOutputs];
      LLTM_JIT_UNROLLED(o, kOutputs) now[o] = next[o];
      load(k + kColumns, next);
      LLTM_JIT_UNROLLED(row, kRows) {
        const Four four = load_raw<kWidth>(shared + row * shared_stride + k);
        LLTM_JIT_UNROLLED2(o, kOutputs, i, kWidth) {
          float& sum = sums[row * kOutputs + o];
          sum = fmaf(four.values[i], now[o].values[i], sum);
        }
      }
    }
    add_lanes(sums);
    LLTM_JIT_UNROLLED(i, kSums / 32) {
      const int at = lane * (kSums / 32) + i, row = at / kOutputs;
      if (row < args.count) {
        args.products[row * args.outputs + unit * kOutputs + at % kOutputs] = sums[i];
      }
    }
  }
}

// ---------------------------------------------------------------------- columns of the weights --

// A block multiplies a part of the depth by some columns of the weights, and each warp a part of that part; a lane
// has columns of its own.
constexpr int kParts = 8;
constexpr int kNumberStride = kRows + 4;  // of rows' numbers in shared memory, against conflicts

int part_of_depth(int64_t depth) {
  return static_cast<int>(ceil_div(ceil_div(depth, kParts), kWarps) * kWarps);
}

__global__ void __launch_bounds__(kBlock) multiply_columns(FewRowsArgs args, int part) {
  wait_for_predecessor();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t first = int64_t(blockIdx.x % kParts) * part;
  for (int i = threadIdx.x; i < kRows * part; i += kBlock) {
    const int row = i / part, k = i % part;
    const bool inside = row < args.count && first + k < args.depth;
    shared[k * kNumberStride + row] = inside ? args.rows[row * args.row_stride + first + k] : 0.f;
  }
  __syncthreads();
  const int64_t column = int64_t(blockIdx.x / kParts) * kColumns + lane * kWidth;
  const bool has_column = column < args.outputs;
  const float* weights = args.weights + (has_column ? column : 0);
  float sums[kRows][kWidth] = {};
  const int begin = warp * (part / kWarps), end = begin + part / kWarps;
#pragma unroll 4
  for (int k = begin; k < end; ++k) {
    const bool inside = has_column && first + k < args.depth;
    const Four four =
        load_or_zero<kWidth>(weights + (inside ? (first + k) * args.weights_stride : 0), inside);
#pragma unroll
    for (int r = 0; r < kRows; r += kWidth) {
      const Four numbers = load_raw<kWidth>(shared + k * kNumberStride + r);
      LLTM_JIT_UNROLLED(i, kWidth) multiply_add(numbers.values[i], four, sums[r + i]);
    }
  }
  __syncthreads();
  // The sums of all warps; each thread adds four.
  LLTM_JIT_UNROLLED(r, kRows) {
    store_pack<kWidth>(shared + (warp * kRows + r) * kColumns + lane * kWidth, sums[r]);
  }
  __syncthreads();
  static_assert(kBlock * kWidth == kRows * kColumns);
  const int row = threadIdx.x / 32;
  float total[kWidth] = {};
  LLTM_JIT_UNROLLED(w, kWarps) {
    const Four four = load_raw<kWidth>(shared + (w * kRows + row) * kColumns + lane * kWidth);
    multiply_add(1.f, four, total);
  }
  if (has_column && row < args.count) {
    store_pack<kWidth>(
        args.workspace + (int64_t(blockIdx.x % kParts) * kRows + row) * args.outputs + column,
        total);
  }
}

__global__ void __launch_bounds__(kThreads) add_parts(FewRowsArgs args) {
  wait_for_predecessor();
  const int64_t count = args.count * args.outputs, part = kRows * args.outputs;
  for (int64_t i = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kWidth; i < count;
       i += int64_t(gridDim.x) * kThreads * kWidth) {
    float total[kWidth] = {};
    LLTM_JIT_UNROLLED(p, kParts) {
      multiply_add(1.f, load_raw<kWidth>(args.workspace + p * part + i), total);
    }
    store_pack<kWidth>(args.products + i, total);
  }
}

int shared_bytes(int64_t depth, bool transposed) {
  if (!transposed) return kRows * row_stride_in_shared(depth) * int(sizeof(float));
  return max(part_of_depth(depth) * kNumberStride, kWarps * kRows * kColumns) * int(sizeof(float));
}

}  // namespace

bool few_rows_fit(int64_t depth, bool transposed, int most_shared_bytes) {
  constexpr int64_t kDeepest = 1 << 20;
  return depth <= kDeepest && shared_bytes(depth, transposed) <= most_shared_bytes;
}

int64_t few_rows_workspace(int64_t outputs, bool transposed) {
  return transposed ? kParts * kRows * outputs * int64_t(sizeof(float)) : 0;
}

cudaError_t launch_few_rows(const FewRowsArgs& args, cudaStream_t stream) {
  const int bytes = shared_bytes(args.depth, args.transposed);
  if (args.transposed) {
    const int64_t blocks = ceil_div(args.outputs, kColumns) * kParts;
    LLTM_JIT_TRY(launch(multiply_columns, static_cast<unsigned>(blocks), kBlock, bytes, stream,
                        args, part_of_depth(args.depth)));
    return launch(add_parts, blocks_for(args.count * args.outputs / kWidth), kThreads, 0, stream,
                  args);
  }
  int device = 0, sms = 0;
  LLTM_JIT_TRY(cudaGetDevice(&device));
  LLTM_JIT_TRY(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
  const int64_t blocks = min(args.outputs / kOutputs, int64_t(sms));
  return launch(multiply_rows, static_cast<unsigned>(blocks), kBlock, bytes, stream, args,
                row_stride_in_shared(args.depth));
}

}  // namespace lltm_jit
