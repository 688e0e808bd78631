// Products that are compiled once a family, in products.cpp. No torch header.
#pragma once

#include <cstdint>

#include "core/math/scalar.h"

namespace lltm_jit {

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

// The same for a tile of any columns, and so many rows: of float and double.
template <typename acc_t>
void multiply_rows(Tile<acc_t> tile, int64_t rows);

// C = A B, plus `initial` in each row if that is not null. One of the strides of A is 1, and one of B's. The
// depth is at least 1.
struct ProductArgs {
  ElementType type;  // Float or Double
  const void* a;     // [rows, depth]
  int64_t a_row_stride, a_depth_stride;
  const void* b;  // [depth, columns]
  int64_t b_depth_stride, b_column_stride;
  const void* initial;  // [columns]; or null
  void* c;              // [rows, columns] written, dense
  int64_t rows, columns, depth;
};
// Note [Packed products]
void multiply_cpu(const ProductArgs& args);

}  // namespace lltm_jit
