// Products of rows by columns, in blocks and panels: see Note [Two tiles].
#pragma once

#include <c10/macros/Macros.h>

#include <algorithm>
#include <memory>
#include <tuple>
#include <type_traits>

#include "core/launch/parallel.h"
#include "core/products/bounds.h"
#include "core/products/register_tile.h"

namespace lltm_jit {

// Transposes as many vectors as they have lanes. Interleaving the halves moves the last bit of a place
// (vector, lane) to the front; after all bits of the lane, vector and lane have changed places.
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

// C = A B, or `sums` + A B where that is not null, for the rows and columns of one tile or of several
// side by side. The rows of B, C and the sums are dense.
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

// `columns` of the tile are more than fill kVectors - 1 vectors. The rows of B have whole ones.
template <typename acc_t, int kRows, int kVectors>
C10_NOINLINE void panel_tile(const Tile<acc_t>& tile) {
  using Vec = at::vec::Vectorized<acc_t>;
  constexpr int64_t kRowsAhead = 16;  // of B; where it lies in place, they are far apart
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
  // Block sums are summed: rounding grows with their number, not with the depth.
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
  const int64_t c_stride = tile.c_stride;  // here, or each store would have it read again
  acc_t* c = tile.c;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r, c += c_stride) {
#pragma GCC unroll 8
    for (int v = 0; v < kLast; ++v) sums[r][v].store(c + v * Vec::size());
    store(c + kLast * Vec::size(), sums[r][kLast], in_last);
  }
}

// kRows rows of all columns, from left to right.
template <typename acc_t, int kRows>
void multiply_strip(Tile<acc_t> tile) {
  using Shape = RegisterTile<acc_t>;
  while (tile.columns > 0) {
    const int64_t vectors = std::min<int64_t>(
        Shape::kVectors, ceil_div(tile.columns, static_cast<int64_t>(Shape::kLanes)));
    if (vectors == 3) {
      panel_tile<acc_t, kRows, 3>(tile);
    } else if (vectors == 2) {
      panel_tile<acc_t, kRows, 2>(tile);
    } else {
      panel_tile<acc_t, kRows, 1>(tile);
    }
    const int64_t done = vectors * Shape::kLanes;
    tile.columns -= done;
    tile.b += done;
    tile.c += done;
    if (tile.sums != nullptr) tile.sums += done;
  }
}

// In the header: a product that calls it takes a quarter longer than one that it is part of.
template <typename acc_t>
void multiply_rows(Tile<acc_t> tile, int64_t rows) {
  constexpr int kRows = RegisterTile<acc_t>::kRows;
  while (rows > 0) {
    const int64_t done = rows >= kRows ? kRows : rows >= 4 ? 4 : rows >= 2 ? 2 : 1;
    if (done == kRows) {
      multiply_strip<acc_t, kRows>(tile);
    } else if (done == 4) {
      multiply_strip<acc_t, 4>(tile);
    } else if (done == 2) {
      multiply_strip<acc_t, 2>(tile);
    } else {
      multiply_strip<acc_t, 1>(tile);
    }
    rows -= done;
    tile.a += done * tile.a_row_stride;
    tile.c += done * tile.c_stride;
    if (tile.sums != nullptr) tile.sums += done * tile.sums_stride;
  }
}

// Copies rows of `columns` elements to rows of `target_stride`, filled with zeros up to whole vectors.
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

// Dense rows in the arithmetic type: those that are given, or a copy of 16-bit ones.
template <typename scalar_t>
struct WideRows {
  using acc_t = opmath_t<scalar_t>;
  const acc_t* data;
  int64_t stride;
  std::unique_ptr<acc_t[]> copy;

  WideRows(const scalar_t* rows, int64_t row_stride, int64_t count, int64_t columns) {
    if constexpr (std::is_same_v<scalar_t, acc_t>) {
      data = rows;
      stride = row_stride;
    } else {
      constexpr int64_t kLanes = at::vec::Vectorized<acc_t>::size(), kGrain = 32768;
      // One vector more: rows that are whole pages apart would share their places in the cache.
      stride = ceil_div(columns, kLanes) * kLanes + kLanes;
      copy.reset(new acc_t[count * stride]);
      data = copy.get();
      const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, columns));
      at::parallel_for(0, count, grain, [&](int64_t begin, int64_t end) {
        copy_block(rows + begin * row_stride, row_stride, end - begin, columns,
                   copy.get() + begin * stride, stride);
      });
    }
  }
};

