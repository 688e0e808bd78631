// The rows of x that a step multiplies, in a warp's registers.
#pragma once

#include "stylegan/filtered_lrelu/mma/memory/row_ring.cuh"
#include "stylegan/filtered_lrelu/mma/shape.cuh"
#include "stylegan/filtered_lrelu/mma/walk/scales.cuh"

namespace lltm_jit {

template <typename K>
struct Window {
  using scalar_t = typename K::scalar;
  using Pair = typename K::Pair;
  using Ring = RowRing<K>;
  static constexpr bool k16Bit = sizeof(scalar_t) == 2;

  // Operands B, times the scale. Half is not scaled here: its taps are.
  Pair pairs[K::kColumnSlices][K::kRowWindow];

  // Reads the slices of rows from `first` of the ring on. Each lane gets neighbours in a column,
  // because a chunk's rows are along k of the first product.
  LLTM_JIT_DEVICE void read(const Ring& ring, int first, float scale) {
    if constexpr (!k16Bit) {
      LLTM_JIT_UNROLLED(l, K::kColumnSlices) read_columns(ring, first, scale, l);
    } else {
      // As pairs of slices along k, because the registers of an operand B are neighbours.
#pragma unroll
      for (int s = 0; s < K::kRowWindow; s += 2) {
        const uint32_t source =
            ring.at(first + s + lane() / 8 % 2, lane() % 8 * Ring::kPitch + lane() / 16 * 16);
#pragma unroll
        for (int l = 0; l < K::kColumnSlices; l += 2) {
          uint32_t four[4];
          load_matrices<true>(four, source + l * 16);
          LLTM_JIT_UNROLLED(m, 4) {
            if (l + m / 2 < K::kColumnSlices) pairs[l + m / 2][s + m % 2] = scaled(four[m], scale);
          }
        }
      }
    }
  }
  // The same for one slice of columns, in float.
  LLTM_JIT_DEVICE void read_columns(const Ring& ring, int first, float scale, int l) {
#pragma unroll
    for (int s = 0; s < K::kRowWindow; s += 2) {
      const uint32_t in_chunk = fragment_column() * Ring::kPitch + fragment_row() * 4;
      FloatSums sums;  // in the layout of sums, which are split the same way
      LLTM_JIT_UNROLLED(e, 4) {
        const uint32_t source = ring.at(first + s + e / 2, in_chunk);
        asm volatile("ld.shared.f32 %0, [%1];"
                     : "=f"(sums.value[e])
                     : "r"(source + e % 2 * Ring::kPitch + kSlice * l * 4)
                     : "memory");
        sums.value[e] *= scale;
      }
      Pair both[2];
      to_pairs(sums, both);
      pairs[l][s] = both[0];
      pairs[l][s + 1] = both[1];
    }
  }

 private:
  static LLTM_JIT_DEVICE uint32_t scaled(uint32_t pair, float scale) {
    if constexpr (std::is_same_v<scalar_t, Half>) return pair;
    return pack2<Half>(first_of<scalar_t>(pair) * scale, second_of<scalar_t>(pair) * scale);
  }
};

// The largest magnitudes in a window's slices of rows, among the numbers that each lane has copied.
template <typename K>
struct LargestRows {
  using scalar_t = typename K::scalar;
  using Ring = RowRing<K>;
  static constexpr bool k16Bit = sizeof(scalar_t) == 2;
  using Most =
      std::conditional_t<k16Bit, uint32_t, float>;  // of the numbers at even, and at odd places

  Most slices[K::kRowWindow];

  // Drops the oldest kCount slices and adds as many from `first` of the ring on.
  template <int kCount>
  LLTM_JIT_DEVICE void look_at(const Ring& ring, int first) {
    LLTM_JIT_UNROLLED(s, K::kRowWindow - kCount) slices[s] = slices[s + kCount];
    LLTM_JIT_UNROLLED(s, kCount) {
      Most most[2] = {};  // two, to shorten the chain of waits
      const uint32_t copied = ring.copied(first + s);
      Ring::for_each_piece([&](int rows, int columns) {
        const auto piece = load_shared<uint4>(copied + Ring::offset(rows, columns));
        raise(most[0], piece.x);
        raise(most[1], piece.y);
        raise(most[0], piece.z);
        raise(most[1], piece.w);
      });
      slices[K::kRowWindow - kCount + s] = larger_of(most[0], most[1]);
    }
  }

