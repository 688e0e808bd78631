// Sums of products of rows by rows: see Note [Two tiles].
#pragma once

#include <c10/macros/Macros.h>

#include <algorithm>

#include "core/products/register_tile.h"

namespace lltm_jit {

// Adds neighbouring lanes of two vectors; the sums of `a` go to the lower half.
template <typename Vec>
inline Vec add_pairs(const Vec& a, const Vec& b) {
  const auto [even, odd] = at::vec::deinterleave2(a, b);
  return even + odd;
}

// Writes the sum over each vector's lanes. `target` has room for whole vectors.
template <typename acc_t, int kCount>
inline void sum_lanes(at::vec::Vectorized<acc_t> (&vectors)[kCount], acc_t* target) {
  constexpr int kLanes = RegisterTile<acc_t>::kLanes;
  int count = kCount;
#pragma GCC unroll 4
  for (int step = 1; step < kLanes; step *= 2) {
    const int pairs = (count + 1) / 2;
#pragma GCC unroll 16
    for (int i = 0; i < pairs; ++i) {
      vectors[i] = add_pairs(vectors[2 * i], vectors[std::min(2 * i + 1, count - 1)]);
    }
    count = pairs;
  }
#pragma GCC unroll 16
  for (int i = 0; i < count; ++i) vectors[i].store(target + i * kLanes);
}

// A piece of the rows that dot_tile multiplies: `length` elements of rows a + r * a_stride, and of
// the rows of b at their offsets.
template <typename scalar_t>
struct DotPiece {
  const scalar_t* a;
  int64_t a_stride;
  const scalar_t* b;
  int64_t length;
};

// Sums kRows rows of A by kColumns rows of B, over two pieces of each. Unless this is the first
// call, the sums start from `partial`, where the call before left them. The last call writes them
// to target[r * kColumns + c]. Both arrays have room for whole vectors.
template <typename scalar_t, int kRows, int kColumns>
C10_NOINLINE void dot_tile(const DotPiece<scalar_t> (&pieces)[2],
                           const int64_t (&offsets)[kColumns], bool first, bool last,
                           opmath_t<scalar_t>* partial, opmath_t<scalar_t>* target) {
  using acc_t = opmath_t<scalar_t>;
  using Vec = at::vec::Vectorized<acc_t>;
  constexpr int kCount = kRows * kColumns;
  Vec sums[kCount];
#pragma GCC unroll 32
  for (int i = 0; i < kCount; ++i) {
    sums[i] = first ? Vec(acc_t(0)) : Vec::loadu(partial + i * Vec::size());
  }
  for (const auto& piece : pieces) {
    const auto add_lanes = [&](int64_t k, int64_t count) C10_ALWAYS_INLINE_ATTRIBUTE {
      Vec rows[kRows];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) rows[r] = load(piece.a + r * piece.a_stride + k, count);
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c) {
        const Vec column = load(piece.b + offsets[c] + k, count);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          sums[r * kColumns + c] = at::vec::fmadd(rows[r], column, sums[r * kColumns + c]);
        }
      }
    };
    int64_t k = 0;
    for (; k + Vec::size() <= piece.length; k += Vec::size()) add_lanes(k, Vec::size());
    if (k < piece.length) add_lanes(k, piece.length - k);
  }
  if (last) {
    sum_lanes<acc_t, kCount>(sums, target);
    return;
  }
#pragma GCC unroll 32
  for (int i = 0; i < kCount; ++i) sums[i].store(partial + i * Vec::size());
}

}  // namespace lltm_jit
