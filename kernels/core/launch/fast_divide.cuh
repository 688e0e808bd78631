// Divides by a number that the host knows, with a multiplication and a shift instead of dozens of
// instructions.
#pragma once

#include <cstdint>

namespace lltm_jit {

// Divides numbers below 2^31 by `divisor`, which is positive and below 2^31: with s the bits of
// divisor - 1 and m = 2^32 (2^s - divisor) / divisor + 1, n / divisor is (n m / 2^32 + n) / 2^s.
struct FastDivisor {
  uint32_t divisor, multiplier, shift;

  explicit FastDivisor(uint32_t divisor_) : divisor(divisor_), shift(0) {
    while (uint64_t(1) << shift < divisor) ++shift;
    multiplier = static_cast<uint32_t>(
        (uint64_t(1) << 32) * ((uint64_t(1) << shift) - divisor) / divisor + 1);
  }
  __device__ __forceinline__ uint32_t divide(uint32_t n) const {
    return (__umulhi(n, multiplier) + n) >> shift;
  }
};

// The same for any size: in 32 bits if all dividends are below 2^31.
struct Divisor {
  int64_t divisor;
  FastDivisor fast;
  bool small;

  Divisor(int64_t divisor_, int64_t numbers)
      : divisor(divisor_),
        fast(static_cast<uint32_t>(divisor_ < kSmall ? divisor_ : 1)),
        small(divisor_ < kSmall && numbers <= kSmall) {}
  // The quotient; n becomes the remainder.
  __device__ __forceinline__ int64_t divide(int64_t& n) const {
    const int64_t quotient = small ? fast.divide(static_cast<uint32_t>(n)) : n / divisor;
    n -= quotient * divisor;
    return quotient;
  }

 private:
  static constexpr int64_t kSmall = int64_t(1) << 31;
};

}  // namespace lltm_jit
