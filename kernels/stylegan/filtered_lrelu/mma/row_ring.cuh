// The rows of x on their way to a warp: a private ring of chunks of 8 rows in shared memory, filled some
// chunks ahead of their use, also across the end of a walk.
#pragma once

#include "core/cuda/async_copy.cuh"
#include "core/cuda/launch.cuh"
#include "stylegan/filtered_lrelu/mma/operands.cuh"
#include "stylegan/filtered_lrelu/mma/plan.h"
#include "stylegan/filtered_lrelu/sign_map.h"

namespace lltm_jit {

// A call as the kernel gets it.
struct MmaCall {
  const void* x;
  const void* bias;
  void* y;
  uint32_t* signs;
  float* plane_sums;
  FirFilter fu, fd;
  int64_t x_batch, x_channel, x_row, x_column;  // strides
  unsigned channels;
  int walks;  // planes * segments * blocks, blocks next to each other
  int in_h, in_w, out_h, out_w;
  MmaPlan plan;
  SignMap<int> map;
  float gain;     // its magnitude, and what else the results are multiplied by
  float up_sign;  // -1: v is computed with the other sign
  float slope, pass;  // of numbers below zero and others, from -1 to 1: Note [Slopes]
  float clamp;    // of v over the magnitude of gain
  bool flip_negatives;  // the map has the other sign
  int load_bytes, store_bytes;  // of one access, which addresses and sizes allow
};

// A part of a plane: Note [Walks].
template <typename K>
struct Place {
  unsigned plane;
  int segment, block;
  int first_row_tile;  // of y
  int row_tiles;
  int steps;           // tiles of v
  int row_slice;       // of x, where the bands' slice 0 is
  int column_slice;    // of x, the first that the block uses
  int first_chunk, chunks;  // of x, those that the walk uses

  Place() = default;
  __device__ __forceinline__ Place(const MmaCall& call, int walk) {
    const MmaPlan& plan = call.plan;
    block = K::kOneBlock ? 0 : walk % plan.blocks;
    const unsigned rest = K::kOneBlock ? walk : walk / plan.blocks;
    segment = plan.segments == 1 ? 0 : rest % plan.segments;
    plane = plan.segments == 1 ? rest : rest / plan.segments;
    first_row_tile = segment * plan.segment_tiles;
    row_tiles = min(ceil_div(call.out_h, kTile) - first_row_tile, plan.segment_tiles);
    steps = K::Down::kFactor * (row_tiles - 1) + K::Down::tiles(kTile);
    row_slice = plan.rows.slice + first_row_tile * 2 * K::Down::kFactor / K::Up::kFactor;
    column_slice =
        K::kFirstColumnSlice +
        (K::kOneBlock ? 0
                      : plan.columns.slice + block * (K::kOutTiles * K::Down::kFactor / K::Up::kFactor));
    first_chunk = max(row_slice + K::kFirstRowSlice, 0);
    const int end = row_slice + K::kFirstRowSlice + K::Up::slices_before(steps - 1) + K::kRowWindow;
    chunks = max(min(end, ceil_div(call.in_h, kSlice)) - first_chunk, 0);
  }
};

// Neighbouring walks go to different multiprocessors, so that the last ones, which are fewer than there
// are warps, spread over all.
template <typename K>
__device__ __forceinline__ int first_walk() {
  return threadIdx.x / 32 * gridDim.x + blockIdx.x;
}
template <typename K>
__device__ __forceinline__ int walk_step() {
  return gridDim.x * K::kWarps;
}

template <typename K>
struct RowRing {
  using scalar_t = typename K::scalar;
  static constexpr int kPieceElements = 16 / sizeof(scalar_t);
  static constexpr int kRowPieces = K::kColumnSlices * kSlice / kPieceElements;
  static constexpr int kRounds = ceil_div(kSlice * kRowPieces, 32);
  // Bytes between rows: lanes that load a matrix, or a column of floats, touch different banks.
  static constexpr int kPitch =
      sizeof(scalar_t) == 2 ? 16 * (ceil_div(K::kColumnSlices, 2) * 2 | 1)
                            : 4 * (ceil_div(K::kColumnSlices, 2) * 16 + 4);
  static constexpr int kChunkBytes = kSlice * kPitch;
  static constexpr int kChunks = K::kRingChunks;
  static constexpr int kBytes = kChunks * kChunkBytes;

