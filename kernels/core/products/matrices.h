// Products of whole matrices on the CPU, compiled once a family, in matrices.cpp. No torch header.
#pragma once

#include <cstdint>

namespace lltm_jit {

// C = A B, plus `initial` in each row if it is not null. One stride of A is 1, and one of B; the
// rows of C are dense. The depth is at least 1.
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
// Computes `count` products of one size, at least one, in float or double: Note [Packed products].
template <typename T>
void multiply_packed(const PackedProduct<T>* products, int64_t count);

}  // namespace lltm_jit
