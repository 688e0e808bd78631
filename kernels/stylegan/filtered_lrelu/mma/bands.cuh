// The filters as tiles of banded matrices, in registers. See Note [Bands].
//
// Note [Taps in half]
// Rounding the taps to half would cause the largest error of all. So they are first multiplied by
// one of 32 common factors, and by a power of two that brings the sum of their magnitudes below 1,
// so that nothing overflows. The multiplication that the results need anyway undoes both, and also
// corrects what rounding does to the sum of the taps.
//
// The factor is chosen to minimise the taps' rounding errors, which it halves, together with the
// rounding error of one more number. Where much is clamped, v is a constant, and so is v D': such a
// constant has the same error everywhere, and filters do not average it out. For the filter up, that
// number is the clamp in the units of v; for the filter down, it is the clamped v after the filter.
#pragma once

#include "stylegan/filtered_lrelu/mma/operands.cuh"
#include "stylegan/filtered_lrelu/mma/plan.h"

namespace lltm_jit {

// The factor that taps are multiplied by before rounding, and the factor that they contain after it.
struct TapScale {
  float factor, scale;
};

LLTM_JIT_DEVICE float round_to_half(float value) { return to_opmath(from_opmath<Half>(value)); }

// A filter in the kernel's form: w[t] of Note [Bands] times scale.
template <int kTaps>
struct ScaledTaps {
  static_assert(kTaps <= 32, "a lane has a tap");
  float taps[kTaps];
  float sums[kTaps];  // of each tap and the taps `step`, 2 `step`, ... before it
  float scale;
  float gain;  // the largest sum of magnitudes of the taps that one sample meets

  static constexpr int kLast = kTaps - 1;

  LLTM_JIT_DEVICE float operator()(int t) const {
    return static_cast<unsigned>(t) < kTaps ? taps[t] : 0.f;
  }

  // One warp calls it, with the tap from read_tap() and the scale from choose().
  template <typename scalar_t>
  LLTM_JIT_DEVICE void set(float tap, const TapScale& choice, int step) {
    tap *= choice.factor;
    if constexpr (!std::is_same_v<scalar_t, float>) tap = round_to_half(tap);
    float total = 0, magnitudes = 0;
    for (int t = 0; t < kTaps; ++t) {
      const float other = __shfl_sync(~0u, tap, t);
      if ((t + 32 - lane()) % step != 0) continue;
      magnitudes += fabsf(other);
      if (t <= lane()) total += other;
    }
    if (lane() < kTaps) taps[lane()] = tap, sums[lane()] = total;
    magnitudes = warp_max(magnitudes);
    if (lane() == 0) scale = choice.scale, gain = magnitudes;
  }

  // This lane's tap of `count` taps; a null filter is the identity.
  static LLTM_JIT_DEVICE float read_tap(const float* filter, int count, bool flip) {
    if (lane() >= count) return 0;
    return filter ? filter[flip ? lane() : count - 1 - lane()] : 1.f;
  }

  // Chooses the scale of the taps, of which a sample meets each `step`-th. constant(scale, sum) is
  // the one more number of Note [Taps in half].
  template <typename scalar_t, typename Constant>
  static LLTM_JIT_DEVICE TapScale choose(float tap, int step, const Constant& constant) {
    const float sum = sum_of_phase(tap, step);
    // 1.01, because the rounded taps may add up to more.
    const int exponent = binary_exponent(1.01f * sum);
    float factor = Arithmetic<scalar_t>::kTapSum * power_of_two(min(max(-exponent - 1, -60), 60));
    if (sum == 0) factor = 1;
    if constexpr (std::is_same_v<scalar_t, float>) {
      return {factor, factor};
    } else {
      return best_choice(tap * factor, factor, constant);
    }
  }

