// The results on their way from a warp to memory: tiles of 16 x 8 meet in shared memory, a stage of
// 16 rows, and leave in wide stores.
#pragma once

#include "core/cuda/conditional_access.cuh"
#include "stylegan/filtered_lrelu/mma/row_ring.cuh"
#include "stylegan/filtered_lrelu/mma/shape.cuh"

namespace lltm_jit {

// What one step has ready beside the stage: a tile that waits for its neighbour, and sums of rows, of
// which the lanes that share a row have parts.
struct StepResults {
  const float scale;
  uint32_t pair[2] = {};
  FloatSums sums = {};
  __device__ __forceinline__ explicit StepResults(float scale_) : scale(scale_) {}
  // Of the lane's upper and lower row.
  __device__ __forceinline__ float of_row(int r) const {
    return sums.value[2 * r] + sums.value[2 * r + 1];
  }
};

template <typename K>
struct Stage {
  using scalar_t = typename K::scalar;

  const MmaCall& call;
  const uint32_t address;  // in shared memory

  // A finished tile of y, 16 rows by the 8 columns from 8 j on, to the stage.
  __device__ __forceinline__ void put(const Place<K>& place, const FloatSums& tile, int j,
                                      StepResults& results) const {
    float y[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) y[e] = tile.value[e] * results.scale;
    if constexpr (sizeof(scalar_t) == 2) {
      const uint32_t top = pack2<scalar_t>(y[0], y[1]), bottom = pack2<scalar_t>(y[2], y[3]);
      if (j % 2 == 0) {
        results.pair[0] = top, results.pair[1] = bottom;
      } else {
        const uint32_t tiles[4] = {results.pair[0], results.pair[1], top, bottom};
        store_matrices(address + lane() % 16 * K::kStagePitch + (lane() / 16 + j - 1) * 16, tiles);
        if constexpr (K::kSigns == Signs::Read) {
          // Times a matrix of which each column has an eighth, for y's columns.
          const uint32_t eighths[2] = {eighths_of_y(place, j - 1), eighths_of_y(place, j)};
          results.sums = multiply_add_as<scalar_t>(tiles, eighths, results.sums);
        }
      }
    } else {
      if constexpr (K::kSigns == Signs::Read) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (place.part.has_column(8 * j + fragment_column() + e % 2))
            results.sums.value[e] += y[e];
        }
      }
      const uint32_t at =
          address + fragment_row() * K::kStagePitch + (8 * j + fragment_column()) * 4;
      asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(y[0]), "f"(y[1]) : "memory");
      asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at + 8 * K::kStagePitch), "f"(y[2]),
                   "f"(y[3])
                   : "memory");
    }
  }

  // The stage's rows to memory, those of the walk's y from `row` on.
  __device__ __forceinline__ void store(const Place<K>& place, int row) const {
    if (K::kWhole || call.store_bytes == 16) {
      store_pieces<uint4>(place, row);
    } else if (call.store_bytes == 4) {
      store_pieces<uint32_t>(place, row);
    } else {
      store_pieces<uint16_t>(place, row);
    }
  }

 private:
  // This lane's two of a tile's columns: 1/8 where they are of y, else 0.
  static __device__ __forceinline__ uint32_t eighths_of_y(const Place<K>& place, int j) {
    const int column = 8 * j + fragment_column();
    if (K::kWhole && K::kOneBlock) return pack2<scalar_t>(0.125f, 0.125f);
    const uint32_t eighth = pack2<scalar_t>(0.125f, 0.f);
    return (place.part.has_column(column) ? eighth : 0) |
           (place.part.has_column(column + 1) ? eighth << 16 : 0);
  }

  template <typename Piece>
  __device__ __forceinline__ void store_pieces(const Place<K>& place, int first_row) const {
    if constexpr (sizeof(Piece) >= sizeof(scalar_t)) {
      constexpr int kElements = sizeof(Piece) / sizeof(scalar_t);
      constexpr int kPieces = 8 * K::kOutTiles / kElements;  // of a row
      constexpr int kUnroll = sizeof(Piece) == 16 ? kTile * kPieces / 32 : 4;
      const int pitch = call.out_w * int(sizeof(scalar_t));
      const auto part = place.part;
      if constexpr (32 % kPieces == 0) {  // a lane's pieces are below each other
        constexpr int kRows = 32 / kPieces;
        const int y = lane() / kPieces, x = lane() % kPieces * kElements;
        const uint32_t from = address + y * K::kStagePitch + x * int(sizeof(scalar_t));
        char* to = place.y + x * int(sizeof(scalar_t));
        const bool mine = part.has_column(x);
#pragma unroll kUnroll
        for (int rows = 0; rows < kTile; rows += kRows) {
          const int row = first_row + y + rows;
          store_if(to + int64_t(row) * pitch, load_shared<Piece>(from + rows * K::kStagePitch),
                   mine && part.has_row(row));
        }
      } else {
#pragma unroll kUnroll
        for (int p = lane(); p < kTile * kPieces; p += 32) {
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
