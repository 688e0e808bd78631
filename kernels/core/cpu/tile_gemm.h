// Matrix products on the CPU, as tiles whose sums stay in vector registers.
//
// Note [Two tiles]
// dot_tile multiplies rows by rows (A B^T): both are read along their rows, lane by lane, and the
// lanes are summed at the end, so nothing is copied or transposed first. multiply_panel multiplies
// rows by columns (A B): it reads B along its rows and broadcasts the elements of A. Either way each
// vector that is loaded serves several multiply-adds, and there are enough independent sums to keep
// the multipliers busy. A sum's order depends on nothing but its own length, so the number of threads
// and of rows changes no bit.
#pragma once

#include <c10/macros/Macros.h>

#include <algorithm>
#include <type_traits>

#include "core/cpu/vectorized.h"

namespace lltm_jit {

template <typename acc_t>
struct TileShape {
  using Vec = at::vec::Vectorized<acc_t>;
  static constexpr int kLanes = Vec::size();
  static constexpr bool kManyRegisters = sizeof(Vec) == 64;  // AVX-512 has 32, AVX2 has 16
  // Sums of one dot_tile: rows of A by rows of B.
  static constexpr int kDotRows = kManyRegisters ? 4 : 3;
  static constexpr int kDotColumns = kManyRegisters ? 6 : 3;
  // Sums of one tile of multiply_panel: rows of A by vectors of columns of B.
  static constexpr int kRows = kManyRegisters ? 8 : 6;
  static constexpr int kVectors = kManyRegisters ? 3 : 2;
  static constexpr int kPanel = kVectors * kLanes;
};

// Sums neighbouring lanes of two vectors: those of `a` end up in the lower half.
template <typename Vec>
inline Vec add_pairs(const Vec& a, const Vec& b) {
  const auto [even, odd] = at::vec::deinterleave2(a, b);
  return even + odd;
}

// Writes the sum over the lanes of each vector. `target` has room for whole vectors.
template <typename acc_t, int kCount>
inline void sum_lanes(at::vec::Vectorized<acc_t> (&vectors)[kCount], acc_t* target) {
  constexpr int kLanes = TileShape<acc_t>::kLanes;
  int count = kCount;
#pragma GCC unroll 4
  for (int step = 1; step < kLanes; step *= 2) {
    const int pairs = (count + 1) / 2;
#pragma GCC unroll 16
    for (int i = 0; i < pairs; ++i) {
      vectors[i] = add_pairs(vectors[2 * i], vectors[std::min(2 * i + 1, count - 1)]);
    }
    count = pairs;
  }
#pragma GCC unroll 16
  for (int i = 0; i < count; ++i) vectors[i].store(target + i * kLanes);
}

// A piece of the rows that dot_tile multiplies: `length` elements of rows a + r * a_stride and
// b + offset of row c.
template <typename scalar_t>
struct DotPiece {
  const scalar_t* a;
  int64_t a_stride;
  const scalar_t* b;
  int64_t length;
};

// Sums of kRows rows of A by kColumns rows of B, over two pieces of each. They start from what an
// earlier call left in `partial` if that call was not the first, and end in
// target[r * kColumns + c] if this one is the last. Both have room for whole vectors.
template <typename scalar_t, int kRows, int kColumns>
C10_NOINLINE void dot_tile(const DotPiece<scalar_t> (&pieces)[2],
                           const int64_t (&offsets)[kColumns], bool first, bool last,
                           opmath_t<scalar_t>* partial, opmath_t<scalar_t>* target) {
  using acc_t = opmath_t<scalar_t>;
  using Vec = at::vec::Vectorized<acc_t>;
  constexpr int kCount = kRows * kColumns;
  Vec sums[kCount];
#pragma GCC unroll 32
  for (int i = 0; i < kCount; ++i) {
    sums[i] = first ? Vec(acc_t(0)) : Vec::loadu(partial + i * Vec::size());
  }
  for (const auto& piece : pieces) {
    const auto add_lanes = [&](int64_t k, int64_t count) C10_ALWAYS_INLINE_ATTRIBUTE {
      Vec rows[kRows];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) rows[r] = load(piece.a + r * piece.a_stride + k, count);
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c) {
        const Vec column = load(piece.b + offsets[c] + k, count);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          sums[r * kColumns + c] = at::vec::fmadd(rows[r], column, sums[r * kColumns + c]);
        }
      }
    };
    int64_t k = 0;
    for (; k + Vec::size() <= piece.length; k += Vec::size()) add_lanes(k, Vec::size());
    if (k < piece.length) add_lanes(k, piece.length - k);
  }
  if (last) {
    sum_lanes<acc_t, kCount>(sums, target);
    return;
  }
#pragma GCC unroll 32
  for (int i = 0; i < kCount; ++i) sums[i].store(partial + i * Vec::size());
}

// C = A B for some columns of B and C. A may have any strides; B and C have dense rows.
template <typename scalar_t>
struct Panel {
  const scalar_t* a;
  int64_t a_row_stride, a_depth_stride;
  const scalar_t* b;
  int64_t b_stride;
  scalar_t* c;
  int64_t c_stride;
  int64_t rows, columns, depth;  // columns: 1 to TileShape::kPanel
};

// Depth of the block of B that is copied, and rows of A that it then serves, at most.
constexpr int64_t kPanelDepth = 192, kPanelRows = 64;

// Fewer rows than this read B where it lies: too few to pay for the copy.
constexpr int64_t kFewestRowsToCopyFor = 17;