 private:
  static LLTM_JIT_DEVICE float warp_max(float value) {
    return __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(value)));
  }
  static LLTM_JIT_DEVICE float sum_of_phase(float tap, int step) {
    float sum = 0;
    for (int t = 0; t < kTaps; ++t) {
      const float other = fabsf(__shfl_sync(~0u, tap, t));
      if ((t + 32 - lane()) % step == 0) sum += other;
    }
    return warp_max(sum);
  }

  // Each lane tries one factor from 1/2 to 1.
  template <typename Constant>
  static LLTM_JIT_DEVICE TapScale best_choice(float tap, float factor, const Constant& constant) {
    const float own = kTaps == 1 ? 0.5f : 0.5f + lane() / 64.f;  // products with a 1 are exact
    float error = 0, energy = 0, sum = 0, rounded_sum = 0, magnitudes = 0;
    for (int t = 0; t < kTaps; ++t) {
      const float scaled = __shfl_sync(~0u, tap, t) * own, rounded = round_to_half(scaled);
      error += (rounded - scaled) * (rounded - scaled);
      energy += scaled * scaled;
      sum += scaled;
      rounded_sum += rounded;
      magnitudes += fabsf(scaled);
    }
    float scale = own * factor;
    if (fabsf(sum) > 0.25f * magnitudes) scale *= rounded_sum / sum;
    const float lost = rounding_of(constant(scale, rounded_sum));
    // The cost of a scale. Both axes have the taps' errors.
    const float cost = (energy > 0 ? 2 * error / energy : 0.f) + lost * lost;
    const int best = __reduce_min_sync(~0u, (__float_as_uint(cost) & ~31u) | lane()) & 31;
    return {__shfl_sync(~0u, own * factor, best), __shfl_sync(~0u, scale, best)};
  }
  // The relative error of rounding a number to half, if its exponent is in range.
  static LLTM_JIT_DEVICE float rounding_of(float value) {
    return round_to_half(mantissa(value)) / mantissa(value) - 1;
  }
};

// The tiles of all products but the last, in registers. K is a Shape of shape.cuh.
template <typename K>
struct Bands {
  using Pair = typename K::Pair;
  // Bands may be for more taps than any filter has.
  static constexpr int kMostTaps = 24;
  using UpTaps = ScaledTaps<smaller(K::kUpTaps, kMostTaps)>;
  using DownTaps = ScaledTaps<smaller(K::kDownTaps, kMostTaps)>;
  static constexpr int kPeriod = K::kUpPeriod;

  // Note [Eight samples]
  // With factor 4, eight columns of v need at most eight neighbouring columns of x, the last ones
  // of one slice and the first ones of the next. For each place, a lane takes its numbers from one
  // of the two slices, and a product with k = 8 replaces one with k = 16.
  static constexpr bool kEight = K::kEight;
  uint32_t choice[kPeriod][2];  // selects bytes of the first slice or the second

  Pair up_rows[kPeriod][K::kRowWindow][2];  // A: 16 rows of v by a slice of rows of x
  // B: a slice of columns of x, or eight of two, by 8 columns of v, twice.
  Pair up_columns[kPeriod][kEight ? 1 : K::kColumnWindow][2];
  Pair down_columns[2 * K::down().tiles(8) + 1][2];  // B: 16 columns of v by 8 columns of y

  // `sign` is multiplied into the second product, so that v has the sign of the gain.
  LLTM_JIT_DEVICE void make(const UpTaps& up, const DownTaps& down, const AxisPlan& rows,
                            const AxisPlan& columns, float sign) {
    constexpr int kFactor = K::kUp, kDown = K::kDown;
    const int row = threadIdx.x % 32 / 4, k = threadIdx.x % 4 * 2;
    LLTM_JIT_UNROLLED2(tile, kPeriod, half, 2) {
      const int x = kFactor * k - row - 8 * half - kTile * tile;
      LLTM_JIT_UNROLLED(s, K::kRowWindow) {
        const int slice = K::up().slices_before(tile) + K::kFirstRowSlice + s;
        const int t = kSlice * kFactor * slice + x + rows.up_phase;
        up_rows[tile][s][half] = make_pair<Pair>(up(t), up(t + kFactor));
      }
      if constexpr (kEight) {
        // The first of the eight columns, counted from the beginning of the first slice.
        const int first = 4 * tile + 2 * half - floor_div(columns.up_phase, kFactor) -
                          kSlice * K::up().first_slice(tile);
        const auto tap = [&](int place) {
          const int column =
              kSlice * K::up().first_slice(tile) + place + (place < first ? kSlice : 0);
          return sign * up(kFactor * (column - k) + x + columns.up_phase);
        };
        choice[tile][half] = (k < first ? 0x54 : 0x10) | (k + 1 < first ? 0x7600 : 0x3200);
        up_columns[tile][0][half] = make_pair<Pair>(tap(k), tap(k + 1));
      } else {
        LLTM_JIT_UNROLLED(s, K::kColumnWindow) {
          const int t = kSlice * kFactor * (K::up().first_slice(tile) + s) + x + columns.up_phase;
          up_columns[tile][s][half] = make_pair<Pair>(sign * up(t), sign * up(t + kFactor));
        }
      }
    }
#pragma unroll
    for (int h = 0; h <= 2 * K::down().tiles(8); ++h) {
      LLTM_JIT_UNROLLED(half, 2) {
        const int t = 8 * (h - 1) + k + 8 * half - kDown * row - columns.down_phase;
        down_columns[h][half] = make_pair<Pair>(down(t), down(t + 1));
      }
    }
  }
};

}  // namespace lltm_jit
