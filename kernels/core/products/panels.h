// Matrix products on the CPU, as tiles whose sums stay in vector registers: products of rows by columns in panels.
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

#include <c10/macros/Macros.h>

#include <algorithm>
#include <tuple>

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

// Transposes as many vectors as they have lanes. Interleaving the halves moves the last bit of an element's
// place (vector, lane) to the front. After one round per bit of the lane, vector and lane have changed places.
template <typename Vec>
inline void transpose(Vec (&vectors)[Vec::size()]) {
  constexpr int kLanes = Vec::size(), kHalf = kLanes / 2;
  for (int step = 1; step < kLanes; step *= 2) {
    Vec moved[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kHalf; ++i) {
      std::tie(moved[2 * i], moved[2 * i + 1]) =
          at::vec::interleave2(vectors[i], vectors[i + kHalf]);
    }
    std::copy_n(moved, kLanes, vectors);
  }
}

// Copies `count` rows of `length` elements, at most as many rows as a vector has lanes, to columns of a vector's width,
// and zeros for the other rows.
template <typename scalar_t>
C10_NOINLINE void copy_transposed(const scalar_t* rows, int64_t stride, int64_t count,
                                  int64_t length, opmath_t<scalar_t>* target,
                                  int64_t target_stride) {
  using Vec = at::vec::Vectorized<opmath_t<scalar_t>>;
  constexpr int64_t kLanes = Vec::size();
  for (int64_t k = 0; k < length; k += kLanes) {
    const int64_t n = std::min(kLanes, length - k);
    Vec block[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) {
      block[i] = i < count ? load(rows + i * stride + k, n) : Vec(opmath_t<scalar_t>(0));
    }
    transpose(block);
    for (int64_t i = 0; i < n; ++i) block[i].store(target + (k + i) * target_stride);
  }
}

// Prefetches a row: a step, or a tile's products, takes long enough to hide the memory's latency.
template <typename T>
void prefetch_row(const T* row, int64_t count) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t i = 0; i < count; i += kLine) __builtin_prefetch(row + i, 0, 2);
}

// C = A B, or `sums` + A B if `sums` is not null, for one tile or several side by side. The rows of
// B, C and the sums are dense.
template <typename acc_t>
struct Tile {
  const acc_t* a;
  int64_t a_row_stride, a_depth_stride;
  const acc_t* b;
  int64_t b_stride;
  const acc_t* sums;
  int64_t sums_stride;
  acc_t* c;
  int64_t c_stride;
  int64_t columns, depth;
};

// The tile's `columns` need all kVectors vectors. The rows of B are whole vectors.
template <typename acc_t, int kRows, int kVectors>
C10_NOINLINE void panel_tile(const Tile<acc_t>& tile) {
  using Vec = at::vec::Vectorized<acc_t>;
  constexpr int64_t kRowsAhead = 16;  // of B, which are far apart if B is read in place
  Vec sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[r][v] = Vec(acc_t(0));
  }
  const acc_t *a = tile.a, *b = tile.b;
  const int64_t a_row_stride = tile.a_row_stride;
  for (int64_t k = 0; k < tile.depth; ++k, a += tile.a_depth_stride, b += tile.b_stride) {
    Vec columns[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      columns[v] = Vec::loadu(b + v * Vec::size());
      __builtin_prefetch(b + kRowsAhead * tile.b_stride + v * Vec::size());
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vec element(a[r * a_row_stride]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = at::vec::fmadd(element, columns[v], sums[r][v]);
      }
    }
  }
  constexpr int kLast = kVectors - 1;
  const int64_t in_last = std::min<int64_t>(Vec::size(), tile.columns - kLast * Vec::size());
  // The depth is summed in blocks: rounding errors grow with the number of blocks, not with the depth.
  if (tile.sums != nullptr) {
    const int64_t sums_stride = tile.sums_stride;
    const acc_t* initial = tile.sums;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r, initial += sums_stride) {
#pragma GCC unroll 8
      for (int v = 0; v < kLast; ++v) {
        sums[r][v] = Vec::loadu(initial + v * Vec::size()) + sums[r][v];
      }
      sums[r][kLast] = load(initial + kLast * Vec::size(), in_last) + sums[r][kLast];
    }
  }
  const int64_t c_stride = tile.c_stride;  // else each store would reload it
  acc_t* c = tile.c;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r, c += c_stride) {
#pragma GCC unroll 8
    for (int v = 0; v < kLast; ++v) sums[r][v].store(c + v * Vec::size());
    store(c + kLast * Vec::size(), sums[r][kLast], in_last);
  }
}

// panel_tile for 1 to kRows rows and 1 to kVectors vectors, compiled once a family, in matrices.cpp.
template <typename acc_t>
void run_panel_tile(const Tile<acc_t>& tile, int64_t rows, int64_t vectors);

// Multiplies up to kRows rows by all columns, from left to right.
template <typename acc_t>
void multiply_strip(Tile<acc_t> tile, int64_t rows) {
  using Shape = RegisterTile<acc_t>;
  while (tile.columns > 0) {
    const int64_t vectors = std::min<int64_t>(
        Shape::kVectors, ceil_div(tile.columns, static_cast<int64_t>(Shape::kLanes)));
    run_panel_tile(tile, rows, vectors);
    const int64_t done = vectors * Shape::kLanes;
    tile.columns -= done;
    tile.b += done;
    tile.c += done;
    if (tile.sums != nullptr) tile.sums += done;
  }
}

// Uses tiles of (nearly) equal numbers of rows, because tiles of one or two rows leave multipliers
// idle. It is in the header because a product that calls it out of line takes a quarter longer.
template <typename acc_t>
void multiply_rows(Tile<acc_t> tile, int64_t rows) {
  constexpr int64_t kRows = RegisterTile<acc_t>::kRows;
  for (int64_t tiles = ceil_div(rows, kRows); tiles > 0; --tiles) {
    const int64_t done = ceil_div(rows, tiles);
    multiply_strip(tile, done);
    rows -= done;
    tile.a += done * tile.a_row_stride;
    tile.c += done * tile.c_stride;
    if (tile.sums != nullptr) tile.sums += done * tile.sums_stride;
  }
}

// Copies rows of `columns` elements to rows of `target_stride`, and fills these with zeros up to whole vectors.
template <typename scalar_t>
void copy_block(const scalar_t* source, int64_t source_stride, int64_t rows, int64_t columns,
                opmath_t<scalar_t>* target, int64_t target_stride) {
  constexpr int64_t kLanes = at::vec::Vectorized<opmath_t<scalar_t>>::size();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; column += kLanes) {
      load(source + column, std::min(kLanes, columns - column)).store(target + column);
    }
    source += source_stride;
    target += target_stride;
  }
}

// The number of columns to take next. Four vectors are faster as two and two than as three and one.
template <typename acc_t>
int64_t panel_columns(int64_t left) {
  using Shape = RegisterTile<acc_t>;
  return left > Shape::kPanel && left <= 4 * Shape::kLanes ? 2 * Shape::kLanes : Shape::kPanel;
}

// Calls function(first vector, vectors) for the panels of vectors [begin, end) of columns.
template <typename acc_t, typename Function>
void for_each_panel(int64_t begin, int64_t end, const Function& function) {
  constexpr int64_t kLanes = RegisterTile<acc_t>::kLanes;
  for (int64_t vectors; begin < end; begin += vectors) {
    vectors = std::min(panel_columns<acc_t>((end - begin) * kLanes) / kLanes, end - begin);
    function(begin, vectors);
  }
}

}  // namespace lltm_jit
