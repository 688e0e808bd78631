// The layout of act's derivatives in memory: see Note [Signs] in kernels.h.
//
// Note [The sign map]
// Each sample of v has two bits: `negative` (gain u < 0, so that 0 and NaN pass) and `clamped`
// (|act| > clamp). Each plane has its own map of tiles, 16 rows by 64 columns of bits. A word has
// the bits that one lane of a warp holds when the samples come out of tensor cores, so that a warp
// reads or writes a tile as 32 neighbouring words. A plane is three arrays, one after another:
//   negative  [tile rows][tile columns][32]
//   clamped   [tile rows][tile columns][32]  neither written nor read for a tile without a flag
//   flags     [tile rows][tile columns]      not 0: the tile may have clamped samples
// The sample at (row, column) of v lies at (row + phase_y, column + phase_x) of the map. The phases, 0 to
// 15, align the map with the tiles that the filters' bands need in the forward and the backward pass.
// The word of a sample is row_word + column_word, the bit row_bit + column_bit; its tile's flag is at
// flag_words() + flag_row + flag_column.
#pragma once

#include "core/math/scalar.h"

namespace lltm_jit {

// Int may be a symbolic integer; a row or column may be anything that has these operations.
template <typename Int>
struct SignMap {
  static constexpr int kTileRows = 16, kTileColumns = 64, kTileWords = 32;

  Int tile_rows, tile_columns;
  int phase_y, phase_x;

  SignMap() = default;
  LLTM_JIT_HOST_DEVICE SignMap(Int height, Int width, int phase_y_, int phase_x_)
      : tile_rows((height + phase_y_ + (kTileRows - 1)) / kTileRows),
        tile_columns((width + phase_x_ + (kTileColumns - 1)) / kTileColumns),
        phase_y(phase_y_),
        phase_x(phase_x_) {}

  LLTM_JIT_HOST_DEVICE Int tiles() const { return tile_rows * tile_columns; }
  LLTM_JIT_HOST_DEVICE Int words_per_plane() const { return tiles() * (2 * kTileWords + 1); }

  template <typename Index>
  LLTM_JIT_HOST_DEVICE auto row_word(Index row) const {
    row = row + phase_y;
    return row / kTileRows * kTileWords * tile_columns + row % 8 * 4;
  }
  template <typename Index>
  LLTM_JIT_HOST_DEVICE Index column_word(Index column) const {
    column = column + phase_x;
    return column / kTileColumns * kTileWords + column % 8 / 2;
  }
  template <typename Index>
  LLTM_JIT_HOST_DEVICE Index row_bit(Index row) const {
    return (row + phase_y) / 8 % 2 * 8;
  }
  template <typename Index>
  LLTM_JIT_HOST_DEVICE Index column_bit(Index column) const {
    column = column + phase_x;
    return column % 2 * 16 + column / 8 % 8 * -1 + 7;
  }

  // Words from a `negative` word to its `clamped` word, and from a plane's first word to its flags.
  LLTM_JIT_HOST_DEVICE Int clamped_words() const { return tiles() * kTileWords; }
  LLTM_JIT_HOST_DEVICE Int flag_words() const { return tiles() * (2 * kTileWords); }
  template <typename Index>
  LLTM_JIT_HOST_DEVICE auto flag_row(const Index& row) const {
    return (row + phase_y) / kTileRows * tile_columns;
  }
  template <typename Index>
  LLTM_JIT_HOST_DEVICE Index flag_column(const Index& column) const {
    return (column + phase_x) / kTileColumns;
  }
};

}  // namespace lltm_jit
