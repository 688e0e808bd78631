#include "core/cuda/launch.cuh"
#include "rnn/sequence/cuda/halves.cuh"
#include "rnn/sequence/float_parts.h"

namespace lltm_jit {
namespace {

// A block takes tiles by turns, a warp some rows of each, a lane four neighbours.
constexpr int kWarps = kThreads / 32, kRowsOfWarp = 8, kWidth = 4;
constexpr int kTileRows = kWarps * kRowsOfWarp, kTileColumns = 32 * kWidth;

struct Tiles {
  int64_t across, count;

  __host__ __device__ Tiles(int64_t rows, int64_t columns)
      : across(ceil_div(columns, kTileColumns)), count(ceil_div(rows, kTileRows) * across) {}
};

// Calls `of_tile(row, column)` for this block's tiles: the first row of this warp, and column of this lane.
template <typename OfTile>
__device__ __forceinline__ void for_tiles(int64_t rows, int64_t columns, const OfTile& of_tile) {
  const Tiles tiles(rows, columns);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int64_t tile = blockIdx.x; tile < tiles.count; tile += gridDim.x) {
    of_tile(tile / tiles.across * kTileRows + warp * kRowsOfWarp,
            tile % tiles.across * kTileColumns + lane * kWidth);
  }
}

using Four = Pack<uint32_t, kWidth>;

__device__ __forceinline__ Four load_four(const FloatFactor& factor, int64_t row, int64_t column) {
  const auto* source = reinterpret_cast<const uint32_t*>(factor.source);
  const bool inside = row < factor.rows && column < factor.columns;
  return load_or_zero<kWidth>(inside ? source + row * factor.row_stride + column : source, inside);
}

__device__ __forceinline__ uint32_t warp_max(uint32_t value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value = max(value, __shfl_xor_sync(~0u, value, offset));
  }
  return value;
}

__global__ void __launch_bounds__(kThreads)
    find_magnitudes(const __grid_constant__ SplitFactorsArgs args) {
  wait_for_predecessor();
  const FloatFactor& factor = args.factors[blockIdx.y];
  __shared__ uint32_t of_warps[kWarps][kTileColumns];
  for_tiles(factor.rows, factor.columns, [&](int64_t row, int64_t column) {
    uint32_t of_columns[kWidth] = {}, of_rows[kRowsOfWarp] = {};
#pragma unroll
    for (int i = 0; i < kRowsOfWarp; ++i) {
      const Four four = load_four(factor, row + i, column);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const uint32_t magnitude = magnitude_of(four.values[k]);
        of_rows[i] = max(of_rows[i], magnitude);
        of_columns[k] = max(of_columns[k], magnitude);
      }
    }
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (factor.depth_inside) {
#pragma unroll
      for (int i = 0; i < kRowsOfWarp; ++i) {
        const uint32_t most = warp_max(of_rows[i]);
        if (lane == 0 && row + i < factor.rows) atomicMax(factor.magnitudes + row + i, most);
      }
      return;
    }
#pragma unroll
    for (int k = 0; k < kWidth; ++k) of_warps[warp][lane * kWidth + k] = of_columns[k];
    __syncthreads();
    if (threadIdx.x < kTileColumns) {
      uint32_t most = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) most = max(most, of_warps[w][threadIdx.x]);
      const int64_t at = column - lane * kWidth + threadIdx.x;
      if (at < factor.columns) atomicMax(factor.magnitudes + at, most);
    }
    __syncthreads();
  });
}

__device__ __forceinline__ bool is_finite(uint32_t number) {
  return magnitude_of(number) < 0x7f800000u;
}

// Two neighbours' parts in the order of the product, of which the first two are for finite numbers alone.
struct PartsOfPair {
  uint32_t parts[kFloatParts];

  __device__ __forceinline__ PartsOfPair(uint32_t first, uint32_t second, float first_scale,
                                         float second_scale, bool is_left) {
    const HalfParts pair(first, second, first_scale, second_scale);
    const uint32_t finite =
        (is_finite(first) ? 0xffffu : 0u) | (is_finite(second) ? 0xffff0000u : 0u);
    parts[0] = (is_left ? pair.high : pair.low) & finite;
    parts[1] = (is_left ? pair.low : pair.high) & finite;
    parts[2] = pair.high;
  }
};