// C = A B, or a part of it: some rows of A and C, some columns of B and C. A may have any strides; B and
// C have dense rows.
template <typename scalar_t, typename out_t = scalar_t>
struct Product {
  const opmath_t<scalar_t>* a;
  int64_t a_row_stride, a_depth_stride;
  const scalar_t* b;
  int64_t b_stride;
  out_t* c;
  int64_t c_stride;
  int64_t rows, columns, depth;

  Product part(int64_t first_row, int64_t row_count, int64_t first_column,
               int64_t column_count) const {
    Product result = *this;
    result.a += first_row * a_row_stride;
    result.b += first_column;
    result.c += first_row * c_stride + first_column;
    result.rows = std::min(row_count, rows - first_row);
    result.columns = std::min(column_count, columns - first_column);
    return result;
  }
};

// The columns to take next, of those that are left: four vectors are done better as two and two than as
// three and one.
template <typename acc_t>
int64_t panel_columns(int64_t left) {
  using Shape = RegisterTile<acc_t>;
  return left > Shape::kPanel && left <= 4 * Shape::kLanes ? 2 * Shape::kLanes : Shape::kPanel;
}

constexpr int64_t kBlockDepth = PanelBounds::kBlockDepth, kBlockRows = PanelBounds::kBlockRows;

// A product by blocks, which this holds as the tiles want them: about 80 KB, for a thread's stack.
template <typename scalar_t, typename out_t>
class BlockedProduct {
 public:
  explicit BlockedProduct(const Product<scalar_t, out_t>& product) : product_(product) {}

  void run() {
    const bool one_block = product_.depth <= kBlockDepth;
    for (int64_t width, column = 0; column < product_.columns; column += width) {
      width = std::min(block_columns(product_.columns - column), product_.columns - column);
      if (one_block) take_b(column, width, 0, product_.depth);
      for (int64_t row = 0; row < product_.rows;) {
        const int64_t rows = std::min(block_rows(width), product_.rows - row);
        // At depth 0 there still are zeros to write.
        for (int64_t k = 0; k == 0 || k < product_.depth; k += kBlockDepth) {
          const int64_t depth = std::min(kBlockDepth, product_.depth - k);
          if (!one_block) take_b(column, width, k, depth);
          multiply(row, rows, column, width, k, depth);
        }
        row += rows;
      }
    }
  }

 private:
  using acc_t = opmath_t<scalar_t>;
  using Shape = RegisterTile<acc_t>;
  // The sums of a block; where the depth is small, C is written in long rows.
  static constexpr int64_t kSums = kBlockRows * 3 * Shape::kPanel;
  static constexpr int64_t kWidest = kSums / Shape::kRows;

  const Product<scalar_t, out_t>& product_;
  alignas(64) acc_t copy_of_b_[kBlockDepth * Shape::kPanel];
  alignas(64) acc_t sums_[kSums];
  const acc_t* b_ = nullptr;
  int64_t b_stride_ = 0;

  int64_t block_columns(int64_t left) const {
    const int64_t depth = std::clamp<int64_t>(product_.depth, 1, kBlockDepth);
    const int64_t panels = std::min(kBlockDepth / depth, kWidest / Shape::kPanel);
    return panels > 1 ? panels * Shape::kPanel : panel_columns<acc_t>(left);
  }

  static int64_t block_rows(int64_t width) {
    const int64_t stride = ceil_div(width, static_cast<int64_t>(Shape::kLanes)) * Shape::kLanes;
    return std::min(kBlockRows, kSums / stride / Shape::kRows * Shape::kRows);
  }

  void take_b(int64_t column, int64_t width, int64_t k, int64_t depth) {
    const scalar_t* block = product_.b + k * product_.b_stride + column;
    if constexpr (std::is_same_v<scalar_t, acc_t>) {
      if (product_.rows < PanelBounds::kFewestRowsToCopyFor && width % Shape::kLanes == 0) {
        b_ = block;
        b_stride_ = product_.b_stride;
        return;
      }
    }
    b_ = copy_of_b_;
    b_stride_ = ceil_div(width, static_cast<int64_t>(Shape::kLanes)) * Shape::kLanes;
    copy_block(block, product_.b_stride, depth, width, copy_of_b_, b_stride_);
  }

