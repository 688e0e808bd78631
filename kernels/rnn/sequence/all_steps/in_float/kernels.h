// Products of large matrices of float, on tensor cores.
//
// Note [Products of all steps in float]
// Tensor cores multiply numbers of half many times as quickly as other units multiply floats. A float is the sum of
// two, Note [Floats in two halves] (numbers/halves.cuh), and of the four products of parts three count. The right factor
// is split before, into tiles that lie as tensor cores take them; a warp splits the left one as it reads it, for it
// is the larger one: the gates' gradients, or the rows of all steps.
// Each row of A and each column of B has a scale of its own, a power of two, so that a result depends on its row
// and column alone, as it does in float. What is not finite has no parts: a result that it makes infinite or NaN is
// computed again, of floats.
// Tensor cores truncate their sums. So these cover only a piece of the depth, and the long sums are made of rounded
// additions. Where there are few tiles of results, blocks divide the depth as well, and a kernel adds what they have.
// As TF32 the library is usually quicker, products.cpp says when.
// The kernel is for chips of 9.0, whose instructions read the left factor from registers. On others the library
// multiplies floats.
#pragma once

#include <cstdint>

#include "core/launch/api.h"

namespace lltm_jit {

// One side of a product: vectors of numbers, the rows of A or the columns of B.
struct FloatFactor {
  const float* numbers;
  int64_t vectors, depth, row_stride;  // rows as they lie in memory
  bool depth_inside;                   // whether vectors are rows in memory, not columns
};

// results = or += A B, plus `initial` in each row.
struct FloatProductArgs {
  FloatFactor a, b;
  int splits;            // how many blocks share the depth of a tile: float_product_splits()
  const float* initial;  // [columns]; or null
  bool adds;
  bool tf32;       // the factors' upper parts alone, Note [Floats in one half] (numbers/halves.cuh)
  float* results;  // [rows, columns], dense
  uint32_t* magnitudes;  // [rows + columns], zeros; written: the bits of each one's largest number
  void* b_parts;         // float_parts_bytes(b) bytes; written
  float* sums;           // [splits, rows, columns], written; null for one split
};

#ifdef LLTM_JIT_CUDA
int64_t float_parts_bytes(const FloatFactor& b);
// Whether the kernels run on these factors: rows in memory that whole accesses can read, and code for 9.0 alone
// ("9.0a").
cudaError_t float_product_runs(const FloatFactor& a, const FloatFactor& b, bool* runs);
cudaError_t float_product_splits(const FloatFactor& a, const FloatFactor& b, int* splits);
cudaError_t launch_float_product(const FloatProductArgs& args, cudaStream_t stream);
// The first part of it: writes magnitudes and b_parts.
cudaError_t launch_split_factors(const FloatProductArgs& args, cudaStream_t stream);
#endif

}  // namespace lltm_jit
