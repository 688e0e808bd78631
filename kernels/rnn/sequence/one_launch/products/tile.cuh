// Products of a tile of weights and a tile of B, on tensor cores.
#pragma once

#include "core/products/mma.cuh"
#include "rnn/sequence/numbers/halves.cuh"

namespace lltm_jit {

// sums += a b, of 16 k.
template <typename scalar_t>
__device__ __forceinline__ void add_product(float (&sums)[4], const Words<4>& a,
                                            const Words<2>& b) {
  mma<scalar_t>(sums, a.value, b.value);
}

// The same for floats; the smaller products come first.
template <typename scalar_t>
__device__ __forceinline__ void add_product(float (&sums)[4], const Words<8>& a,
                                            const FloatOperand& b) {
  const Words<4> high{a.value[0], a.value[1], a.value[2], a.value[3]};
  const Words<4> low{a.value[4], a.value[5], a.value[6], a.value[7]};
  float part[4] = {};
  add_product<Half>(part, low, b.high);
  add_product<Half>(part, high, b.low);
  add_product<Half>(part, high, b.high);
#pragma unroll
  for (int e = 0; e < 4; ++e) sums[e] = fmaf(part[e], b.inverse[e % 2], sums[e]);
}

// The same for the upper parts alone, Note [Floats in one half].
template <typename scalar_t>
__device__ __forceinline__ void add_product(float (&sums)[4], const Words<4>& a,
                                            const FloatOperand& b) {
  float part[4] = {};
  add_product<Half>(part, a, b.high);
#pragma unroll
  for (int e = 0; e < 4; ++e) sums[e] = fmaf(part[e], b.inverse[e % 2], sums[e]);
}

}  // namespace lltm_jit
