// Loads the weights of Note [Many rows] (shape.h) into the layout of the products: floats as
// halves, with a scale for each column of a block.
#pragma once

#include "rnn/sequence/many_rows/cluster.cuh"

namespace lltm_jit {

// Each warp loads one column at a time.
template <typename Block, typename Load>
__device__ __forceinline__ void load_scaled_along_k(const Block& block, const Load& load) {
  constexpr int kFours = Block::kChunks * ManyRowsShape::kChunk / 4;
  const int lane = threadIdx.x % 32;
  constexpr int kTurns = ceil_div(kFours, 32);
  for (int n = threadIdx.x / 32; n < Block::kN; n += Block::kShape.threads() / 32) {
    Pack<float, 4> fours[kTurns] = {};
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      const int at = lane + 32 * i;
      if (at < kFours) fours[i] = load(n, at * 4);
    }
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      for (const float each : fours[i].values) {
        largest = max(largest, magnitude_of(__float_as_uint(each)));
      }
    }
    const HalfScale of = scale_of_warp(largest);
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      const int at = lane + 32 * i;
      if (at >= kFours) continue;
      const auto& [a, b, c, d] = fours[i].values;
      *reinterpret_cast<uint2*>(block.weight(n, at * 4)) = {
          pack2<Half>(a * of.scale, b * of.scale), pack2<Half>(c * of.scale, d * of.scale)};
    }
    if (lane == 0) block.inverses[n] = of.inverse;
  }
}

// Each thread loads four columns for some of k, with several loads in flight.
template <typename Block, typename Load>
__device__ __forceinline__ void load_scaled_along_columns(const Block& block, const Load& load) {
  constexpr int kDepth = Block::kChunks * ManyRowsShape::kChunk, kAtOnce = 8;
  constexpr int kFours = Block::kN / 4, kApart = Block::kShape.threads() / kFours;
  const int n = threadIdx.x % kFours * 4, first = threadIdx.x / kFours;
  const auto for_four = [&](const auto& function) {
    for (int k = first; k < kDepth && first < kApart; k += kAtOnce * kApart) {
      Pack<float, 4> fours[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) fours[i] = load(n, min(k + i * kApart, kDepth - 1));
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) function(min(k + i * kApart, kDepth - 1), fours[i]);
    }
  };
  const auto magnitudes = reinterpret_cast<uint32_t*>(block.inverses);
  if (threadIdx.x < Block::kN) magnitudes[threadIdx.x] = 0;
  __syncthreads();
  uint32_t largest[4] = {};
  for_four([&](int, const Pack<float, 4>& four) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      largest[j] = max(largest[j], magnitude_of(__float_as_uint(four.values[j])));
    }
  });
#pragma unroll
  for (int j = 0; j < 4; ++j) atomicMax(magnitudes + n + j, largest[j]);
  __syncthreads();
  HalfScale scales[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) scales[j] = HalfScale(magnitudes[n + j]);
  for_four([&](int k, const Pack<float, 4>& four) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      *reinterpret_cast<Half*>(block.weight(n + j, k)) =
          from_opmath<Half>(four.values[j] * scales[j].scale);
    }
  });
  __syncthreads();
  if (first > 0) return;
#pragma unroll
  for (int j = 0; j < 4; ++j) block.inverses[n + j] = scales[j].inverse;
}

// load(n, in_block) returns four neighbouring numbers along k of a column.
template <typename scalar_t, typename Block, typename Load>
__device__ __forceinline__ void load_along_k(const Block& block, const Load& load) {
  if constexpr (Block::kScaled) {
    load_scaled_along_k(block, load);
  } else {
    constexpr int kFours = Block::kChunks * ManyRowsShape::kChunk / 4;
#pragma unroll 8  // this many loads in flight
    for (int i = threadIdx.x; i < Block::kN * kFours; i += Block::kShape.threads()) {
      const int n = i / kFours, in_block = i % kFours * 4;
      *reinterpret_cast<Pack<scalar_t, 4>*>(block.weight(n, in_block)) = load(n, in_block);
    }
  }
}

// load(n, in_block) returns the numbers of four neighbouring columns.
template <typename scalar_t, typename Block, typename Load>
__device__ __forceinline__ void load_along_columns(const Block& block, const Load& load) {
  if constexpr (Block::kScaled) {
    load_scaled_along_columns(block, load);
  } else {
    constexpr int kFours = Block::kN / 4, kDepth = Block::kChunks * ManyRowsShape::kChunk;
#pragma unroll 8
    for (int i = threadIdx.x; i < kFours * kDepth; i += Block::kShape.threads()) {
      const int n = i % kFours * 4, in_block = i / kFours;
      const auto four = load(n, in_block);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        *reinterpret_cast<scalar_t*>(block.weight(n + j, in_block)) = four.values[j];
      }
    }
  }
}

}  // namespace lltm_jit