  const MmaCall& call;
  const char* source;  // the first element of the next chunk
  uint32_t ring, next;  // in shared memory: the first chunk, and where the next one goes
  int walk;             // whose chunks are being fetched
  int rows_left, columns_left, chunks_left;

  __device__ __forceinline__ RowRing(const MmaCall& call_, uint32_t ring_)
      : call(call_), ring(ring_), next(ring_), walk(first_walk<K>() - walk_step<K>()), chunks_left(0) {
    for (int k = 0; k < kChunks; ++k) fetch();
  }

  // Begins to copy the next chunk. One group is committed in any case, so that they can be counted.
  __device__ __forceinline__ void fetch() {
    while (chunks_left == 0 && walk < call.walks) begin_walk();
    if (chunks_left != 0) {
      if (call.load_bytes == 16) {
        copy<16>();
      } else if (call.load_bytes == 4) {
        copy<4>();
      } else {
        copy_elements();
      }
      --chunks_left;
      rows_left -= kSlice;
      source += kSlice * call.x_row * sizeof(scalar_t);
      next = next + kChunkBytes == ring + kBytes ? ring : next + kChunkBytes;
    }
    commit_copies();
  }

 private:
  __device__ __forceinline__ void begin_walk() {
    walk += walk_step<K>();
    if (walk >= call.walks) return;
    const Place<K> place(call, walk);
    chunks_left = place.chunks;
    rows_left = call.in_h - kSlice * place.first_chunk;
    columns_left = call.in_w - kSlice * place.column_slice;
    source = static_cast<const char*>(call.x) +
             (place.plane / call.channels * call.x_batch + place.plane % call.channels * call.x_channel +
              kSlice * (place.first_chunk * call.x_row + place.column_slice * call.x_column)) *
                 int64_t(sizeof(scalar_t));
  }

  // The pieces of 16 bytes of a chunk that this lane brings: function(row, first column, valid elements).
  template <typename Function>
  __device__ __forceinline__ void for_each_piece(const Function& function) {
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const int piece = round * 32 + threadIdx.x % 32;
      const int row = piece / kRowPieces, column = piece % kRowPieces * kPieceElements;
      if (kSlice * kRowPieces % 32 == 0 || row < kSlice) {
        // Slices lie inside or outside of the left edge as a whole.
        const bool inside = row < rows_left && column < columns_left &&
                            columns_left - column <= call.in_w;
        function(row, column, inside ? min(columns_left - column, kPieceElements) : 0);
      }
    }
  }

  template <int kBytesOfCopy>
  __device__ __forceinline__ void copy() {
    constexpr int kCopies = 16 / kBytesOfCopy, kElements = kBytesOfCopy / sizeof(scalar_t);
    for_each_piece([&](int row, int column, int valid) {
      const char* from = source + (row * call.x_row + column) * int64_t(sizeof(scalar_t));
#pragma unroll
      for (int c = 0; c < kCopies; ++c) {
        const int count = min(max(valid - c * kElements, 0), kElements);
        copy_async<kBytesOfCopy>(next + row * kPitch + column * int(sizeof(scalar_t)) + c * kBytesOfCopy,
                                 count ? from + c * kBytesOfCopy : call.x,
                                 count * int(sizeof(scalar_t)));
      }
    });
  }

  // Element by element, from anywhere.
  __device__ __forceinline__ void copy_elements() {
    using Bits = std::conditional_t<sizeof(scalar_t) == 2, uint16_t, uint32_t>;
    for_each_piece([&](int row, int column, int valid) {
      const Bits* from =
          reinterpret_cast<const Bits*>(source) + row * call.x_row + column * call.x_column;
      uint32_t words[4] = {};
#pragma unroll
      for (int e = 0; e < kPieceElements; ++e) {
        const uint32_t bits = e < valid ? from[e * call.x_column] : 0;
        words[e * sizeof(Bits) / 4] |= bits << e * sizeof(Bits) * 8 % 32;
      }
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(
                       next + row * kPitch + column * int(sizeof(scalar_t))),
                   "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                   : "memory");
    });
  }
};

}  // namespace lltm_jit
