// Products of many rows, with both operands packed in the order in which panels.h reads them.
//
// Note [Packed products]
// MKL reaches about half of an AMD processor's peak. On Intel processors, which MKL is made for, a
// layer takes about as long with this product as with MKL's.
// The loops go over columns that fit a core's own cache with their depth, then blocks of rows, then
// depth; if the depth is large, as in a gradient of weights, C is in the cache instead. Threads
// share the rows and never wait. Each packs B for itself, which takes little time if there are many
// rows. An element's bits depend neither on other rows nor on the threads.
#include "core/products/matrices.h"

#include <algorithm>
#include <utility>

#include "core/launch/parallel.h"
#include "core/memory/aligned_array.h"
#include "core/products/bounds.h"
#include "core/products/panels.h"

namespace lltm_jit {
namespace {

// One thread's work: rows [begin, end).
template <typename T>
class PackedRows {
 public:
  PackedRows(const PackedProduct<T>& product, int64_t begin, int64_t end)
      : product_(product), begin_(begin), end_(end) {
    if (!a_in_place_) a_ = aligned_array<T>(kBlockRows / kRows * strip_stride_);
    b_ = aligned_array<T>(Shape::whole_vectors(kept_columns_) * kept_depth_);
  }

  void run() {
    const auto& [columns, depth] = std::tie(product_.columns, product_.depth);
    for (int64_t column = 0; column < columns; column += kept_columns_) {
      const int64_t width = std::min(kept_columns_, columns - column);
      for (int64_t k = 0; k < depth; k += kept_depth_) {
        const int64_t k_end = std::min(k + kept_depth_, depth);
        pack_b(column, width, k, k_end);
        for (int64_t row = begin_; row < end_; row += kBlockRows) {
          multiply(row, std::min(end_, row + kBlockRows), column, width, k, k_end);
        }
      }
    }
  }

 private:
  using Shape = RegisterTile<T>;
  using Vec = typename Shape::Vec;
  static constexpr int64_t kLanes = Shape::kLanes, kRows = Shape::kRows;
  static constexpr int64_t kBlockRows = PackedBounds::kBlockRows;
  static constexpr int64_t kBlockDepth = PackedBounds::kBlockDepth;
  static constexpr int64_t kKept = PackedBounds::kKeptBytes / sizeof(T);
  static_assert(kBlockRows % kRows == 0 && kBlockRows % kLanes == 0);

  const PackedProduct<T>& product_;
  const int64_t begin_, end_;
  const bool a_in_place_ = product_.a_depth_stride == 1;
  const int64_t block_depth_ = packed_block_depth(product_.depth);
  // The padding keeps strips out of each other's cache sets, which whole pages would share.
  const int64_t strip_stride_ = block_depth_ * kRows + 2 * kLanes;
  // The kept part of B. If a block of its depth fits for all columns, all columns are kept, and C is read once
  // per kept depth and A once. Else the whole depth is kept, and A is read once per kept block of columns.
  const int64_t kept_columns_ =
      std::min(Shape::whole_vectors(product_.columns),
               product_.columns <= kKept / kBlockDepth || product_.depth > PackedBounds::kDeep
                   ? kKept / kBlockDepth
                   : std::max<int64_t>(1, kKept / product_.depth / Shape::kPanel) * Shape::kPanel);
  const int64_t kept_depth_ =
      product_.depth * kept_columns_ <= kKept
          ? product_.depth
          : std::max<int64_t>(1, kKept / kept_columns_ / block_depth_) * block_depth_;
  AlignedArray<T> a_, b_;

  // Calls function(first column, columns in whole vectors) for the panels of some columns.
  template <typename Function>
  static void for_each_panel_of(int64_t width, const Function& function) {
    for_each_panel<T>(0, ceil_div(width, kLanes), [&](int64_t first, int64_t vectors) {
      function(first * kLanes, vectors * kLanes);
    });
  }

  // Packs B into panels, one after the other, each with the rows of its columns.
  void pack_b(int64_t column, int64_t width, int64_t k, int64_t k_end) {
    const int64_t depth = k_end - k;
    const T* b = product_.b + column * product_.b_column_stride + k * product_.b_depth_stride;
    for_each_panel_of(width, [&](int64_t first, int64_t columns) {
      T* panel = b_.get() + first * depth;
      const int64_t count = std::min(columns, width - first);
      if (product_.b_column_stride == 1) {
        copy_block(b + first, product_.b_depth_stride, depth, count, panel, columns);
        return;
      }
      for (int64_t v = 0; v < columns; v += kLanes) {
        const T* rows = b + (first + v) * product_.b_column_stride;
        copy_transposed(rows, product_.b_column_stride, std::min(kLanes, count - v), depth,
                        panel + v, columns);
      }
    });
  }

