// Matrix products on the CPU, as tiles whose sums stay in vector registers.
//
// Note [Two tiles]
// dot_tile multiplies rows by rows (A B^T). It reads both along their rows, lane by lane, and sums
// the lanes at the end. It copies and transposes nothing, which suits few rows. panel_tile
// multiplies rows by columns (A B). It reads B along its rows and broadcasts the elements of A,
// both in the arithmetic type: 16-bit rows of A are converted once, and blocks of B once for many
// tiles. In both, each loaded vector serves several multiply-adds, and enough independent sums keep
// the multipliers busy. The order of a sum depends only on the sizes of the whole product, so
// neither the number of threads nor the division of the work changes a bit.
#pragma once

#include "core/types/vectorized.h"

namespace lltm_jit {

// The number of sums that fit in the registers.
template <typename acc_t>
struct RegisterTile {
  using Vec = at::vec::Vectorized<acc_t>;
  static constexpr int kLanes = Vec::size();
  static constexpr bool kManyRegisters = sizeof(Vec) == 64;  // AVX-512 has 32, AVX2 has 16
  // Sums of one dot_tile: rows of A by rows of B.
  static constexpr int kDotRows = kManyRegisters ? 4 : 3;
  static constexpr int kDotColumns = kManyRegisters ? 6 : 3;
  // Sums of one panel_tile: rows of A by vectors of columns of B.
  static constexpr int kRows = kManyRegisters ? 8 : 4;
  static constexpr int kVectors = 3;
  static constexpr int kPanel = kVectors * kLanes;

  // The number of elements, rounded up.
  static int64_t whole_vectors(int64_t count) { return ceil_div(count, int64_t(kLanes)) * kLanes; }
};

}  // namespace lltm_jit
