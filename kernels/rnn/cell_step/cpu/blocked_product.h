// Products of whole matrices in their own memory layout, by blocks that are copied into the layout
// of the tiles in core/products/panels.h.
#pragma once

#include <memory>
#include <type_traits>

#include "core/launch/parallel.h"
#include "core/products/bounds.h"
#include "core/products/panels.h"

namespace lltm_jit {

// Dense rows in the arithmetic type: the given rows, or a copy of 16-bit rows.
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
      using Shape = RegisterTile<acc_t>;
      constexpr int64_t kGrain = 32768;
      // One vector more keeps rows that are whole pages apart out of each other's cache sets.
      stride = Shape::whole_vectors(columns) + Shape::kLanes;
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

// C = A B, or a part of it: some rows of A and C, some columns of B and C. A may have any strides;
// the rows of B and C are dense.
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

constexpr int64_t kBlockDepth = PanelBounds::kBlockDepth, kBlockRows = PanelBounds::kBlockRows;

// A product by blocks. It holds the blocks in the layout of the tiles: about 80 KB, on a thread's stack.
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
        // At depth 0, C must still be filled with zeros.
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
  // The sums of a block. At a small depth, blocks are wide, so that C is written in long rows.
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
    const int64_t stride = Shape::whole_vectors(width);
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
    b_stride_ = Shape::whole_vectors(width);
    copy_block(block, product_.b_stride, depth, width, copy_of_b_, b_stride_);
  }

  void multiply(int64_t row, int64_t rows, int64_t column, int64_t width, int64_t k,
                int64_t depth) {
    const bool last = k + depth == product_.depth;
    out_t* c = product_.c + row * product_.c_stride + column;
    const int64_t stride = Shape::whole_vectors(width);
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

// Multiplies one row. Reading B bounds the speed, so B is read in long rows.
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
