// Converts a row's signs on the CPU between the map and one byte per sample: bit 0 negative, bit 1 clamped.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "stylegan/filtered_lrelu/sign_map.h"

namespace lltm_jit {

class SignRows {
 public:
  using Map = SignMap<int64_t>;

  explicit SignRows(const Map& map) : map_(map), codes_(map.tile_columns * Map::kTileColumns) {}

  // The codes of a row, from the map's first column on.
  uint8_t* codes() { return codes_.data() + map_.phase_x; }

  // Adds the codes to a plane's map, which starts as zeros. `clamped`: some samples are clamped.
  void write(uint32_t* plane, int row, bool clamped) {
    for_words(row, [&](int64_t word, const uint8_t* first, int, auto each) {
      uint32_t negative = 0, over = 0;
      each([&](int group, int bit) {
        const uint32_t pair = load_pair(first + group * 8);
        negative |= spread(pair) << bit;
        over |= spread(pair >> 1) << bit;
      });
      plane[word] |= negative;
      if (clamped) plane[word + map_.clamped_words()] |= over;
    });
    if (!clamped) return;
    uint32_t* flags = plane + map_.flag_words() + map_.flag_row(row);
    for (int64_t tile = 0; tile < map_.tile_columns; ++tile) {
      const auto first = codes_.begin() + tile * Map::kTileColumns;
      flags[tile] |= std::any_of(first, first + Map::kTileColumns,
                                 [](uint8_t code) { return (code & 2) != 0; });
    }
  }

  void read(const uint32_t* plane, int row) {
    const uint32_t* flags = plane + map_.flag_words() + map_.flag_row(row);
    for_words(row, [&](int64_t word, uint8_t* first, int64_t tile, auto each) {
      const uint32_t negative = plane[word];
      const uint32_t over = flags[tile] ? plane[word + map_.clamped_words()] : 0;
      each([&](int group, int bit) {
        for (int i = 0; i < 2; ++i) {
          const int place = bit + 16 * i;
          first[group * 8 + i] =
              static_cast<uint8_t>((negative >> place & 1) | (over >> place & 1) << 1);
        }
      });
    });
  }

 private:
  // Moves bit 0 of the codes of two neighbouring samples 16 bits apart.
  static uint32_t spread(uint32_t pair) { return (pair & 1) | (pair & 0x100) << 8; }
  static uint32_t load_pair(const uint8_t* codes) {
    uint16_t pair;
    std::memcpy(&pair, codes, sizeof(pair));
    return pair;
  }

  // Calls function(word, codes of its first two samples, its tile, each) for each word of a row. In
  // it, each(visit) calls visit(group, bit) for the word's eight pairs of samples, 8 columns apart.
  template <typename Function>
  void for_words(int row, const Function& function) {
    const int64_t row_word = map_.row_word(int64_t(row));
    const int row_bit = map_.row_bit(row);
    const Map columns(0, 0, 0, 0);  // for places within tiles, which have no phase
    for (int64_t tile = 0; tile < map_.tile_columns; ++tile) {
      for (int pair = 0; pair < 8; pair += 2) {
        function(row_word + tile * Map::kTileWords + columns.column_word(pair),
                 codes_.data() + tile * Map::kTileColumns + pair, tile, [&](const auto& visit) {
#pragma GCC unroll 8
                   for (int group = 0; group < 8; ++group) {
                     visit(group, row_bit + columns.column_bit(group * 8));
                   }
                 });
      }
    }
  }

  Map map_;
  std::vector<uint8_t> codes_;
};

}  // namespace lltm_jit
