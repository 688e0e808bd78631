// Products of whole matrices, which are compiled once a family, in products.cpp. No torch header.
#pragma once

#include <cstdint>

#include "core/math/scalar.h"

namespace lltm_jit {

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