__global__ void __launch_bounds__(kThreads)
    split_factors(const __grid_constant__ SplitFactorsArgs args) {
  wait_for_predecessor();
  const FloatFactor& factor = args.factors[blockIdx.y];
  const bool inside = factor.depth_inside;
  const int64_t depth = factor.pieces * factor.piece;  // zeros behind the source's
  const int64_t rows = inside ? factor.rows : depth, columns = inside ? depth : factor.columns;
  // Where the parts of what lies so deep begin: those of a piece are side by side, or one below the other.
  const auto begin_of = [&](int64_t at) {
    return at + at / factor.piece * (kFloatParts - 1) * factor.piece;
  };
  const int64_t part_stride = factor.piece * (inside ? 1 : columns);
  for_tiles(rows, columns, [&](int64_t first_row, int64_t column) {
    if (column >= columns) return;
    float scales[kWidth];
    if (!inside) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) scales[k] = HalfScale(factor.magnitudes[column + k]).scale;
    }
#pragma unroll
    for (int i = 0; i < kRowsOfWarp; ++i) {
      const int64_t row = first_row + i;
      if (row >= rows) return;
      if (inside) {
        const float scale = HalfScale(factor.magnitudes[row]).scale;
#pragma unroll
        for (int k = 0; k < kWidth; ++k) scales[k] = scale;
      }
      const Four four = load_four(factor, row, column);
      const PartsOfPair a(four.values[0], four.values[1], scales[0], scales[1], factor.is_left);
      const PartsOfPair b(four.values[2], four.values[3], scales[2], scales[3], factor.is_left);
      const int64_t at =
          inside ? row * kFloatParts * depth + begin_of(column) : begin_of(row) * columns + column;
      auto* target = static_cast<Half*>(factor.parts) + at;
#pragma unroll
      for (int p = 0; p < kFloatParts; ++p) {
        *reinterpret_cast<uint2*>(target + p * part_stride) = {a.parts[p], b.parts[p]};
      }
    }
  });
}

__global__ void __launch_bounds__(kThreads) unscale(const __grid_constant__ UnscaleArgs args) {
  wait_for_predecessor();
  for_tiles(args.rows, args.columns, [&](int64_t first_row, int64_t column) {
    if (column >= args.columns) return;
    float of_columns[kWidth], initial[kWidth] = {};
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      of_columns[k] = HalfScale(args.column_magnitudes[column + k]).inverse;
    }
    if (args.initial) load_pack<kWidth>(args.initial + column, initial);
#pragma unroll
    for (int i = 0; i < kRowsOfWarp; ++i) {
      const int64_t row = first_row + i;
      if (row >= args.rows) return;
      const float of_row = HalfScale(args.row_magnitudes[row]).inverse;
      const int64_t at = row * args.columns + column;
      float sums[kWidth] = {}, of_piece[kWidth], results[kWidth];
      for (int64_t piece = 0; piece < args.pieces; ++piece) {
        load_pack<kWidth>(args.sums + piece * args.rows * args.columns + at, of_piece);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) sums[k] += of_piece[k];
      }
#pragma unroll
      for (int k = 0; k < kWidth; ++k) results[k] = initial[k];
      if (args.adds) load_pack<kWidth>(args.results + at, results);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) results[k] += sums[k] * (of_row * of_columns[k]);
      store_pack<kWidth>(args.results + at, results);
    }
  });
}

}  // namespace

cudaError_t launch_split_factors(const SplitFactorsArgs& args, cudaStream_t stream) {
  int64_t most = 0;
  for (const auto& factor : args.factors) {
    const int64_t depth = factor.pieces * factor.piece;
    most = max(most, factor.depth_inside ? Tiles(factor.rows, depth).count
                                         : Tiles(depth, factor.columns).count);
  }
  cudaLaunchConfig_t config{};
  config.gridDim = {blocks_for(most * kThreads), 2, 1};
  config.blockDim = kThreads;
  config.stream = stream;
  const cudaError_t error = cudaLaunchKernelEx(&config, find_magnitudes, args);
  if (error != cudaSuccess) return error;
  return cudaLaunchKernelEx(&config, split_factors, args);
}

cudaError_t launch_unscale(const UnscaleArgs& args, cudaStream_t stream) {
  const Tiles tiles(args.rows, args.columns);
  return launch(unscale, blocks_for(tiles.count * kThreads), kThreads, 0, stream, args);
}

}  // namespace lltm_jit