  // Packs A, whose columns are contiguous, into strips of kRows rows, one after the other.
  void pack_a(int64_t row, int64_t row_end, int64_t k, int64_t depth) {
    const T* a = product_.a + row + k * product_.a_depth_stride;
    const int64_t whole = (row_end - row) / kRows * kRows;
    constexpr int64_t kAhead = 8;  // of depth: rows are too far apart for the hardware prefetcher
    for (int64_t i = 0; i < depth; ++i, a += product_.a_depth_stride) {
      T* target = a_.get() + i * kRows;
      prefetch_row(a + kAhead * product_.a_depth_stride, row_end - row);
      for (int64_t r = 0; r < whole; r += kRows, target += strip_stride_) {
        std::copy_n(a + r, kRows, target);
      }
      std::copy_n(a + whole, row_end - row - whole, target);
    }
  }

  void multiply(int64_t row, int64_t row_end, int64_t column, int64_t width, int64_t first_k,
                int64_t k_end) {
    for (int64_t k = first_k; k < k_end; k += block_depth_) {
      const int64_t depth = std::min(block_depth_, k_end - k);
      if (!a_in_place_) pack_a(row, row_end, k, depth);
      for_each_panel_of(width, [&](int64_t first, int64_t columns) {
        Tile<T> tile{};
        tile.a_row_stride = a_in_place_ ? product_.a_row_stride : 1;
        tile.a_depth_stride = a_in_place_ ? 1 : kRows;
        tile.b = b_.get() + first * (k_end - first_k) + (k - first_k) * columns;
        tile.b_stride = columns;
        tile.c_stride = product_.c_stride;
        tile.columns = std::min(columns, width - first);
        tile.depth = depth;
        for (int64_t r = row; r < row_end; r += kRows) {
          const int64_t count = std::min(kRows, row_end - r);
          tile.a = a_in_place_ ? product_.a + r * product_.a_row_stride + k
                               : a_.get() + (r - row) / kRows * strip_stride_;
          tile.c = product_.c + r * product_.c_stride + column + first;
          if (k > 0) {
            tile.sums = tile.c;
            tile.sums_stride = product_.c_stride;
          } else if (product_.initial != nullptr) {
            tile.sums = product_.initial + column + first;
          }
          for (int64_t i = 0; i < count; ++i) {
            prefetch_row(tile.c + i * tile.c_stride, tile.columns);
          }
          multiply_rows(tile, count);
        }
      });
    }
  }
};

template <typename acc_t, size_t... i>
void run_one(const Tile<acc_t>& tile, int64_t index, std::index_sequence<i...>) {
  constexpr int kVectors = RegisterTile<acc_t>::kVectors;
  static constexpr void (*kTiles[])(const Tile<acc_t>&) = {
      panel_tile<acc_t, i / kVectors + 1, i % kVectors + 1>...};
  kTiles[index](tile);
}

}  // namespace

template <typename acc_t>
void run_panel_tile(const Tile<acc_t>& tile, int64_t rows, int64_t vectors) {
  using Shape = RegisterTile<acc_t>;
  run_one(tile, (rows - 1) * Shape::kVectors + vectors - 1,
          std::make_index_sequence<Shape::kRows * Shape::kVectors>());
}
template void run_panel_tile(const Tile<float>&, int64_t, int64_t);
template void run_panel_tile(const Tile<double>&, int64_t, int64_t);

template <typename T>
void multiply_packed(const PackedProduct<T>* products, int64_t count) {
  constexpr int64_t kRows = RegisterTile<T>::kRows, kFewestRows = PackedBounds::kFewestRows;
  constexpr int64_t kWorthWaking = 1 << 19;
  const auto& [rows, columns, depth] = std::tie(products->rows, products->columns, products->depth);
  const int64_t strips = ceil_div(rows, kRows);
  const int64_t strip_products = std::max<int64_t>(1, kRows * columns * depth);
  const int64_t grain = std::max(kFewestRows / kRows, ceil_div(kWorthWaking, strip_products));
  at::parallel_for(0, count * strips, grain, [&](int64_t begin, int64_t end) {
    for (int64_t next; begin < end; begin = next) {
      const int64_t product = begin / strips, first = product * strips;
      next = std::min(end, first + strips);
      PackedRows<T>(products[product], (begin - first) * kRows,
                    std::min(rows, (next - first) * kRows))
          .run();
    }
  });
}
template void multiply_packed(const PackedProduct<float>*, int64_t);
template void multiply_packed(const PackedProduct<double>*, int64_t);

}  // namespace lltm_jit
