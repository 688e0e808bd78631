// Results of a product of floats, from sums of scaled factors: Note [Products of all steps in float] (kernels.h).
#pragma once

#include "core/launch/launch.cuh"
#include "rnn/sequence/all_steps/in_float/parts.cuh"

namespace lltm_jit {

LLTM_JIT_DEVICE float number_at(const FloatFactor& factor, int64_t vector, int64_t k) {
  return factor.numbers[factor.depth_inside ? vector * factor.row_stride + k
                                            : k * factor.row_stride + vector];
}

// The factors that unscale the sums of four columns, besides their row's factor, and the numbers to add.
struct alignas(16) FourColumns {
  float inverse[kWidth], initial[kWidth];

  LLTM_JIT_DEVICE explicit FourColumns(float factor)
      : inverse{factor, factor, factor, factor}, initial{} {}
  LLTM_JIT_DEVICE FourColumns(const FloatProductArgs& args, int64_t column) : initial{} {
    LLTM_JIT_UNROLLED(j, kWidth) {
      inverse[j] = HalfScale(args.magnitudes[args.a.vectors + column + j]).inverse;
    }
    if (args.initial) load_pack<kWidth>(args.initial + column, initial);
  }
};

LLTM_JIT_DEVICE float row_inverse(const FloatProductArgs& args, int64_t row) {
  return HalfScale(args.magnitudes[row]).inverse;
}

// A sum without its scales. The smaller factor comes first, because the factors' product may not fit in a float.
LLTM_JIT_DEVICE float unscaled(float sum, float of_row, float of_column) {
  return sum * fminf(of_row, of_column) * fmaxf(of_row, of_column);
}

// Computes the results of four columns. Returns whether the sums are finite.
LLTM_JIT_DEVICE bool results_of(const float (&sums)[kWidth], float of_row,
                                const FourColumns& columns, float (&results)[kWidth]) {
  bool finite = true;
  LLTM_JIT_UNROLLED(j, kWidth) {
    const float sum = unscaled(sums[j], of_row, columns.inverse[j]);
    finite = finite && isfinite(sum);
    results[j] = columns.initial[j] + sum;
  }
  return finite;
}

LLTM_JIT_DEVICE void store_results(float* target, bool adds, float (&results)[kWidth]) {
  float before[kWidth] = {};
  if (adds) load_pack<kWidth>(target, before);
  LLTM_JIT_UNROLLED(j, kWidth) results[j] += before[j];
  store_pack<kWidth>(target, results);
}

// Stores results; sums that are not finite are computed again first.
__device__ __noinline__ void store_anew(const FloatProductArgs& args, int64_t row, int64_t column,
                                        float4 sums, float of_row, const FourColumns& columns) {
  const float four[kWidth] = {sums.x, sums.y, sums.z, sums.w};
  float* target = args.results + row * args.b.vectors + column;
  LLTM_JIT_UNROLLED(j, kWidth) {
    float sum = unscaled(four[j], of_row, columns.inverse[j]);
    if (!isfinite(sum)) {
      sum = 0;
      for (int64_t k = 0; k < args.a.depth && !isnan(sum); ++k) {
        sum = fmaf(number_at(args.a, row, k), number_at(args.b, column + j, k), sum);
      }
    }
    target[j] = (args.adds ? target[j] : 0) + columns.initial[j] + sum;
  }
}

}  // namespace lltm_jit
