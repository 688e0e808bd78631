// The cell of a step, from the sums of its gates.
#pragma once

#include "rnn/sequence/cell.h"
#include "rnn/sequence/normalised/finish.h"
#include "rnn/sequence/numbers/gate_float.cuh"
#include "rnn/sequence/persistent/exchange/row_sums.cuh"
#include "rnn/sequence/persistent/lanes/place.cuh"

namespace lltm_jit {

// A lane's elements of the state, and the cell's other arguments.
template <typename Cell, typename scalar_t, typename Shape, SequenceControls kControls>
class ForwardCell : ThreadFacts<Cell, Shape> {
  using Facts = ThreadFacts<Cell, Shape>;
  using Facts::kShape, Facts::kGates, Facts::kStates, Facts::kElements, Facts::kWords,
      Facts::kHalves, Facts::kAdds;
  using T = GateNumber<scalar_t>;

 public:
  using State = float[kStates][kElements];

  template <typename Controls>
  LLTM_JIT_DEVICE void begin(const LanePlace<Shape>& place, const Elements<Shape>& elements,
                             const SequenceForwardArgs& args, const Controls& controls) {
    LLTM_JIT_UNROLLED(e, kElements) {
      state_[0][e] = elements.template read<scalar_t>(args.old_h, 0, e);
      LLTM_JIT_UNROLLED_FROM(k, 1, kStates) {
        state_[k][e] = elements.template read<float>(args.old_cells, k - 1, e);
      }
      LLTM_JIT_UNROLLED(k, kStates) {
        if (controls.resets(e)) state_[k][e] = 0;
      }
    }
    if constexpr (kControls == kGivenResets) {
      const auto resets = [&](int e) { return controls.resets(e); };
      read_reset<scalar_t>(place, elements, args, 0, resets, state_);
    }
    LLTM_JIT_UNROLLED(half, kHalves) {
      const int unit = min(place.lane.unit_of(2 * half), place.hidden - 1);
      const auto number = [&](const void* data, int first, int i, int size) {
        const int64_t place = int64_t(i) * size + first + unit;
        return data ? to_opmath(static_cast<const scalar_t*>(data)[place]) : 0.f;
      };
      LLTM_JIT_UNROLLED(g, kGates) {
        const int first = place.recurrence.first_gate();
        const float of_input = number(args.input_bias, first, g, place.gate_stride);
        const float of_hidden = number(args.bias, first, g, place.gate_stride);
        bias_[g][half] = to_opmath(from_opmath<scalar_t>(of_input + of_hidden));
      }
      LLTM_JIT_UNROLLED(i, CellTraits<Cell>::kParameters) {
        parameters_[i][half] =
            number(args.parameters, place.recurrence.first_unit(), i, place.units());
      }
    }
  }

  // The initial values of a step's sums: the bias, and the input's part of the gates if it is added.
  template <typename Sums>
  LLTM_JIT_DEVICE void start_sums(bool finishes, const Words<kWords> (&gates)[kGates],
                                  Sums& all) const {
    LLTM_JIT_UNROLLED2(n, kShape.phase_tiles(), g, kGates) {
      auto& sums = all[n][g];
      LLTM_JIT_UNROLLED(i, 4) sums[i] = 0;
      if (n > 0 || !finishes) continue;
      float inputs[kElements] = {};
      if constexpr (kAdds) to_floats<scalar_t>(gates[g], inputs);
      // With two elements per lane, the other half of the pack does not matter.
      LLTM_JIT_UNROLLED(i, 4) sums[i] = inputs[i % kElements] + bias_[g][kHalves == 2 ? i / 2 : 0];
    }
  }

  // Reads the states of resets before the next step, while other warps still compute this step.
  template <typename Controls>
  LLTM_JIT_DEVICE void read_ahead(const LanePlace<Shape>& place, const Elements<Shape>& elements,
                                  const SequenceForwardArgs& args, int step,
                                  const Controls& controls) {
    if constexpr (kControls == kGivenResets) {
      const auto resets = [&](int e) { return controls.resets_next(e); };
      read_reset<scalar_t>(place, elements, args, step + 1, resets, next_);
    }
  }

