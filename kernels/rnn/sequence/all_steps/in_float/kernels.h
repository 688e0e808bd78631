// Products (GEMMs) of large float matrices on tensor cores.
//
// Note [Products of all steps in float]
// Tensor cores multiply halves many times as fast as other units multiply floats. A float is the sum of two halves,
// Note [Floats in two halves] (numbers/halves.cuh), and three of the four products of parts count. The right factor is
// split beforehand, into tiles in the layout of the tensor cores. The left factor is larger (the gates' gradients, or
// the rows of all steps), so a warp splits it as it reads it. Each row of A and each column of B has a scale of its
// own, a power of two, so that a result depends on its row and column alone, as in float. A number that is not finite
// has no parts: a result that is infinite or NaN is computed again, from floats. Tensor cores truncate their sums. So
// each of these sums covers only a piece of the depth, and rounded additions make the long sums. If there are few tiles
// of results, blocks divide the depth as well (split-k), and a kernel adds their sums. With TF32 the library is as
// fast. The kernel is for chips of 9.0, whose instructions read the left factor from registers. On other chips the
// library multiplies floats.
#pragma once

#include <cstdint>

#include "core/launch/api.h"

namespace lltm_jit {

// One side of a product: vectors of numbers, the rows of A or the columns of B.
struct FloatFactor {
  const float* numbers;
  int64_t vectors, depth, row_stride;  // rows in memory
  bool depth_inside;                   // whether vectors are rows in memory, not columns
};

// results = A B, or results += A B, plus `initial` in each row.
struct FloatProductArgs {
  FloatFactor a, b;
  int splits;            // number of blocks that share a tile's depth: float_product_splits()
  const float* initial;  // [columns]; or null
  bool adds;
  float* results;        // [rows, columns], dense
  uint32_t* magnitudes;  // [rows + columns], zeros; written: the bits of their largest magnitudes
  void* b_parts;         // float_parts_bytes(b) bytes; written
  float* sums;           // [splits, rows, columns], written; null for one split
};

#ifdef LLTM_JIT_CUDA
int64_t float_parts_bytes(const FloatFactor& b);
// Whether the kernels support these factors: the rows allow whole accesses, and the code is for 9.0 alone ("9.0a").
cudaError_t float_product_runs(const FloatFactor& a, const FloatFactor& b, bool* runs);
cudaError_t float_product_splits(const FloatFactor& a, const FloatFactor& b, int* splits);
cudaError_t launch_float_product(const FloatProductArgs& args, cudaStream_t stream);
// The first part of launch_float_product(): writes magnitudes and b_parts.
cudaError_t launch_split_factors(const FloatProductArgs& args, cudaStream_t stream);
#endif

}  // namespace lltm_jit
