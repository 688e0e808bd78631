// Prepares the factors of a product of floats: the scales of both factors, and the right one's parts.
#include "core/launch/launch.cuh"
#include "core/memory/bulk_copy.cuh"
#include "rnn/sequence/all_steps/in_float/kernels.h"
#include "rnn/sequence/all_steps/in_float/parts.cuh"

namespace lltm_jit {
namespace {

using Four = Pack<uint32_t, kWidth>;

// ------------------------------------------------------------------------------------ magnitudes --

LLTM_JIT_DEVICE uint32_t warp_max(uint32_t value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value = max(value, __shfl_xor_sync(~0u, value, offset));
  }
  return value;
}

// Each block takes every gridDim.x-th tile. A warp has eight rows of a tile, a lane four neighbours in each.
constexpr int kWarps = kThreads / 32, kRowsOfWarp = 8, kTileColumns = 32 * kWidth;

LLTM_JIT_DEVICE void find_magnitudes_of(const FloatFactor& factor, uint32_t* magnitudes,
                                        int64_t block, int64_t blocks) {
  __shared__ uint32_t of_warps[kWarps][kTileColumns];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t rows = factor.depth_inside ? factor.vectors : factor.depth;
  const int64_t columns = factor.depth_inside ? factor.depth : factor.vectors;
  const int64_t across = ceil_div(columns, kTileColumns);
  const int64_t tiles = ceil_div(rows, kWarps * kRowsOfWarp) * across;
  const auto* numbers = reinterpret_cast<const uint32_t*>(factor.numbers);
  for (int64_t tile = block; tile < tiles; tile += blocks) {
    const int64_t row = (tile / across * kWarps + warp) * kRowsOfWarp;
    const int64_t first_column = tile % across * kTileColumns,
                  column = first_column + lane * kWidth;
    uint32_t of_columns[kWidth] = {}, of_rows[kRowsOfWarp] = {};
    LLTM_JIT_UNROLLED(i, kRowsOfWarp) {
      const bool inside = row + i < rows && column < columns;
      const Four four = load_or_zero<kWidth>(
          numbers + (inside ? (row + i) * factor.row_stride + column : 0), inside);
      LLTM_JIT_UNROLLED(k, kWidth) {
        const uint32_t magnitude = magnitude_of(four.values[k]);
        of_rows[i] = max(of_rows[i], magnitude);
        of_columns[k] = max(of_columns[k], magnitude);
      }
    }
    if (factor.depth_inside) {
      LLTM_JIT_UNROLLED(i, kRowsOfWarp) {
        const uint32_t most = warp_max(of_rows[i]);
        if (lane == 0 && row + i < rows) atomicMax(magnitudes + row + i, most);
      }
      continue;
    }
    LLTM_JIT_UNROLLED(k, kWidth) of_warps[warp][lane * kWidth + k] = of_columns[k];
    __syncthreads();
    if (threadIdx.x < kTileColumns && first_column + threadIdx.x < columns) {
      uint32_t most = 0;
      LLTM_JIT_UNROLLED(w, kWarps) most = max(most, of_warps[w][threadIdx.x]);
      atomicMax(magnitudes + first_column + threadIdx.x, most);
    }
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kThreads)
    find_magnitudes(const __grid_constant__ FloatProductArgs args) {
  wait_for_predecessor();
  const int64_t block = blockIdx.x / 2, blocks = gridDim.x / 2;
  if (blockIdx.x % 2 == 0) {
    find_magnitudes_of(args.a, args.magnitudes, block, blocks);
  } else {
    find_magnitudes_of(args.b, args.magnitudes + args.a.vectors, block, blocks);
  }
}

// ------------------------------------------------------------------------------- the right factor --

template <bool kDepthInside>
LLTM_JIT_DEVICE void load_step(const FloatFactor& factor, int64_t vector, int64_t k,
                               uint32_t (&numbers)[kStep]) {
  const auto* source = reinterpret_cast<const uint32_t*>(factor.numbers);
  if constexpr (kDepthInside) {
#pragma unroll
    for (int i = 0; i < kStep; i += kWidth) {
      const bool inside = vector < factor.vectors && k + i < factor.depth;
      const Four four =
          load_or_zero<kWidth>(source + (inside ? vector * factor.row_stride + k + i : 0), inside);
      LLTM_JIT_UNROLLED(j, kWidth) numbers[i + j] = four.values[j];
    }
  } else {
    LLTM_JIT_UNROLLED(i, kStep) {
      const bool inside = vector < factor.vectors && k + i < factor.depth;
      numbers[i] =
          load_or_zero<1>(source + (inside ? (k + i) * factor.row_stride + vector : 0), inside)
              .values[0];
    }
  }
}

// A block splits one stage, and a thread splits two steps of a column.
template <bool kDepthInside>
__global__ void __launch_bounds__(kThreads)
    split_right_factor(const __grid_constant__ FloatProductArgs args) {
#if __CUDA_ARCH__ >= 900
  __shared__ __align__(128) StageParts parts;
  wait_for_predecessor();
  const int64_t stages = stages_of(args.b.depth), all = ceil_div(args.b.vectors, kTile) * stages;
  const int x = threadIdx.x % kTile, row = row_of_column(x);
  for (int64_t i = blockIdx.x; i < all; i += gridDim.x) {
    const int64_t column = i / stages * kTile + x;
    const uint32_t magnitude = args.magnitudes[args.a.vectors + min(column, args.b.vectors - 1)];
    const float scale = HalfScale(magnitude).scale;
    uint32_t numbers[2][kStep];
    const int first = threadIdx.x / kTile * 2;
    LLTM_JIT_UNROLLED(step, 2) {
      load_step<kDepthInside>(args.b, column, i % stages * kStage + (first + step) * kStep,
                              numbers[step]);
    }
    if (threadIdx.x == 0) wait_for_bulk_stores();
    __syncthreads();
    LLTM_JIT_UNROLLED(chunk, 4) {
      parts.split(row, first * 2 + chunk, numbers[chunk / 2] + chunk % 2 * 8, scale);
    }
    publish_stores();
    __syncthreads();
    if (threadIdx.x == 0) {
      store_bulk(static_cast<StageParts*>(args.b_parts) + i, &parts, int(sizeof(StageParts)));
    }
  }
  if (threadIdx.x == 0) wait_for_bulk_stores();
#else
  __trap();  // never launched, because the host asks first
#endif
}

}  // namespace

int64_t float_parts_bytes(const FloatFactor& b) {
  return ceil_div(b.vectors, kTile) * stages_of(b.depth) * int64_t(sizeof(StageParts));
}

cudaError_t launch_split_factors(const FloatProductArgs& args, cudaStream_t stream) {
  const FloatFactor &a = args.a, &b = args.b;
  const int64_t numbers = max(a.vectors * a.depth, b.vectors * b.depth);
  const unsigned blocks = 2 * blocks_for(numbers / (kRowsOfWarp * kWidth));
  LLTM_JIT_TRY(launch(find_magnitudes, blocks, kThreads, 0, stream, args));
  const int64_t stages = float_parts_bytes(b) / int64_t(sizeof(StageParts));
  return launch(b.depth_inside ? split_right_factor<true> : split_right_factor<false>,
                blocks_for(stages * kThreads), kThreads, 0, stream, args);
}

}  // namespace lltm_jit