  // From the gates' sums, or the hidden parts.
  template <typename Controls, typename Sums>
  LLTM_JIT_DEVICE void finish(int step, const float (&sums)[kGates][kElements],
                              const Words<kWords> (&gates)[kGates], const Controls& controls,
                              const Sums& row_sums, float (&output)[kElements]) {
    float inputs[kGates][kElements];
    if constexpr (!kAdds) {
      LLTM_JIT_UNROLLED(g, kGates) to_floats<scalar_t>(gates[g], inputs[g]);
    }
    if constexpr (CellTraits<Cell>::kNormalises) {
      finish_rows(step, sums, inputs, controls, row_sums, output);
    } else {
      LLTM_JIT_UNROLLED(e, kElements) {
        T now[kStates];
        run_step(step_of(e, sums, inputs), now);
        leave(e, now, controls, output);
      }
    }
  }

  LLTM_JIT_DEVICE const State& state() const { return state_; }

 private:
  using Traits = CellTraits<Cell>;

  LLTM_JIT_DEVICE CellStep<Cell, T> step_of(int e, const float (&sums)[kGates][kElements],
                                            const float (&inputs)[kGates][kElements]) const {
    auto in = step_of_element<Cell, T>(e, sums, inputs, parameters_);
    LLTM_JIT_UNROLLED(k, kStates) in.old[k] = T(state_[k][e]);
    return in;
  }

  // Of a cell that normalises, Note [Sums of a row].
  template <typename Controls, typename Sums>
  LLTM_JIT_DEVICE void finish_rows(int step, const float (&sums)[kGates][kElements],
                                   const float (&inputs)[kGates][kElements],
                                   const Controls& controls, const Sums& row_sums,
                                   float (&output)[kElements]) {
    constexpr int kState = Traits::kNormalisedState;
    float mean[kElements], inverse[kElements], normalised[kGates][kElements];
    LLTM_JIT_UNROLLED(e, kElements) mean[e] = 0, inverse[e] = 1;
    if constexpr (Traits::kNormalisesGates) {
      float numbers[kElements][kGates];
      LLTM_JIT_UNROLLED2(e, kElements, g, kGates) numbers[e][g] = sums[g][e];
      row_sums.template moments<0>(step, numbers, mean, inverse);
    }
    LLTM_JIT_UNROLLED2(e, kElements, g, kGates)
      normalised[g][e] = (sums[g][e] - mean[e]) * inverse[e];
    T now[kElements][kStates];
    LLTM_JIT_UNROLLED(e, kElements) run_step(step_of(e, normalised, inputs), now[e]);
    if constexpr (kState >= 0) {
      float numbers[kElements][1];
      LLTM_JIT_UNROLLED(e, kElements) numbers[e][0] = float(now[e][kState]);
      row_sums.template moments<1>(step, numbers, mean, inverse);
      LLTM_JIT_UNROLLED(e, kElements) {
        finish_step<Cell>(step_of(e, normalised, inputs).p,
                          T((numbers[e][0] - mean[e]) * inverse[e]), now[e]);
      }
    }
    LLTM_JIT_UNROLLED(e, kElements) leave(e, now[e], controls, output);
  }

  template <typename Controls>
  LLTM_JIT_DEVICE void leave(int e, const T (&now)[kStates], const Controls& controls,
                             float (&output)[kElements]) {
    output[e] = float(now[0]);
    LLTM_JIT_UNROLLED(k, kStates) {
      if (!controls.holds(e)) state_[k][e] = float(now[k]);
      if (controls.resets_next(e)) state_[k][e] = kControls == kGivenResets ? next_[k][e] : 0;
    }
  }

  State state_;
  State next_{};  // of rows that are reset before the next step
  float bias_[kGates][kHalves];
  float parameters_[CellTraits<Cell>::kParametersRoom][kHalves];
};

}  // namespace lltm_jit
