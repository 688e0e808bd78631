// Floats as numbers of half, for products of the library on tensor cores.
//
// Note [Products of all steps in float]
// Tensor cores multiply numbers of half many times as quickly as other units multiply floats. A float is the sum of
// two, Note [Floats in two halves] (cuda/halves.cuh), and of the four products of parts three count. They make one
// product, three times as deep, of which the library keeps the sums in float:
//
//     A B = [A high, A low, A high] [B low; B high; B high]        small products first
//
// Each row of A and each column of B has a scale of its own, a power of two, so that a result depends on its row
// and column alone, as it does in float. Of a number that is not finite there is one part, that of the last
// product; otherwise infinities would meet others of the other sign.
// Tensor cores truncate their sums. Where the product is deep it is therefore made in pieces, of which the sums are
// rounded.
#pragma once

#include <cstdint>

#include "core/cuda/api.h"

namespace lltm_jit {

constexpr int kFloatParts = 3;

// One side of a product: vectors of numbers, the rows of A or the columns of B, in pieces of their depth.
struct FloatFactor {
  const float* source;                // aligned to 16 bytes
  int64_t rows, columns, row_stride;  // as it lies in memory; multiples of 4, except rows
  bool depth_inside;                  // whether vectors are rows in memory, not columns
  bool is_left;
  int64_t pieces, piece;  // together at least as deep; `piece` is a multiple of 4
  uint32_t* magnitudes;   // [vectors], zero; the bits of each vector's largest number are written
  void*
      parts;  // half [rows, pieces, 3, piece] if depth_inside, else [pieces, 3, piece, columns]; written
};

struct SplitFactorsArgs {
  FloatFactor factors[2];
};

// The library's sums become results: those of all pieces together, scaled back, plus `initial` in each row.
struct UnscaleArgs {
  const float* sums;  // [pieces, rows, columns], dense
  int64_t pieces;
  const uint32_t *row_magnitudes, *column_magnitudes;
  const float* initial;  // [columns]; or null
  bool adds;             // to what `results` has
  float* results;        // [rows, columns], dense
  int64_t rows, columns;
};

#ifdef LLTM_JIT_CUDA
cudaError_t launch_split_factors(const SplitFactorsArgs& args, cudaStream_t stream);
cudaError_t launch_unscale(const UnscaleArgs& args, cudaStream_t stream);
#endif

}  // namespace lltm_jit
