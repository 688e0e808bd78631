// Products of whole matrices, which are compiled once a family, in products.cpp. No torch header.
#pragma once

#include <cstdint>

namespace lltm_jit {

// C = A B, plus `initial` in each row if that is not null. One of the strides of A is 1, and one of B's;
// the rows of C are dense. The depth is at least 1.
template <typename T>
struct PackedProduct {
  const T* a;  // [rows, depth]
  int64_t a_row_stride, a_depth_stride;
  const T* b;  // [depth, columns]
  int64_t b_depth_stride, b_column_stride;
  const T* initial;  // [columns]; or null
  T* c;              // [rows, columns] written
  int64_t c_stride;
  int64_t rows, columns, depth;
};
// Note [Packed products]; of float and double. `count` products, at least one, all of the same size.
template <typename T>
void multiply_packed(const PackedProduct<T>* products, int64_t count);

}  // namespace lltm_jit