  void multiply(int64_t row, int64_t rows, int64_t column, int64_t width, int64_t k,
                int64_t depth) {
    const bool last = k + depth == product_.depth;
    out_t* c = product_.c + row * product_.c_stride + column;
    const int64_t stride = ceil_div(width, static_cast<int64_t>(Shape::kLanes)) * Shape::kLanes;
    Tile<acc_t> tile{};
    tile.a = product_.a + row * product_.a_row_stride + k * product_.a_depth_stride;
    tile.a_row_stride = product_.a_row_stride;
    tile.a_depth_stride = product_.a_depth_stride;
    tile.b = b_;
    tile.b_stride = b_stride_;
    tile.sums = k > 0 ? sums_ : nullptr;
    tile.sums_stride = stride;
    tile.c = sums_;
    tile.c_stride = stride;
    tile.columns = last ? width : stride;
    tile.depth = depth;
    if constexpr (std::is_same_v<out_t, acc_t>) {
      if (last) {
        tile.c = c;
        tile.c_stride = product_.c_stride;
      }
    }
    multiply_rows(tile, rows);
    if constexpr (!std::is_same_v<out_t, acc_t>) {
      if (last) round(rows, width, stride, c);
    }
  }

  void round(int64_t rows, int64_t width, int64_t stride, out_t* c) {
    for (int64_t row = 0; row < rows; ++row, c += product_.c_stride) {
      for (int64_t column = 0; column < width; column += Shape::kLanes) {
        store(c + column, Shape::Vec::loadu(sums_ + row * stride + column),
              std::min<int64_t>(Shape::kLanes, width - column));
      }
    }
  }
};

// One row: bound by reading B, which is done in long rows.
template <typename scalar_t>
void multiply_one_row(const Product<scalar_t>& product) {
  using Vec = at::vec::Vectorized<opmath_t<scalar_t>>;
  constexpr int64_t kColumns = PanelBounds::kOneRowColumns;
  constexpr int kUnroll = 4;  // rows of B
  alignas(64) opmath_t<scalar_t> sums[kColumns], block[kColumns];
  const auto rows_of_b = [&](int64_t k, int64_t column, int64_t width, auto count) {
    Vec elements[count()];
    for (int r = 0; r < count(); ++r) {
      elements[r] = Vec(product.a[(k + r) * product.a_depth_stride]);
    }
    const scalar_t* b = product.b + k * product.b_stride + column;
    for (int64_t i = 0; i < width; i += Vec::size()) {
      const int64_t n = std::min<int64_t>(Vec::size(), width - i);
      Vec sum = Vec::loadu(block + i);
      for (int r = 0; r < count(); ++r) {
        sum = at::vec::fmadd(elements[r], load(b + r * product.b_stride + i, n), sum);
      }
      sum.store(block + i);
    }
  };
  for (int64_t column = 0; column < product.columns; column += kColumns) {
    const int64_t width = std::min(kColumns, product.columns - column);
    std::fill_n(sums, kColumns, 0);
    for (int64_t begin = 0; begin < product.depth; begin += kBlockDepth) {
      std::fill_n(block, kColumns, 0);
      const int64_t end = std::min(product.depth, begin + kBlockDepth);
      int64_t k = begin;
      for (; k + kUnroll <= end; k += kUnroll) {
        rows_of_b(k, column, width, std::integral_constant<int, kUnroll>{});
      }
      for (; k < end; ++k) rows_of_b(k, column, width, std::integral_constant<int, 1>{});
      for (int64_t i = 0; i < kColumns; ++i) sums[i] += block[i];
    }
    for (int64_t i = 0; i < width; i += Vec::size()) {
      store(product.c + column + i, Vec::loadu(sums + i),
            std::min<int64_t>(Vec::size(), width - i));
    }
  }
}

template <typename scalar_t, typename out_t>
void multiply(const Product<scalar_t, out_t>& product) {
  if constexpr (std::is_same_v<scalar_t, out_t>) {
    if (product.rows == 1) return multiply_one_row(product);
  }
  BlockedProduct<scalar_t, out_t>(product).run();
}

}  // namespace lltm_jit
