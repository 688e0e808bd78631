// The part of the sign map that a walk reads or writes: see sign_map.h.
#pragma once

#include "stylegan/filtered_lrelu/mma/memory/conditional_access.cuh"
#include "stylegan/filtered_lrelu/mma/memory/row_ring.cuh"
#include "stylegan/filtered_lrelu/mma/shape.cuh"

namespace lltm_jit {

// The tiles of the sign map that a step meets, counted from the first of the block.
struct MapRow {
  uint32_t* words;
  uint32_t* flags;
  int first, end;  // the tiles in the map that are this walk's
  LLTM_JIT_DEVICE bool has(int tile) const { return tile >= first && tile < end; }
  LLTM_JIT_DEVICE uint32_t* word(int tile) const { return words + tile * SignMap<int>::kTileWords; }
};
template <typename K>
LLTM_JIT_DEVICE MapRow map_row(const MmaCall& call, const Place<K>& place, int i) {
  const int map_row = place.map_row + i;
  const bool inside = map_row >= 0 && map_row < place.end_map_row;
  const int64_t tiles = int64_t(i) * call.map.tile_columns;
  return {call.args.signs + place.map_words + tiles * SignMap<int>::kTileWords + lane(),
          call.args.signs + place.map_flags + tiles, place.first_map_tile,
          inside ? place.end_map_tile : place.first_map_tile};
}

// The signs that a step reads. Its `negative` words are loaded a step ahead: each word is replaced
// by the next step's as soon as it has been used. The `clamped` words, which are seldom read, are
// prefetched into the second-level cache.
template <typename K>
struct ReadSigns {
  static constexpr int kWords =
      ceil_div(K::kTiles + 3, 4);  // a block may begin within a tile of the map
  uint32_t negative[kWords];
  uint32_t clamped_tiles;  // a bit per tile: whether its `clamped` words are read
  uint32_t next_flag;      // the same for this lane's tile in the next step

  LLTM_JIT_DEVICE void begin(const MmaCall& call, const Place<K>& place) {
    const MapRow map = map_row(call, place, 0);
    clamped_tiles = __ballot_sync(~0u, flag(map) != 0);
    LLTM_JIT_UNROLLED(m, kWords) negative[m] = load_if(map.word(m), map.has(m));
    next_flag = flag(map_row(call, place, 1));
  }
  static LLTM_JIT_DEVICE uint32_t flag(const MapRow& map) {
    return load_if(map.flags + lane(), lane() < kWords && map.has(lane()));
  }
  // Shifts words as if the first tile of v were the first of a tile of the map.
  static LLTM_JIT_DEVICE void align(uint32_t (&words)[kWords], int shift) {
    const uint32_t mask = (0xffu << shift & 0xffu) * 0x01010101u;
    LLTM_JIT_UNROLLED(m, K::kMapTiles) {
      const uint32_t next = m + 1 < kWords ? words[m + 1] : 0;
      words[m] = (words[m] << shift & mask) | (next >> (8 - shift) & ~mask);
    }
  }
};

// The words of the sign map that a step is using: four tiles of v at a time.
template <typename K>
struct MapWords {
  static constexpr bool kReads = K::kSigns == Signs::Read;
  const MmaCall& call;
  ReadSigns<K>& signs;
  MapRow map;  // the step's own if signs are written; the next step's if they are read
  uint32_t negative, clamped;
  uint32_t clamped_words[ReadSigns<K>::kWords], next_clamped_tiles;  // if signs are read
  const bool kClamped;

  LLTM_JIT_DEVICE MapWords(const MmaCall& call_, ReadSigns<K>& signs_, const Place<K>& place, int i,
                           bool clamps)
      : call(call_), signs(signs_), negative(0), clamped(0), kClamped(clamps) {
    if constexpr (K::kSigns == Signs::Write) {
      map = map_row(call, place, i);
      store_if(map.flags + lane(), uint32_t(clamps), map.has(lane()) && lane() < K::kMapTiles);
    } else if constexpr (kReads) {
      if (clamps) {
        const MapRow now = map_row(call, place, i);
        LLTM_JIT_UNROLLED(m, ReadSigns<K>::kWords) {
          const uint32_t* word = now.word(m) + call.map.clamped_words();
          clamped_words[m] = load_if(word, signs.clamped_tiles >> m & 1);
        }
      }
      map = map_row(call, place, i + 1);
      next_clamped_tiles = __ballot_sync(~0u, signs.next_flag != 0);
      signs.next_flag = ReadSigns<K>::flag(map_row(call, place, i + 2));
      if (call.map_shift != 0) {
        ReadSigns<K>::align(signs.negative, call.map_shift);
        if (clamps) ReadSigns<K>::align(clamped_words, call.map_shift);
      }
    }
  }
  LLTM_JIT_DEVICE void begin(int tile) {
    if (tile % 4 != 0) return;
    negative = clamped = 0;
    if constexpr (kReads) {
      const int m = tile / 4;
      negative = signs.negative[m];
      if (kClamped) clamped = clamped_words[m];
      prepare(m);
    }
  }
  LLTM_JIT_DEVICE void end(int tile) {
    if constexpr (K::kSigns == Signs::Write) {
      const int m = tile / 4;
      if (tile % 4 != 3 && tile != K::kTiles - 1) return;
      store_if(map.word(m), negative, map.has(m));
      if (kClamped) store_if(map.word(m) + call.map.clamped_words(), clamped, map.has(m));
    } else if constexpr (kReads) {
      if (tile != K::kTiles - 1) return;
#pragma unroll
      for (int m = K::kMapTiles; m < ReadSigns<K>::kWords; ++m) prepare(m);
      signs.clamped_tiles = next_clamped_tiles;
    }
  }

 private:
  // For the next step.
  LLTM_JIT_DEVICE void prepare(int m) {
    signs.negative[m] = load_if(map.word(m), map.has(m));
    prefetch_if(map.word(m) + call.map.clamped_words(), next_clamped_tiles >> m & 1);
  }
};

}  // namespace lltm_jit
