// Where the two bits of a sample lie: see Note [Signs] in filtered_lrelu.h. A place is the sum of a part
// for the row and a part for the column.
#pragma once

#include <cstdint>

#include "core/math/scalar.h"

namespace lltm_jit {

constexpr int kSignRows = 1;  // rows of samples that share words

template <typename Int>
struct SignPlace {
  Int word;  // of the plane
  Int bit;   // the sample is negative; the next bit: its value was clamped
};

// 32-bit words of a plane of h by w samples: 16 samples of a row in each.
template <typename Int>
LLTM_JIT_HOST_DEVICE Int sign_words(const Int& h, const Int& w) {
  return h * ceil_div(w, 16);
}

template <typename Int, typename Size>
LLTM_JIT_HOST_DEVICE SignPlace<Int> sign_row(const Int& row, const Size& w) {
  return {row * ceil_div(w, 16), row * 0};
}
template <typename Int>
LLTM_JIT_HOST_DEVICE SignPlace<Int> sign_column(const Int& column) {
  return {column / 16, column % 16 * 2};
}

}  // namespace lltm_jit
