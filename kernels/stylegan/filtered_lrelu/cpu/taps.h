// The taps of filters on the CPU, and rows in parts.
#pragma once

#include <vector>

#include "stylegan/filtered_lrelu/maths.h"

namespace lltm_jit {

// A filter's taps in the order in which samples meet them: see Note [Phases].
template <typename acc_t>
struct Taps {
  int width, height;
  bool separable;
  std::vector<acc_t> taps;

  explicit Taps(const FirFilter& filter)
      : width(filter.width), height(height_of(filter)), separable(filter.height == 0) {
    for (int y = 0; y < (separable ? 1 : height); ++y) {
      const int row = separable ? 0 : tap_index(y, height, filter.flip);
      for (int x = 0; x < width; ++x) {
        const int place = row * width + tap_index(x, width, filter.flip);
        taps.push_back(filter.taps ? filter.taps[place] : 1);
      }
    }
  }
  acc_t operator[](int x) const { return taps[x]; }
  acc_t at(int y, int x) const { return taps[y * width + x]; }
};

// Copies source[part][i] to target[i * parts + part], or the reverse.
template <int kParts, bool kBack, typename acc_t>
void interleave_by(acc_t* parts, int pitch, int count, int parts_count, acc_t* row) {
  const int step = kParts ? kParts : parts_count;
  for (int i = 0; i < count; ++i) {
    for (int part = 0; part < step; ++part) {
      if constexpr (kBack) {
        parts[part * pitch + i] = row[i * step + part];
      } else {
        row[i * step + part] = parts[part * pitch + i];
      }
    }
  }
}
template <bool kBack, typename acc_t>
void interleave(acc_t* parts, int pitch, int count, int parts_count, acc_t* row) {
  if (parts_count == 2) return interleave_by<2, kBack>(parts, pitch, count, 2, row);
  if (parts_count == 4) return interleave_by<4, kBack>(parts, pitch, count, 4, row);
  interleave_by<0, kBack>(parts, pitch, count, parts_count, row);
}

}  // namespace lltm_jit
