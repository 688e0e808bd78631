// Maths that the kernels of filtered_lrelu share: which samples meet which taps, and the activation.
#pragma once

#include "core/math/scalar.h"
#include "stylegan/filtered_lrelu/kernels.h"
#include "stylegan/filtered_lrelu/sign_map.h"

namespace lltm_jit {

// Note [Phases]
// The zeros between upsampled samples are not multiplied. With the taps in the order in which
// samples meet them (a convolution's reversed), sample m of u is
//   u[m] = sum over k of x[first + k] taps[tap + k up],  tap + k up < width,
//   first = ceil((m - pad) / up),  tap = first up + pad - m.
// The taps depend only on the phase, m % up; `first` of m + up is one more than that of m.
struct Phase {
  int first, tap, count;
};

LLTM_JIT_HOST_DEVICE Phase phase_of(int m, int pad, int up, int width) {
  const int ahead = m - pad, first = ahead >= 0 ? ceil_div(ahead, up) : -(-ahead / up);
  const int tap = first * up + pad - m;
  return {first, tap, tap < width ? ceil_div(width - tap, up) : 0};
}

// The index of the tap that sample `place` meets, in a row or column of the filter.
LLTM_JIT_HOST_DEVICE int tap_index(int place, int width, bool flip) {
  return flip ? place : width - 1 - place;
}

LLTM_JIT_HOST_DEVICE int height_of(const FirFilter& filter) {
  return filter.height > 0 ? filter.height : filter.width;
}

// The value of act at u = gain * sum, and the bits of its derivative. A NaN stays a NaN.
template <typename T>
struct Activated {
  T value;
  bool negative, clamped;
};
template <typename T>
LLTM_JIT_HOST_DEVICE Activated<T> activate(T u, T slope, T clamp) {
  const bool negative = u < T(0);
  const T value = negative ? slope * u : u;
  const bool above = value > clamp, below = value < -clamp;
  return {above ? clamp : below ? -clamp : value, negative, above || below};
}

// The derivative of act at a sample of v, from the map's words of its plane.
template <typename T, typename Int>
LLTM_JIT_HOST_DEVICE T derivative_at(const FilteredLreluArgs& args, const SignMap<Int>& map,
                                     const uint32_t* plane, int v_row, int v_column, T slope) {
  const int row = v_row + args.sign_y, column = v_column + args.sign_x;
  if (row < 0 || row >= args.sign_h || column < 0 || column >= args.sign_w) return 0;
  const uint32_t* word = plane + map.row_word(Int(row)) + map.column_word(column);
  const int bit = map.row_bit(row) + map.column_bit(column);
  const Int flag = map.flag_words() + map.flag_row(Int(row)) + map.flag_column(column);
  if (plane[flag] && word[map.clamped_words()] >> bit & 1) return 0;
  return *word >> bit & 1 ? slope : T(1);
}

}  // namespace lltm_jit
