// Products over all steps of small layers on a GPU.
//
// Note [Small products of all steps]
// For a small product with a bias, or with a depth of many rows, the library launches several kernels, and two more for
// a bias's gradient. Here, one kernel does all of this work. A block has a tile of results. Its warps share the depth:
// each computes the whole tile for its part of the depth, and the parts' sums are added in the order of the warps. If
// there are many rows, a cluster of blocks shares them. Sums are in float, and no factor is rounded.
#pragma once

#include <cstdint>

#include "core/launch/api.h"
#include "core/math/scalar.h"

namespace lltm_jit {

// Vectors of numbers: the rows of A or the columns of B. In memory, each vector is a row or a column.
struct SmallFactor {
  const void* numbers;
  int64_t row_stride;  // of rows in memory
  bool depth_inside;   // whether vectors are rows in memory
};

// Rows [begin, end) of a factor that lie elsewhere; null numbers stand for zeros.
struct SmallRows {
  const void* numbers;
  int64_t row_stride;
  int begin, end;
};

// results = A B, plus `initial` in each row. If B has its depth inside, so must A.
struct SmallProductArgs {
  SmallFactor a, b;
  int64_t rows, columns, depth;
  ElementType type;     // Half, BFloat16 or Float
  const void* initial;  // [columns]; or null
  void* results;        // [rows, columns], dense
  // If the depth is inside neither factor, the sums of A's rows; or null.
  void* sums;           // [rows]
  SmallRows rows_of_b;  // only in that case, too
};

// Products of one type that one launch computes.
struct SmallProducts {
  SmallProductArgs each[2];
  int count;
};

constexpr int64_t kMostSmallDepth = 8192;

#ifdef LLTM_JIT_CUDA
// Whether the kernel supports these arguments and is faster than the library.
bool small_product_pays(const SmallProductArgs& args);
cudaError_t launch_small_products(const SmallProducts& all, cudaStream_t stream);
#endif

}  // namespace lltm_jit
