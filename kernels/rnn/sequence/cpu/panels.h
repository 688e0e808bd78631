// Recurrent weights, packed once per call for the products of its steps: panels of neighbouring vectors
// of columns, which the register tiles of core/products/panels.h read from the first byte to the last.
#pragma once

#include "core/memory/aligned_array.h"
#include "core/products/panels.h"
#include "rnn/sequence/cpu/steps.h"

namespace lltm_jit {

// The right factor of A B, in the arithmetic type, like A.
template <typename number_t>
class Panels {
 public:
  using acc_t = number_t;
  using row_t = number_t;  // an element of A
  static constexpr bool kProduct = true;
  static constexpr int64_t kLanes = RegisterTile<acc_t>::kLanes;

  // Products are summed in blocks of at most block_depth rows.
  Panels(int64_t vectors, int64_t depth, int64_t block_depth = SequenceCpuBounds::kDepth)
      : depth_(depth),
        block_depth_(block_depth),
        data_(aligned_array<acc_t>(vectors * depth * kLanes)) {}

  // The stride of A's rows, whose elements start as zeros. Room between rows keeps rows that are
  // whole pages apart out of each other's cache sets.
  static int64_t row_stride(int64_t depth) { return ceil_div(depth, kLanes) * kLanes + kLanes; }

  // Packs vectors [begin, end) as a range, which must be multiplied as one range. The columns of vector v
  // are the rows rows_of(v, count) of a matrix with this stride: `count` rows, if fewer than the lanes.
  template <typename RowsOf>
  void pack_rows(int64_t begin, int64_t end, int64_t stride, const RowsOf& rows_of) {
    for_each_panel<acc_t>(begin, end, [&](int64_t first, int64_t vectors) {
      acc_t* panel = panel_of(first);
      for (int64_t v = 0; v < vectors; ++v) {
        int64_t count;
        const auto* rows = rows_of(first + v, count);
        copy_transposed(rows, stride, count, depth_, panel + v * kLanes, vectors * kLanes);
      }
    });
  }

  // The same for a matrix with column_count columns.
  template <typename scalar_t>
  void pack_columns(int64_t begin, int64_t end, const scalar_t* matrix, int64_t stride,
                    int64_t column_count) {
    for_each_panel<acc_t>(begin, end, [&](int64_t first, int64_t vectors) {
      copy_block(matrix + first * kLanes, stride, depth_,
                 std::min(vectors * kLanes, column_count - first * kLanes), panel_of(first),
                 vectors * kLanes);
    });
  }

  // C = A B for the vectors of a range, plus `initial` in each row if it is not null. C and
  // `initial` begin at the range.
  C10_NOINLINE void multiply(const row_t* a, int64_t a_stride, int64_t rows, int64_t begin,
                             int64_t end, const acc_t* initial, acc_t* c, int64_t c_stride) const {
    for_each_panel<acc_t>(begin, end, [&](int64_t first, int64_t vectors) {
      const acc_t* panel = panel_of(first);
      Tile<acc_t> tile{};
      tile.a_row_stride = a_stride;
      tile.a_depth_stride = 1;
      tile.b_stride = tile.columns = vectors * kLanes;
      tile.c = c + (first - begin) * kLanes;
      tile.c_stride = c_stride;
      tile.sums = initial != nullptr ? initial + (first - begin) * kLanes : nullptr;
      for (int64_t k = 0; k < depth_; k += block_depth_) {
        tile.a = a + k;
        tile.b = panel + k * tile.b_stride;
        tile.depth = std::min(block_depth_, depth_ - k);
        multiply_rows(tile, rows);
        tile.sums = tile.c;
        tile.sums_stride = c_stride;
      }
    });
  }

 private:
  const int64_t depth_, block_depth_;
  const AlignedArray<acc_t> data_;

  acc_t* panel_of(int64_t first) const { return data_.get() + first * depth_ * kLanes; }
};

}  // namespace lltm_jit
