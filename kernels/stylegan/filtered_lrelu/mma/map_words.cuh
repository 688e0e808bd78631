// The sign map as a walk meets it: see sign_map.h.
#pragma once

#include "core/cuda/conditional_access.cuh"
#include "stylegan/filtered_lrelu/mma/row_ring.cuh"
#include "stylegan/filtered_lrelu/mma/shape.cuh"

namespace lltm_jit {

// The tiles of the sign map that a step meets, from the first of the block on.
struct MapRow {
  uint32_t* words;
  uint32_t* flags;
  int first, end;  // those that are in the map, and this walk's to write
  __device__ __forceinline__ bool has(int tile) const { return tile >= first && tile < end; }
};
template <typename K>
__device__ __forceinline__ MapRow map_row(const MmaCall& call, const Place<K>& place, int i) {
  const int map_row = place.map_row + i;
  const bool inside = map_row >= 0 && map_row < place.end_map_row;
  const int64_t tiles = int64_t(i) * call.map.tile_columns;
  return {call.signs + place.map_words + tiles * SignMap<int>::kTileWords + lane(),
          call.signs + place.map_flags + tiles, place.first_map_tile,
          inside ? place.end_map_tile : place.first_map_tile};
}

// The signs of one step, read while the one before it is computed.
template <typename K>
struct ReadSigns {
  static constexpr int kWords = K::kMapTiles + 1;  // a block may begin within a tile of the map
  uint32_t negative[kWords];
  bool clamped;  // a tile of this lane's has clamped samples

  __device__ __forceinline__ void read(const MmaCall& call, const Place<K>& place, int i) {
    const MapRow map = map_row(call, place, i);
#pragma unroll
    for (int m = 0; m < kWords; ++m) {
      const bool needed = map.has(m) && (m < K::kMapTiles || call.map_shift != 0);
      negative[m] = load_if(map.words + m * SignMap<int>::kTileWords, needed);
    }
    clamped = load_if(map.flags + lane(), lane() < kWords && map.has(lane())) != 0;
  }
  // The words as if the first tile of v were the first of a tile of the map.
  __device__ __forceinline__ void align(int shift) {
    if (shift == 0) return;
#pragma unroll
    for (int m = 0; m < K::kMapTiles; ++m) {
      negative[m] = aligned(negative[m], negative[m + 1], shift);
    }
  }
  static __device__ __forceinline__ uint32_t aligned(uint32_t word, uint32_t next, int shift) {
    const uint32_t mask = (0xffu << shift & 0xffu) * 0x01010101u;
    return (word << shift & mask) | (next >> (8 - shift) & ~mask);
  }
};

// The words of the sign map that a step has at hand: four tiles of v at a time.
template <typename K>
struct MapWords {
  const MmaCall& call;
  const ReadSigns<K>& signs;
  MapRow map;
  uint32_t negative, clamped;
  const bool kClamped;

  __device__ __forceinline__ MapWords(const MmaCall& call_, const ReadSigns<K>& signs_,
                                      const Place<K>& place, int i, bool clamps)
      : call(call_), signs(signs_), negative(0), clamped(0), kClamped(clamps) {
    if constexpr (K::kSigns == Signs::Write) {
      map = map_row(call, place, i);
      store_if(map.flags + lane(), uint32_t(clamps), map.has(lane()) && lane() < K::kMapTiles);
    } else if constexpr (K::kSigns == Signs::Read) {
      if (clamps) map = map_row(call, place, i);
    }
  }
  __device__ __forceinline__ void begin(int tile) {
    if (tile % 4 != 0) return;
    negative = clamped = 0;
    if constexpr (K::kSigns == Signs::Read) {
      const int m = tile / 4;
      negative = signs.negative[m];
      if (kClamped) {
        clamped = clamped_word(m);
        if (call.map_shift != 0) {
          clamped = ReadSigns<K>::aligned(clamped, clamped_word(m + 1), call.map_shift);
        }
      }
    }
  }
  __device__ __forceinline__ uint32_t clamped_word(int m) const {
    return load_if(map.words + call.map.clamped_words() + m * SignMap<int>::kTileWords, map.has(m));
  }
  __device__ __forceinline__ void end(int tile) {
    if constexpr (K::kSigns == Signs::Write) {
      const int m = tile / 4;
      if (tile % 4 != 3 && tile != K::kTiles - 1) return;
      uint32_t* word = map.words + m * SignMap<int>::kTileWords;
      store_if(word, negative, map.has(m));
      if (kClamped) store_if(word + call.map.clamped_words(), clamped, map.has(m));
    }
  }
};

}  // namespace lltm_jit
