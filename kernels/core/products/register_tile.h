// Matrix products on the CPU, as tiles whose sums stay in vector registers.
//
// Note [Two tiles]
// dot_tile multiplies rows by rows (A B^T): both are read along their rows, lane by lane, and the
// lanes are summed at the end, so nothing is copied or transposed first: for few rows. panel_tile
// multiplies rows by columns (A B): it reads B along its rows and broadcasts the elements of A. What
// it reads is of the arithmetic type: 16-bit rows of A are converted once, and blocks of B once for
// many tiles. Either way each vector that is loaded serves several multiply-adds, and there are enough
// independent sums to keep the multipliers busy. A sum's order depends on nothing but the sizes of the
// whole product, so the number of threads, and how the work is divided among them, changes no bit.
#pragma once

#include "core/types/vectorized.h"

namespace lltm_jit {

// How many sums fit the registers.
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
};

}  // namespace lltm_jit
