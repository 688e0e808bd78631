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
  // half needs no conversion: rather than move what it has, a window is read anew.
  static constexpr bool kRereads = std::is_same_v<scalar_t, Half>;
  static constexpr int kSlices = K::kRowWindow;
  // A slice of rows as it is read, two samples of each slice of columns: neighbours in a column.
  struct Slice {
    std::conditional_t<k16Bit, uint32_t, float2> samples[K::kColumnSlices];
  };

  Pair samples[K::kColumnSlices][kSlices];
  Slice fresh[kSlices];           // slices that are not in `samples` yet
  uint32_t magnitudes[kSlices];   // the largest of each slice: bits of floats

  // The window of a step that has kNew slices more than the one before.
  template <int kNew>
  __device__ __forceinline__ void read(const Ring& ring, bool first_step) {
    if constexpr (kRereads) {
      read_all(ring);
    } else {
#pragma unroll
      for (int s = 0; s + kNew < kSlices; ++s) {
        magnitudes[s] = magnitudes[s + kNew];
#pragma unroll
        for (int l = 0; l < K::kColumnSlices; ++l) samples[l][s] = samples[l][s + kNew];
        if (first_step) magnitudes[s] = largest_of(read_slice(ring, s));
      }
#pragma unroll
      for (int s = kSlices - kNew; s < kSlices; ++s) {
        fresh[s] = read_slice(ring, s);
        magnitudes[s] = largest_of(fresh[s]);
      }
    }
  }

  // The bits of the largest magnitude, of all lanes.
  __device__ __forceinline__ uint32_t largest() const {
    uint32_t most = 0;
    if constexpr (kRereads) {
      uint32_t pair = 0;
#pragma unroll
      for (int l = 0; l < K::kColumnSlices; ++l) {
#pragma unroll
        for (int s = 0; s < kSlices; ++s) pair = max_magnitude2<scalar_t>(pair, samples[l][s]);
      }
      most = larger_bits(pair);
    } else {
#pragma unroll
      for (int s = 0; s < kSlices; ++s) most = max(most, magnitudes[s]);
    }
    return __reduce_max_sync(~0u, most);
  }

  // Takes the fresh slices, times `scale`; half is as it is, for there the taps are multiplied.
  template <int kNew>
  __device__ __forceinline__ void convert(float scale) {
    if constexpr (!kRereads) {
#pragma unroll
      for (int s = kSlices - kNew; s < kSlices; ++s) set(s, fresh[s], scale);
    }
  }
  // The other slices with another scale.
  __device__ __forceinline__ void reread(const Ring& ring, float scale) {
    if constexpr (!kRereads) {
#pragma unroll
      for (int s = 0; s < kSlices; ++s) set(s, read_slice(ring, s), scale);
    }
  }

 private:
  // As pairs of slices along k: a register pair of an operand B each.
  __device__ __forceinline__ void read_all(const Ring& ring) {
#pragma unroll
    for (int s = 0; s < kSlices; s += 2) {
      const uint32_t source =
          ring.at(s + lane() / 8 % 2, lane() % 8 * Ring::kPitch + lane() / 16 * 16);
#pragma unroll
      for (int l = 0; l < K::kColumnSlices; l += 2) {
        uint32_t four[4];
        load_transposed(four, source + l * 16);
        samples[l][s] = four[0];
        samples[l][s + 1] = four[1];
        if (l + 1 < K::kColumnSlices) {
          samples[l + 1][s] = four[2];
          samples[l + 1][s + 1] = four[3];
        }
      }
    }
  }

  // Lanes read neighbours in a column: a chunk's rows are along k of the first product.
  static __device__ __forceinline__ Slice read_slice(const Ring& ring, int position) {
    Slice slice;
    if constexpr (k16Bit) {
      const uint32_t source = ring.at(position, lane() % 8 * Ring::kPitch + lane() / 8 * 16);
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
      const uint32_t source =
          ring.at(position, fragment_column() * Ring::kPitch + fragment_row() * 4);
#pragma unroll
      for (int l = 0; l < K::kColumnSlices; ++l) {
        const uint32_t at = source + kSlice * l * 4;
        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(slice.samples[l].x) : "r"(at) : "memory");
        asm volatile("ld.shared.f32 %0, [%1];"
                     : "=f"(slice.samples[l].y)
                     : "r"(at + Ring::kPitch)
                     : "memory");
      }
    }
    return slice;
  }

  // The bits of the larger of two magnitudes, as a float.
  static __device__ __forceinline__ uint32_t larger_bits(uint32_t pair) {
    return __float_as_uint(fmaxf(first_of<scalar_t>(pair), second_of<scalar_t>(pair)));
  }
  // This lane's share of a slice.
  static __device__ __forceinline__ uint32_t largest_of(const Slice& slice) {
    if constexpr (k16Bit) {
      uint32_t pair = 0;
#pragma unroll
      for (int l = 0; l < K::kColumnSlices; ++l) {
        pair = max_magnitude2<scalar_t>(pair, slice.samples[l]);
      }
      return larger_bits(pair);
    } else {
      float most = 0;
#pragma unroll
      for (int l = 0; l < K::kColumnSlices; ++l) {
        most = fmaxf(most, fmaxf(fabsf(slice.samples[l].x), fabsf(slice.samples[l].y)));
      }
      return __float_as_uint(most);
    }
  }

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
