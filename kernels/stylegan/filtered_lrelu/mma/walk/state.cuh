// The part of a walk's state that its lanes share, in shared memory: place, scales, and bias.
#pragma once

#include "stylegan/filtered_lrelu/mma/walk/scales.cuh"

namespace lltm_jit {

template <typename K>
struct WalkState {
  using Sums = typename K::Sums;
  using UpTaps = typename Bands<K>::UpTaps;
  static constexpr bool kBias = K::kSigns != Signs::Read;  // a derivative has none
  static constexpr int kFactor = K::kUp;

  // The inner steps: there all taps meet rows of the image, so that the bias adds the same to all of U x.
  struct InnerSteps {
    int first, count;
    LLTM_JIT_DEVICE bool have(int i) const {
      return static_cast<unsigned>(i - first) < static_cast<unsigned>(count);
    }
  };

  Place<K> place;
  Scales<typename K::scalar> scales;
  float bias;
  InnerSteps inner_steps;
  float inner_bias[kFactor];       // the bias's part of U x at inner steps, by the row's phase
  OutliersNote notes[kMostWalks];  // of the warp's walks

  // The bias of a walk's channel.
  static LLTM_JIT_DEVICE float bias_of(const MmaCall& call, int walk) {
    if (!call.args.bias || walk >= call.walks) return 0;
    const unsigned plane = Place<K>(call, walk).plane;
    const unsigned channel = plane - call.channels.divide(plane) * call.channels.divisor;
    return to_opmath(static_cast<const typename K::scalar*>(call.args.bias)[channel]);
  }

  // Begins a walk. One lane calls it.
  LLTM_JIT_DEVICE void begin(const MmaCall& call, const ScaleConstants& constants, int walk,
                             float next_bias) {
    place = Place<K>(call, walk);
    const bool finite = !kBias || isfinite(next_bias);
    const float added = kBias && finite ? next_bias : 0;
    bias = added;
    scales.begin(constants, added, finite, !kBias);
    if constexpr (kBias) {
      const int first = first_row(call, place, 0);
      const int end = kFactor * call.args.in_h - kTile - K::kUpTaps + 1;
      inner_steps.first = floor_div(-kFactor - first, kTile) + 1;
      inner_steps.count = max(floor_div(end - first, kTile) + 1 - inner_steps.first, 0);
      if (added == 0) inner_steps = {0, 1 << 30};
    }
  }

  // Called by one lane when the scales change. Inside the image a sample meets all taps of its phase.
  LLTM_JIT_DEVICE void settle_bias(const MmaCall& call, const UpTaps& up_taps) {
    const float scaled = bias * scales.limits.in_scale;
    const int first = first_row(call, place, 0);
    LLTM_JIT_UNROLLED(row, kFactor) {
      inner_bias[row] = scaled * sum_of_taps(up_taps, -first - row, K::kUpTaps);
    }
  }

  // The initial sums of U x at inner steps.
  LLTM_JIT_DEVICE Sums inner_sums() const {
    Sums sums = {};
    if constexpr (kBias) {
      const float value = inner_bias[fragment_row() % kFactor];
      fill_rows(sums, value, value);
    }
    return sums;
  }
  // The initial sums at other steps: the bias times the taps of a row that meet the image.
  LLTM_JIT_DEVICE void bias_of_rows(const MmaCall& call, const UpTaps& up_taps, int i,
                                    Sums& sums) const {
    const int first = first_row(call, place, i) + fragment_row(), end = kFactor * call.args.in_h;
    const float scaled = bias * scales.limits.in_scale;
    const auto inside = [&](int row) {
      return sum_of_taps(up_taps, -row, end - kFactor - row) -
             sum_of_taps(up_taps, -row, -kFactor - row);
    };
    fill_rows(sums, scaled * inside(first), scaled * inside(first + 8));
  }

 private:
  // Tap t of row r of step i's tile is at row (first_row() + r + t) / factor of the image.
  static LLTM_JIT_DEVICE int first_row(const MmaCall& call, const Place<K>& place, int i) {
    return kTile * i - call.plan.rows.up_phase + kSlice * kFactor * place.row_slice;
  }
  // The sum of the taps t <= last with t = phase modulo the factor.
  static LLTM_JIT_DEVICE float sum_of_taps(const UpTaps& up_taps, int phase, int last) {
    const int most = min(last, UpTaps::kLast);
    const int t = most - ((most - phase) & (kFactor - 1));
    return t < 0 ? 0 : up_taps.sums[t];
  }
};

}  // namespace lltm_jit
