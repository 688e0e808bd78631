// The operands of filtered_lrelu's products: one half per number for the 16-bit types, two for
// float.
//
// Note [Floats as two halves]
// A float is split into two halves, x = high + low, which keep 22 of its bits. The product x y is
// computed as low high + high low + high high, summed in float. The low parts lose nothing as long
// as the high parts are above 2^-3, which the scales of taps and samples ensure (Note [The running
// exponent]).
#pragma once

#include "core/math/extremes.cuh"
#include "core/products/warp_matrix.cuh"
#include "core/types/half2.cuh"

namespace lltm_jit {

// This lane, and the places of its numbers in a fragment: see Note [Fragments].
LLTM_JIT_DEVICE int lane() { return threadIdx.x % 32; }
LLTM_JIT_DEVICE int fragment_row() { return lane() / 4; }
LLTM_JIT_DEVICE int fragment_column() { return lane() % 4 * 2; }

// Two numbers in two registers: the high halves and the low halves.
struct SplitPair {
  uint32_t high, low;
};

template <typename scalar_t>
struct Arithmetic {
  using Pair = uint32_t;  // two numbers of an operand
  using Sums = HalfSums;  // exact but for the last rounding: a sum is of one or two products
  static constexpr float kTapSum = 1;      // scales the filters so that no half overflows
  static constexpr int kTopExponent = 13;  // the largest binary exponent of samples
};
template <>
struct Arithmetic<float> {
  using Pair = SplitPair;
  using Sums = FloatSums;
  static constexpr float kTapSum = 4;
  static constexpr int kTopExponent = 8;
};

template <typename Pair>
LLTM_JIT_DEVICE Pair make_pair(float first, float second);
template <>
LLTM_JIT_DEVICE uint32_t make_pair<uint32_t>(float first, float second) {
  return pack2<Half>(first, second);
}
template <>
LLTM_JIT_DEVICE SplitPair make_pair<SplitPair>(float first, float second) {
  SplitPair pair;
  pair.high = pack2<Half>(first, second);
  pair.low = pack2<Half>(first - first_of<Half>(pair.high), second - second_of<Half>(pair.high));
  return pair;
}

// Turns sums into operands.
LLTM_JIT_DEVICE void to_pairs(const HalfSums& sums, uint32_t (&pairs)[2]) {
  pairs[0] = sums.value[0];
  pairs[1] = sums.value[1];
}
LLTM_JIT_DEVICE void to_pairs(const FloatSums& sums, uint32_t (&pairs)[2]) {
  pairs[0] = make_pair<uint32_t>(sums.value[0], sums.value[1]);
  pairs[1] = make_pair<uint32_t>(sums.value[2], sums.value[3]);
}
// Tensor cores subtract the high parts, exactly: one product with the identity replaces eight
// instructions.
LLTM_JIT_DEVICE void to_pairs(const FloatSums& sums, SplitPair (&pairs)[2]) {
  uint32_t high[2];
  to_pairs(sums, high);
  const int k = fragment_column(), n = fragment_row();
  const uint32_t minus_identity = k == n ? 0x0000bc00u : k + 1 == n ? 0xbc000000u : 0u;
  uint32_t low[2];
  to_pairs(multiply_add(high, minus_identity, sums), low);
  pairs[0] = {high[0], low[0]};
  pairs[1] = {high[1], low[1]};
}

// Fills each row with one number: the first row with `top`, the second with `bottom`.
LLTM_JIT_DEVICE void fill_rows(HalfSums& sums, float top, float bottom) {
  sums.value[0] = pack2<Half>(top, top);
  sums.value[1] = pack2<Half>(bottom, bottom);
}
LLTM_JIT_DEVICE void fill_rows(FloatSums& sums, float top, float bottom) {
  sums.value[0] = sums.value[1] = top;
  sums.value[2] = sums.value[3] = bottom;
}
// Keeps a lane's first and second column, or sets them to zero.
LLTM_JIT_DEVICE void mask_columns(HalfSums& sums, bool first, bool second) {
  const uint32_t mask = (first ? 0x0000ffffu : 0u) | (second ? 0xffff0000u : 0u);
  sums.value[0] &= mask;
  sums.value[1] &= mask;
}
LLTM_JIT_DEVICE void mask_columns(FloatSums& sums, bool first, bool second) {
  LLTM_JIT_UNROLLED(e, 4) sums.value[e] = (e % 2 == 0 ? first : second) ? sums.value[e] : 0.f;
}

template <typename Sums, int kA, int kB>
LLTM_JIT_DEVICE Sums multiply_add(const SplitPair (&a)[kA], const SplitPair (&b)[kB], Sums sums) {
  uint32_t a_high[kA], a_low[kA], b_high[kB], b_low[kB];
  LLTM_JIT_UNROLLED(r, kA) a_high[r] = a[r].high, a_low[r] = a[r].low;
  LLTM_JIT_UNROLLED(r, kB) b_high[r] = b[r].high, b_low[r] = b[r].low;
  sums = multiply_add(a_low, b_high, sums);
  sums = multiply_add(a_high, b_low, sums);
  return multiply_add(a_high, b_high, sums);
}

// a b + sums with k = 8: the high and low parts of A lie next to each other, as k = 16.
template <typename Sums>
LLTM_JIT_DEVICE Sums multiply_add(const SplitPair (&a)[2], const SplitPair& b, Sums sums) {
  const uint32_t high[2] = {a[0].high, a[1].high};
  const uint32_t both[4] = {a[0].high, a[1].high, a[0].low, a[1].low}, twice[2] = {b.high, b.high};
  return multiply_add(both, twice, multiply_add(high, b.low, sums));
}

// Selects bytes of `a` (0 to 3) and `b` (4 to 7) by the digits of `choice`, the last digit first. A
// digit plus 8 fills the byte with the highest bit of the one selected.
LLTM_JIT_DEVICE uint32_t choose_bytes(uint32_t a, uint32_t b, uint32_t choice) {
  uint32_t bytes;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(a), "r"(b), "r"(choice));
  return bytes;
}
LLTM_JIT_DEVICE SplitPair choose_bytes(const SplitPair& a, const SplitPair& b, uint32_t choice) {
  return {choose_bytes(a.high, b.high, choice), choose_bytes(a.low, b.low, choice)};
}

LLTM_JIT_DEVICE uint32_t half2_multiply(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

LLTM_JIT_DEVICE SplitPair transpose(const SplitPair& pair) {
  return {transpose(pair.high), transpose(pair.low)};
}

// 2^n, for n from -126 to 127.
LLTM_JIT_DEVICE float power_of_two(int n) { return __uint_as_float((n + 127) << 23); }
// The n of the largest power of two that is at most x, which is positive; -127 for 0.
LLTM_JIT_DEVICE int binary_exponent(float x) {
  return static_cast<int>(__float_as_uint(x) >> 23) - 127;
}

// A number's magnitude, scaled by a power of two to be at least 1 and below 2.
LLTM_JIT_DEVICE float mantissa(float x) {
  return __uint_as_float((__float_as_uint(x) & 0x007fffffu) | 0x3f800000u);
}

}  // namespace lltm_jit