  // The bits of the largest magnitude in this lane; of_warp() has the warp's.
  LLTM_JIT_DEVICE uint32_t of_lane() const {
    Most most = slices[0];
#pragma unroll
    for (int s = 1; s < K::kRowWindow; ++s) most = larger_of(most, slices[s]);
    return bits(most);
  }
  LLTM_JIT_DEVICE uint32_t of_warp() const { return __reduce_max_sync(~0u, of_lane()); }
  // The smallest magnitude among the lanes' largest ones in each slice, leaving out zeros.
  LLTM_JIT_DEVICE uint32_t smallest_of_warp() const {
    uint32_t before = ~0u;  // less 1, so that 0 becomes the largest
#pragma unroll
    for (const Most& slice : slices) before = min(before, bits(slice) - 1);
    return __reduce_min_sync(~0u, before) + 1;
  }
  // Whether this lane's largest magnitude in one of the last kCount slices may be below 1 + `count`
  // and not 0. Of a pair only the second number is compared, because it needs no shift.
  template <int kCount>
  LLTM_JIT_DEVICE bool new_ones_below(uint32_t count) const {
    bool below = false;
#pragma unroll
    for (int s = K::kRowWindow - kCount; s < K::kRowWindow; ++s) {
      uint32_t number;
      if constexpr (k16Bit) {
        number = slices[s];
      } else {
        number = bits(slices[s]);
      }
      below = below || number - 1 < count;
    }
    return below;
  }

  // Note [Outliers]: removes them from the window that begins at `first` of the ring, and gives the
  // bits of the largest magnitude that is left.
  LLTM_JIT_DEVICE uint32_t without_outliers(const Ring& ring, int first, Scales<scalar_t>& scales,
                                            float bias) {
    uint32_t outliers = Scales<scalar_t>::kInfinity;
    if constexpr (!Scales<scalar_t>::kHalf) {
      outliers = scales.outliers_for(smallest_of_warp(), bias);
    }
    const uint32_t largest = of_warp();
    if (largest < outliers) return largest;
#pragma unroll 1
    for (int s = 0; s < K::kRowWindow; ++s) leave_out(ring.copied(first + s), outliers);
    look_at<K::kRowWindow>(ring, first);
    __syncwarp();
    if (lane() == 0) {
      scales.outliers = min(scales.outliers, outliers);
      scales.left_out = true;
    }
    return of_warp();
  }

 private:
  // Sets to zero those numbers that this lane has copied of a chunk, from `piece` on, and whose
  // magnitudes have bits of at least `least`. Not inline, so that it takes no registers from the steps.
  static __device__ __noinline__ void leave_out(uint32_t piece, uint32_t least) {
    const auto kept = [&](uint32_t bits) {
      if constexpr (k16Bit) {
        const auto is_kept = [&](float x) { return __float_as_uint(fabsf(x)) < least; };
        return (is_kept(first_of<scalar_t>(bits)) ? bits & 0x0000ffffu : 0u) |
               (is_kept(second_of<scalar_t>(bits)) ? bits & 0xffff0000u : 0u);
      } else {
        return (bits & 0x7fffffffu) < least ? bits : 0u;
      }
    };
    Ring::for_each_piece([&](int rows, int columns) {
      const uint32_t address = piece + Ring::offset(rows, columns);
      const auto four = load_shared<uint4>(address);
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(kept(four.x)),
                   "r"(kept(four.y)), "r"(kept(four.z)), "r"(kept(four.w))
                   : "memory");
    });
  }

  static LLTM_JIT_DEVICE uint32_t bits(uint32_t most) {
    return max(__float_as_uint(first_of<scalar_t>(most)),
               __float_as_uint(second_of<scalar_t>(most)));
  }
  static LLTM_JIT_DEVICE uint32_t bits(float most) { return __float_as_uint(most); }
  static LLTM_JIT_DEVICE uint32_t larger_of(uint32_t a, uint32_t b) {
    return max_magnitude2<scalar_t>(a, b);
  }
  static LLTM_JIT_DEVICE float larger_of(float a, float b) { return larger_or_nan(a, b); }
  static LLTM_JIT_DEVICE void raise(uint32_t& most, uint32_t pair) {
    most = max_magnitude2<scalar_t>(most, pair);
  }
  static LLTM_JIT_DEVICE void raise(float& most, uint32_t bits) {
    most = larger_or_nan(most, fabsf(__uint_as_float(bits)));
  }
};

}  // namespace lltm_jit
