// The results on their way from a warp to memory: tiles of 16 x 8 meet in shared memory, a stage of
// 16 rows, and leave in wide stores.
#pragma once

#include "stylegan/filtered_lrelu/mma/row_ring.cuh"
#include "stylegan/filtered_lrelu/mma/shape.cuh"

namespace lltm_jit {

// What one step has ready beside the stage: a tile that waits for its neighbour, and the sums of
// the lane's upper and lower row.
struct StepResults {
  const float scale;
  uint32_t pair[2] = {};
  float sums[2] = {0, 0};
  __device__ __forceinline__ explicit StepResults(float scale_) : scale(scale_) {}
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
    if constexpr (K::kSigns == Signs::Read) {
      const int column =
          8 * (place.block * K::kOutTiles + j) + fragment_column() - Place<K>::columns_before(call);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const bool inside = Place<K>::kMayBeBefore ? static_cast<unsigned>(column + e % 2) <
                                                         static_cast<unsigned>(call.out_w)
                                                   : column + e % 2 < call.out_w;
        if (inside) results.sums[e / 2] += y[e];
      }
    }
    if constexpr (sizeof(scalar_t) == 2) {
      const uint32_t top = pack2<scalar_t>(y[0], y[1]), bottom = pack2<scalar_t>(y[2], y[3]);
      if (j % 2 == 0) {
        results.pair[0] = top, results.pair[1] = bottom;
      } else {
        store_matrices(address + lane() % 16 * K::kStagePitch + (lane() / 16 + j - 1) * 16,
                       {results.pair[0], results.pair[1], top, bottom});
      }
    } else {
      const uint32_t at =
          address + fragment_row() * K::kStagePitch + (8 * j + fragment_column()) * 4;
      asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(y[0]), "f"(y[1]) : "memory");
      asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at + 8 * K::kStagePitch), "f"(y[2]),
                   "f"(y[3])
                   : "memory");
    }
  }

  // The stage's rows to memory, those of the walk's y from 16 `tile` on.
  __device__ __forceinline__ void store(const Place<K>& place, int tile) const {
    const int row = kTile * (place.first_row_tile + tile) - Place<K>::rows_before(call);
    const int column = 8 * K::kOutTiles * place.block - Place<K>::columns_before(call);
    const Part part{-row, call.out_h - row, -column, call.out_w - column};
    auto* target = static_cast<scalar_t*>(call.y) + place.y + int64_t(kTile * tile) * call.out_w;
    if (call.store_bytes == 16) {
      store_pieces<uint4>(target, part);
    } else if (call.store_bytes == 4) {
      store_pieces<uint32_t>(target, part);
    } else {
      store_pieces<uint16_t>(target, part);
    }
  }

 private:
  // Which rows and columns of the stage are of y.
  struct Part {
    int first_row, end_row, first_column, end_column;
    __device__ __forceinline__ bool has_row(int row) const {
      return row < end_row && (!Place<K>::kMayBeBefore || row >= first_row);
    }
    __device__ __forceinline__ bool has_column(int column) const {
      return column < end_column && (!Place<K>::kMayBeBefore || column >= first_column);
    }
  };

  template <typename Piece>
  __device__ __forceinline__ void store_pieces(scalar_t* target, const Part& part) const {
    if constexpr (sizeof(Piece) >= sizeof(scalar_t)) {
      constexpr int kElements = sizeof(Piece) / sizeof(scalar_t);
      constexpr int kPieces = 8 * K::kOutTiles / kElements;  // of a row
      constexpr int kUnroll = sizeof(Piece) == 16 ? kTile * kPieces / 32 : 4;
      if constexpr (32 % kPieces == 0) {  // a lane's pieces are below each other
        constexpr int kRows = 32 / kPieces;
        const int y = lane() / kPieces, x = lane() % kPieces * kElements;
        const uint32_t from = address + y * K::kStagePitch + x * int(sizeof(scalar_t));
        const bool mine = part.has_column(x);
        scalar_t* to = target + y * call.out_w + x;
#pragma unroll kUnroll
        for (int rows = 0; rows < kTile; rows += kRows) {
          store_if(to + rows * call.out_w, load_stage<Piece>(from + rows * K::kStagePitch),
                   mine && part.has_row(y + rows));
        }
      } else {
#pragma unroll kUnroll
        for (int p = lane(); p < kTile * kPieces; p += 32) {
          const int y = p / kPieces, x = p % kPieces * kElements;
          store_if(target + int64_t(y) * call.out_w + x,
                   load_stage<Piece>(address + y * K::kStagePitch + x * int(sizeof(scalar_t))),
                   part.has_row(y) && part.has_column(x));
        }
      }
    }
  }
  template <typename Piece>
  static __device__ __forceinline__ Piece load_stage(uint32_t from) {
    return *static_cast<const Piece*>(__cvta_shared_to_generic(from));
  }
  // A store that the compiler makes no branch of.
  static __device__ __forceinline__ void store_if(scalar_t* to, const uint4& piece,
                                                  bool condition) {
    asm volatile(
        "{.reg .pred p;\n"
        "setp.ne.b32 p, %5, 0;\n"
        "@p st.global.cs.v4.b32 [%0], {%1, %2, %3, %4};}" ::"l"(to),
        "r"(piece.x), "r"(piece.y), "r"(piece.z), "r"(piece.w), "r"(int(condition))
        : "memory");
  }
  template <typename Piece>
  static __device__ __forceinline__ void store_if(scalar_t* to, Piece piece, bool condition) {
    if (condition) __stcs(reinterpret_cast<Piece*>(to), piece);
  }
};

}  // namespace lltm_jit
