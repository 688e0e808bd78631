// The way of results from a warp to memory: tiles of 16 columns by 8 rows are collected in shared
// memory, in a stage for the rows that one step completes, and leave it in wide stores.
#pragma once

#include "stylegan/filtered_lrelu/mma/memory/conditional_access.cuh"
#include "stylegan/filtered_lrelu/mma/memory/row_ring.cuh"
#include "stylegan/filtered_lrelu/mma/shape.cuh"

namespace lltm_jit {

// What a step has ready in registers: a tile that waits for its neighbour and, if signs are read,
// sums.
template <typename K>
struct StepResults {
  using scalar_t = typename K::scalar;
  static constexpr bool k16Bit = sizeof(scalar_t) == 2;

  const Place<K>& place;
  const int row;  // the stage's first row
  const float scale;
  uint32_t waiting[K::kBegun][2] = {};
  FloatSums sums = {};

  LLTM_JIT_DEVICE StepResults(const Place<K>& place_, int row_, float scale_)
      : place(place_), row(row_), scale(scale_) {}

  // A lane has columns l / 4 and l / 4 + 8 of a tile, two rows of each.
  LLTM_JIT_DEVICE bool has_row(int b, int r) const {
    const int own = row + kSlice * b + fragment_column() + r;
    return own >= 0 && place.part.has_row(own);
  }
  LLTM_JIT_DEVICE bool has_column(int pair, int half) const {
    if (K::kWhole && K::kOneBlock) return true;
    return place.part.has_column(kTile * pair + fragment_row() + 8 * half);
  }

  // Adds up the numbers of two tiles, rounded as they are stored.
  LLTM_JIT_DEVICE void add(int b, int pair, const uint32_t (&tiles)[4]) {
    uint32_t mine[4];
    LLTM_JIT_UNROLLED(m, 4) mine[m] = has_column(pair + m / 2, m % 2) ? tiles[m] : 0;
    // Multiplies by a matrix of eighths, with zeros for rows that are not y's: its 8 columns sum to the result.
    const uint32_t eighth = pack2<scalar_t>(0.125f, 0.f);
    const uint32_t rows = (has_row(b, 0) ? eighth : 0) | (has_row(b, 1) ? eighth << 16 : 0);
    const uint32_t eighths[2] = {rows, rows};
    sums = multiply_add_as<scalar_t>(mine, eighths, sums);
  }
  // The same for floats, row by row.
  LLTM_JIT_DEVICE void add(int b, int pair, const float (&y)[4]) {
    LLTM_JIT_UNROLLED(e, 4) {
      if (has_column(pair, e / 2)) sums.value[2 * b + e % 2] += y[e];
    }
  }
  LLTM_JIT_DEVICE float sum() const {
    float all = 0;
    LLTM_JIT_UNROLLED(e, (k16Bit ? 4 : 2 * K::kBegun)) {
      if (k16Bit || has_row(e / 2, e % 2)) all += sums.value[e];
    }
    return all;
  }
};

template <typename K>
struct Stage {
  using scalar_t = typename K::scalar;

  const MmaCall& call;
  const uint32_t address;  // in shared memory

  // Stores a finished tile of y, whose columns begin at 16 pair, in the b-th 8 rows of the stage.
  LLTM_JIT_DEVICE void put(const FloatSums& tile, int b, int pair, StepResults<K>& results) const {
    const int first_row = kSlice * b;
    float y[4];
    LLTM_JIT_UNROLLED(e, 4) y[e] = tile.value[e] * results.scale;
    if constexpr (sizeof(scalar_t) == 2) {
      const uint32_t left = pack2<scalar_t>(y[0], y[1]), right = pack2<scalar_t>(y[2], y[3]);
      uint32_t (&waiting)[2] = results.waiting[b];
      const bool last = pair == K::kOutTiles / 2 - 1;
      if (pair % 2 == 0 && !last) {
        waiting[0] = left, waiting[1] = right;
      } else if (pair % 2 == 0) {
        const uint32_t tiles[4] = {left, right, 0, 0};
        const uint32_t own[2] = {left, right};
        store_transposed(row_of_lane(first_row, lane() / 8 % 2 + 2 * pair), own);
        if constexpr (K::kSigns == Signs::Read) results.add(b, pair, tiles);
      } else {
        const uint32_t tiles[4] = {waiting[0], waiting[1], left, right};
        store_transposed(row_of_lane(first_row, lane() / 8 + 2 * (pair - 1)), tiles);
        if constexpr (K::kSigns == Signs::Read) results.add(b, pair - 1, tiles);
      }
    } else {
      if constexpr (K::kSigns == Signs::Read) results.add(b, pair, y);
      const uint32_t at = address + (first_row + fragment_column()) * K::kStagePitch +
                          (kTile * pair + fragment_row()) * 4;
      LLTM_JIT_UNROLLED(e, 4) {
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(at + e % 2 * K::kStagePitch + e / 2 * 32),
                     "f"(y[e])
                     : "memory");
      }
    }
  }

  // Writes the stage's rows to memory, as the walk's rows of y from `row` on.
  LLTM_JIT_DEVICE void store(const Place<K>& place, int row) const {
    if (K::kWhole || call.store_bytes == 16) {
      store_pieces<uint4>(place, row);
    } else if (call.store_bytes == 4) {
      store_pieces<uint32_t>(place, row);
    } else {
      store_pieces<uint16_t>(place, row);
    }
  }

 private:
  // The address of this lane's row in the 8 x 8 numbers that begin at column 8 j.
  LLTM_JIT_DEVICE uint32_t row_of_lane(int first_row, int j) const {
    return address + (first_row + lane() % 8) * K::kStagePitch + j * 16;
  }

  template <typename Piece>
  LLTM_JIT_DEVICE void store_pieces(const Place<K>& place, int first_row) const {
    if constexpr (sizeof(Piece) >= sizeof(scalar_t)) {
      constexpr int kElements = sizeof(Piece) / sizeof(scalar_t);
      constexpr int kPieces = 8 * K::kOutTiles / kElements;  // of a row
      constexpr int kUnroll = sizeof(Piece) == 16 ? ceil_div(K::kStageRows * kPieces, 32) : 4;
      const int pitch = call.args.out_w * int(sizeof(scalar_t));
      const auto part = place.part;
      if constexpr (32 % kPieces == 0 && 32 / kPieces <= K::kStageRows) {
        // Each lane's pieces lie below each other.
        constexpr int kRows = 32 / kPieces;
        const int y = lane() / kPieces, x = lane() % kPieces * kElements;
        const uint32_t from = address + y * K::kStagePitch + x * int(sizeof(scalar_t));
        char* to = place.y + x * int(sizeof(scalar_t));
        const bool mine = part.has_column(x);
#pragma unroll kUnroll
        for (int rows = 0; rows < K::kStageRows; rows += kRows) {
          const int row = first_row + y + rows;
          store_if(to + int64_t(row) * pitch, load_shared<Piece>(from + rows * K::kStagePitch),
                   mine && part.has_row(row));
        }
      } else {
#pragma unroll kUnroll
        for (int p = lane(); p < K::kStageRows * kPieces; p += 32) {
          const int y = p / kPieces, x = p % kPieces * kElements, row = first_row + y;
          store_if(place.y + int64_t(row) * pitch + x * int(sizeof(scalar_t)),
                   load_shared<Piece>(address + y * K::kStagePitch + x * int(sizeof(scalar_t))),
                   part.has_row(row) && part.has_column(x));
        }
      }
    }
  }
};

}  // namespace lltm_jit
