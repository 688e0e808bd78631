// The rows of x that a step multiplies, in a warp's registers.
#pragma once

#include "stylegan/filtered_lrelu/mma/row_ring.cuh"
#include "stylegan/filtered_lrelu/mma/shape.cuh"

namespace lltm_jit {

template <typename K>
struct Window {
  using scalar_t = typename K::scalar;
  using Pair = typename K::Pair;
  using Ring = RowRing<K>;
  static constexpr bool k16Bit = sizeof(scalar_t) == 2;
  // A slice of rows as it is read, two samples of each slice of columns: neighbours in a column.
  struct Slice {
    std::conditional_t<k16Bit, uint32_t, float2> samples[K::kColumnSlices];
  };

  Pair samples[K::kColumnSlices][K::kRowWindow];
  float largest[K::kRowWindow];  // magnitude, of each slice of rows

  // By so many slices down.
  template <int kSlices>
  __device__ __forceinline__ void move() {
    if constexpr (kSlices != 0) {
#pragma unroll
      for (int s = 0; s + kSlices < K::kRowWindow; ++s) {
        largest[s] = largest[s + kSlices];
#pragma unroll
        for (int l = 0; l < K::kColumnSlices; ++l) samples[l][s] = samples[l][s + kSlices];
      }
    }
  }

  // Lanes read neighbours in a column: a chunk's rows are along k of the first product.
  static __device__ __forceinline__ Slice read(uint32_t chunk) {
    Slice slice;
    if constexpr (k16Bit) {
      const uint32_t source = chunk + lane() % 8 * Ring::kPitch + lane() / 8 * 16;
      constexpr int kFours = K::kColumnSlices / 4 * 4, kRest = K::kColumnSlices % 4;
#pragma unroll
      for (int l = 0; l < kFours; l += 4) {
        uint32_t four[4];
        load_transposed(four, source + l * 16);
#pragma unroll
        for (int m = 0; m < 4; ++m) slice.samples[l + m] = four[m];
      }
      if constexpr (kRest != 0) {
        uint32_t rest[kRest == 3 ? 4 : kRest];
        load_transposed(rest, source + kFours * 16);
#pragma unroll
        for (int m = 0; m < kRest; ++m) slice.samples[kFours + m] = rest[m];
      }
    } else {
#pragma unroll
      for (int l = 0; l < K::kColumnSlices; ++l) {
        const uint32_t at =
            chunk + fragment_column() * Ring::kPitch + (kSlice * l + fragment_row()) * 4;
        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(slice.samples[l].x) : "r"(at) : "memory");
        asm volatile("ld.shared.f32 %0, [%1];"
                     : "=f"(slice.samples[l].y)
                     : "r"(at + Ring::kPitch)
                     : "memory");
      }
    }
    return slice;
  }

  // The largest magnitude that any lane has.
  static __device__ __forceinline__ float largest_of(const Slice& slice) {
    float most;
    if constexpr (k16Bit) {
      uint32_t pair = 0;
#pragma unroll
      for (int l = 0; l < K::kColumnSlices; ++l) {
        pair = max_magnitude2<scalar_t>(pair, slice.samples[l]);
      }
      most = fmaxf(first_of<scalar_t>(pair), second_of<scalar_t>(pair));
    } else {
      most = 0;
#pragma unroll
      for (int l = 0; l < K::kColumnSlices; ++l) {
        most = fmaxf(most, fmaxf(fabsf(slice.samples[l].x), fabsf(slice.samples[l].y)));
      }
    }
    return __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(most)));
  }

  // Takes a slice, times `scale`; half as it is, for there the taps are multiplied.
  __device__ __forceinline__ void set(int position, const Slice& slice, float scale) {
#pragma unroll
    for (int l = 0; l < K::kColumnSlices; ++l) {
      if constexpr (std::is_same_v<scalar_t, Half>) {
        samples[l][position] = slice.samples[l];
      } else if constexpr (k16Bit) {
        samples[l][position] = pack2<Half>(first_of<scalar_t>(slice.samples[l]) * scale,
                                           second_of<scalar_t>(slice.samples[l]) * scale);
      } else {
        samples[l][position] =
            make_pair<Pair>(slice.samples[l].x * scale, slice.samples[l].y * scale);
      }
    }
  }
};

}  // namespace lltm_jit