// Rows [begin, end) of B are at b, b_stride apart; the sums wait in `partial` for those after them.
template <typename scalar_t, int kRows, int kVectors>
C10_NOINLINE void panel_tile(const Panel<scalar_t>& panel, const opmath_t<scalar_t>* b,
                             int64_t b_stride, int64_t row, int64_t begin, int64_t end,
                             opmath_t<scalar_t>* partial) {
  using acc_t = opmath_t<scalar_t>;
  using Shape = TileShape<acc_t>;
  using Vec = typename Shape::Vec;
  Vec sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = Vec(acc_t(0));
    }
  }
  const scalar_t* a = panel.a + row * panel.a_row_stride + begin * panel.a_depth_stride;
  for (int64_t k = begin; k < end; ++k, a += panel.a_depth_stride, b += b_stride) {
    Vec columns[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) columns[v] = Vec::loadu(b + v * Vec::size());
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vec element(static_cast<acc_t>(a[r * panel.a_row_stride]));
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = at::vec::fmadd(element, columns[v], sums[r][v]);
      }
    }
  }
  // Block sums are summed: rounding grows with their number, not with the depth.
  if (begin > 0) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = Vec::loadu(partial + r * Shape::kPanel + v * Vec::size()) + sums[r][v];
      }
    }
  }
  if (end < panel.depth) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v].store(partial + r * Shape::kPanel + v * Vec::size());
      }
    }
    return;
  }
  constexpr int kLast = kVectors - 1;
  const int64_t in_last = panel.columns - kLast * Vec::size();
  const int64_t c_stride = panel.c_stride;  // here, or each store would have it read again
  scalar_t* c = panel.c + row * c_stride;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r, c += c_stride) {
#pragma GCC unroll 8
    for (int v = 0; v < kLast; ++v) store(c + v * Vec::size(), sums[r][v], Vec::size());
    store(c + kLast * Vec::size(), sums[r][kLast], in_last);
  }
}

// Copies rows [begin, end) of the panel's columns of B, as acc_t, whole vectors filled with zeros.
template <typename scalar_t, int kVectors>
void copy_panel(const Panel<scalar_t>& panel, int64_t begin, int64_t end,
                opmath_t<scalar_t>* target) {
  using Vec = at::vec::Vectorized<opmath_t<scalar_t>>;
  for (int64_t k = begin; k < end; ++k) {
    for (int v = 0; v < kVectors; ++v, target += Vec::size()) {
      const int64_t column = v * Vec::size();
      load(panel.b + k * panel.b_stride + column,
           std::min<int64_t>(Vec::size(), panel.columns - column))
          .store(target);
    }
  }
}

// All rows of A with a block of B's rows.
template <typename scalar_t, int kVectors>
void multiply_rows(const Panel<scalar_t>& panel, const opmath_t<scalar_t>* b, int64_t b_stride,
                   int64_t first, int64_t last, int64_t begin, int64_t end,
                   opmath_t<scalar_t>* partial) {
  using Shape = TileShape<opmath_t<scalar_t>>;
  for (int64_t row = first; row < last;) {
    opmath_t<scalar_t>* waiting =
        partial == nullptr ? nullptr : partial + (row - first) * Shape::kPanel;
    const auto run = [&](auto rows) {
      panel_tile<scalar_t, rows(), kVectors>(panel, b, b_stride, row, begin, end, waiting);
      row += rows();
    };
    if (last - row >= Shape::kRows) {
      run(std::integral_constant<int, Shape::kRows>{});
    } else if (last - row >= 4) {
      run(std::integral_constant<int, 4>{});
    } else if (last - row >= 2) {
      run(std::integral_constant<int, 2>{});
    } else {
      run(std::integral_constant<int, 1>{});
    }
  }
}

template <typename scalar_t, int kVectors>
void multiply_vectors(const Panel<scalar_t>& panel) {
  using acc_t = opmath_t<scalar_t>;
  using Shape = TileShape<acc_t>;
  alignas(64) acc_t b[kPanelDepth * Shape::kPanel];
  alignas(64) acc_t partial[kPanelRows * Shape::kPanel];
  const bool one_block = panel.depth <= kPanelDepth;  // then no sum waits
  const int64_t rows = one_block ? std::max<int64_t>(1, panel.rows) : kPanelRows;
  for (int64_t first = 0; first < panel.rows; first += rows) {
    const int64_t last = std::min(panel.rows, first + rows);
    // At depth 0 there still are zeros to write.
    for (int64_t begin = 0; begin == 0 || begin < panel.depth; begin += kPanelDepth) {
      const int64_t end = std::min(panel.depth, begin + kPanelDepth);
      acc_t* sums = one_block ? nullptr : partial;
      if constexpr (std::is_same_v<scalar_t, acc_t>) {
        if (panel.rows < kFewestRowsToCopyFor && panel.columns == kVectors * Shape::kLanes) {
          const acc_t* in_place = panel.b + begin * panel.b_stride;
          multiply_rows<scalar_t, kVectors>(panel, in_place, panel.b_stride, first, last, begin,
                                            end, sums);
          continue;
        }
      }
      copy_panel<scalar_t, kVectors>(panel, begin, end, b);
      multiply_rows<scalar_t, kVectors>(panel, b, kVectors * Shape::kLanes, first, last, begin, end,
                                        sums);
    }
  }
}

template <typename scalar_t>
void multiply_panel(const Panel<scalar_t>& panel) {
  using Shape = TileShape<opmath_t<scalar_t>>;
  static_assert(Shape::kVectors <= 3);
  const int64_t vectors = ceil_div(panel.columns, Shape::kLanes);
  if (vectors == 1) {
    multiply_vectors<scalar_t, 1>(panel);
  } else if (vectors == 2) {
    multiply_vectors<scalar_t, 2>(panel);
  } else if constexpr (Shape::kVectors >= 3) {
    multiply_vectors<scalar_t, 3>(panel);
  }
}

}  // namespace lltm_jit
