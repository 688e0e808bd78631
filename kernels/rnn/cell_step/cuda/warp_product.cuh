// A warp's part of a matrix product on tensor cores, for every element type: 16 x 8 sums at a time.
//
// Note [Single precision on tensor cores]
// Tensor cores read a float as TF32, with 11 of its 24 bits. So a float is split into two such numbers,
// x = high + low, and x y is computed as low(x) high(y) + high(x) low(y) + high(x) high(y), with a
// relative error of at most 2^-21 and about 2^-23 on average. Tensor cores also truncate their sums. So
// each of their sums covers only eight k, smallest products first, and rounded additions make the long
// sum. Results are as accurate as those of float32 multiply-adds, down to numbers of 2^-114, at up to
// twice the rate. Method: H. Ootomo and R. Yokota, "Recovering single precision
// accuracy from Tensor Cores while surpassing the FP32 theoretical peak performance", 2022.
// An infinity, or a number that rounds to one, cannot be split: see Tile::values.
#pragma once

#include <cstdint>

#include "core/memory/barrier.cuh"
#include "core/products/mma.cuh"
#include "core/products/warp_matrix.cuh"

namespace lltm_jit {

// The layout of an operand in memory: its rows run along k, or along m (A) or n (B).
enum class Along { K, MN };

// Element e of a lane's four sums is at row sum_row(e) and column sum_column(e) of the 16 x 8 sums.
LLTM_JIT_DEVICE int sum_row(int e) { return threadIdx.x % 32 / 4 + e / 2 * 8; }
LLTM_JIT_DEVICE int sum_column(int e) { return threadIdx.x % 4 * 2 + e % 2; }

// A float as two TF32 numbers. The tensor cores ignore the last bits of the second one.
struct SplitFloat {
  uint32_t high, low;
  SplitFloat() = default;
  LLTM_JIT_DEVICE explicit SplitFloat(float value) {
    high = (__float_as_uint(value) + 0x1000u) & 0xffffe000u;
    low = __float_as_uint(value - __uint_as_float(high));
  }
};

// float and double, with k = 8: lanes load single elements from shared memory.
template <typename scalar_t>
struct Mma {
  static constexpr int kK = 8;
  // Elements between rows in shared memory, so that lanes which read at once touch different banks.
  static constexpr int padding(Along along) {
    return along == Along::K ? 4 : 32 / int(sizeof(scalar_t));
  }

  using Operand = std::conditional_t<std::is_same_v<scalar_t, float>, SplitFloat, double>;

  template <Along kAlong, int kRow>
  static LLTM_JIT_DEVICE void load_a(const scalar_t* tile, int m, int k, Operand (&a)[4]) {
    const int lane = threadIdx.x % 32;
    LLTM_JIT_UNROLLED(i, 4) {
      a[i] = element<kAlong, kRow>(tile, m + lane / 4 + i % 2 * 8, k + lane % 4 + i / 2 * 4);
    }
  }
  template <Along kAlong, int kRow>
  static LLTM_JIT_DEVICE void load_b(const scalar_t* tile, int n, int k, Operand (&b)[2]) {
    const int lane = threadIdx.x % 32;
    LLTM_JIT_UNROLLED(i, 2) b[i] = element<kAlong, kRow>(tile, n + lane / 4, k + lane % 4 + i * 4);
  }

  static LLTM_JIT_DEVICE void multiply_add(float (&sums)[4], const SplitFloat (&a)[4],
                                           const SplitFloat (&b)[2]) {
    float part[4] = {};
    const uint32_t high[] = {a[0].high, a[1].high, a[2].high, a[3].high};
    mma_tf32(part, {a[0].low, a[1].low, a[2].low, a[3].low}, {b[0].high, b[1].high});
    mma_tf32(part, high, {b[0].low, b[1].low});
    mma_tf32(part, high, {b[0].high, b[1].high});
    LLTM_JIT_UNROLLED(e, 4) sums[e] += part[e];
  }
  static LLTM_JIT_DEVICE void multiply_add(double (&sums)[4], const double (&a)[4],
                                           const double (&b)[2]) {
#if __CUDA_ARCH__ >= 900
    asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+d"(sums[0]), "+d"(sums[1]), "+d"(sums[2]), "+d"(sums[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else
    LLTM_JIT_UNROLLED(i, 4) {
      asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
          : "+d"(sums[i % 2 * 2]), "+d"(sums[i % 2 * 2 + 1])
          : "d"(a[i]), "d"(b[i / 2]));
    }
#endif
  }

 private:
  template <Along kAlong, int kRow>
  static LLTM_JIT_DEVICE Operand element(const scalar_t* tile, int row, int k) {
    return Operand(tile[kAlong == Along::K ? row * kRow + k : k * kRow + row]);
  }
};

// The 16-bit types, with k = 16: lanes load 8 x 8 matrices together, transposed if k is not along
// the rows.
template <typename scalar_t>
struct Mma16Bit {
  static constexpr int kK = 16;
  static constexpr int padding(Along) { return 8; }
  using Operand = uint32_t;

  template <Along kAlong, int kRow>
  static LLTM_JIT_DEVICE void load_a(const scalar_t* tile, int m, int k, uint32_t (&a)[4]) {
    const int matrix = threadIdx.x % 32 / 8, row = threadIdx.x % 8;
    if constexpr (kAlong == Along::K) {
      load_matrices<false>(
          a, shared_address(tile + (m + matrix % 2 * 8 + row) * kRow + k + matrix / 2 * 8));
    } else {
      load_matrices<true>(
          a, shared_address(tile + (k + matrix / 2 * 8 + row) * kRow + m + matrix % 2 * 8));
    }
  }
  template <Along kAlong, int kRow>
  static LLTM_JIT_DEVICE void load_b(const scalar_t* tile, int n, int k, uint32_t (&b)[2]) {
    const int matrix = threadIdx.x % 16 / 8, row = threadIdx.x % 8;
    if constexpr (kAlong == Along::K) {
      load_matrices<false>(b, shared_address(tile + (n + row) * kRow + k + matrix * 8));
    } else {
      load_matrices<true>(b, shared_address(tile + (k + matrix * 8 + row) * kRow + n));
    }
  }

  static LLTM_JIT_DEVICE void multiply_add(float (&sums)[4], const uint32_t (&a)[4],
                                           const uint32_t (&b)[2]) {
    mma<scalar_t>(sums, a, b);
  }
};
template <>
struct Mma<Half> : Mma16Bit<Half> {};
template <>
struct Mma<BFloat16> : Mma16Bit<BFloat16> {};

}  // namespace lltm_jit
