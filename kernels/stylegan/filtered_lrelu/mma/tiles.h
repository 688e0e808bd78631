// The non-zero tiles of a filter's banded matrix. Numbers only, for the host and the compiler.
//
// Note [Bands]
// On one axis, where k counts samples of v from a little before the first one:
//   up    v[k] = sum over i of x[i] w[t],  t = up i + up_phase - k      for 0 <= t < taps
//   down  y[o] = sum over k of v[k] w[t],  t = k - down_phase - down o  for 0 <= t < taps
// These are products with banded matrices, of which only the tiles along the band are computed: v
// in tiles of 16, x in slices of 8, y in tiles of 8 (columns) or 16 (rows). The phases say where
// the signal lies relative to the tiles. Phases from UpBand::first_phase() to its last_phase, and
// from 0 to DownBand::last_phase, need the fewest tiles and the same ones, so one kernel serves them all:
// padding only changes the numbers in the tiles. The first sample of v is k = down_phase, so
// up_phase = padding + down_phase, less whole slices of x.
//
// Bands for more taps than a filter has support more phases: a band of T taps serves a filter of t
// taps at up phases from t - 1 on, and at T - t more down phases. Paddings that a band does not
// support need a wider one.
#pragma once

#include "core/math/scalar.h"

namespace lltm_jit {

constexpr int kTile = 16, kSlice = 8;

LLTM_JIT_HOST_DEVICE constexpr int floor_div(int a, int b) {
  return a >= 0 ? a / b : -((b - 1 - a) / b);
}
LLTM_JIT_HOST_DEVICE constexpr int larger(int a, int b) { return a > b ? a : b; }
LLTM_JIT_HOST_DEVICE constexpr int smaller(int a, int b) { return a < b ? a : b; }
// The first power of two that is at least `least`.
LLTM_JIT_HOST_DEVICE constexpr int power_of_two_above(int least) {
  int power = 1;
  while (power < least) power *= 2;
  return power;
}

// The upsampling by `factor` with a filter of `taps`.
struct UpBand {
  int factor = 0, taps = 0;
  int last_phase = 0;

  constexpr UpBand() = default;
  constexpr UpBand(int factor_, int taps_)
      : factor(factor_), taps(taps_), last_phase(first_phase()) {
    for (bool same = taps > 0; same;) {
      for (int tile = 0; tile < period(); ++tile) {
        same = same && first_slice(tile, last_phase + 1) == first_slice(tile, first_phase());
      }
      if (same) ++last_phase;
    }
  }

  // The number of tiles of v after which the band repeats.
  LLTM_JIT_HOST_DEVICE constexpr int period() const { return larger(factor / 2, 1); }
  LLTM_JIT_HOST_DEVICE constexpr int first_phase() const { return taps - 1; }

  // The slices of x that a tile of v needs, for any phase.
  LLTM_JIT_HOST_DEVICE constexpr int first_slice(int tile) const {
    return first_slice(tile, last_phase);
  }
  LLTM_JIT_HOST_DEVICE constexpr int last_slice(int tile) const {
    return floor_div(floor_div(kTile * tile + kTile - 1 + taps - 1 - first_phase(), factor),
                     kSlice);
  }
  // The number of slices of x that lie before a tile of v.
  LLTM_JIT_HOST_DEVICE constexpr int slices_before(int tile) const {
    return floor_div(kTile * tile, kSlice * factor);
  }
  // Whether eight samples of v depend on a slice of x that begins `distance` samples away.
  LLTM_JIT_HOST_DEVICE constexpr bool touches(int distance) const {
    return distance + first_phase() - 7 < taps &&
           distance + (kSlice - 1) * factor + last_phase >= 0;
  }
  // A filter of equally many taps whose phases follow this one's.
  constexpr UpBand wider() const { return {factor, last_phase + 2}; }

 private:
  LLTM_JIT_HOST_DEVICE constexpr int first_slice(int tile, int phase) const {
    return floor_div(floor_div(kTile * tile - phase + factor - 1, factor), kSlice);
  }
};

// The downsampling by `factor` with a filter of `taps`.
struct DownBand {
  int factor = 0, taps = 0;
  int last_phase = 0;

  constexpr DownBand() = default;
  constexpr DownBand(int factor_, int taps_) : factor(factor_), taps(taps_) {
    const auto room = [](int last) { return kTile - 1 - last % kTile; };
    // A tile of 8 columns begins at the first half of a tile of v or, at factor 1, perhaps at the second.
    const int columns = smaller(room(samples(8) - 1), room(8 * factor + samples(8) - 1));
    last_phase = smaller(columns, room(samples(16) - 1));
  }

  // One more than the last sample that `outputs` outputs need, counted from the first one's place.
  LLTM_JIT_HOST_DEVICE constexpr int samples(int outputs) const {
    return factor * (outputs - 1) + taps;
  }
  // The number of tiles of v that outputs depend on, for any phase.
  LLTM_JIT_HOST_DEVICE constexpr int tiles(int outputs) const {
    return (samples(outputs) - 1 + last_phase) / kTile + 1;
  }
  // Whether outputs depend on a tile of v that begins `distance` samples after their first sample.
  LLTM_JIT_HOST_DEVICE constexpr bool touches(int distance, int outputs) const {
    return distance > -kTile && distance < samples(outputs) + last_phase;
  }
  constexpr DownBand wider() const { return {factor, taps + last_phase + 1}; }
};

}  // namespace lltm_jit
