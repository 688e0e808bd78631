// The derivative of a step's cell, and the gradients that it passes to the step before.
#pragma once

#include "rnn/sequence/cell.h"
#include "rnn/sequence/normalised/finish.h"
#include "rnn/sequence/numbers/gate_float.cuh"
#include "rnn/sequence/persistent/exchange/row_sums.cuh"
#include "rnn/sequence/persistent/lanes/place.cuh"

namespace lltm_jit {

// Where the gradients of the states of resets are added: of resets before an iteration's step, and before the step of
// the previous iteration.
template <typename Shape>
struct ResetGradients {
  const LanePlace<Shape>& place;
  const Elements<Shape>& elements;
  const SequenceBackwardArgs& args;
  int iteration;

  // No other lane has the element.
  LLTM_JIT_DEVICE void add(int iterations_before, int k, int e, float value) const {
    const int step = place.steps - 1 - iteration + iterations_before;
    const auto& array = k == 0 ? args.grad_reset_h : args.grad_reset_cells;
    float* sums = of_reset<float>(place, array, step);
    if (sums && elements.exists(e)) atomicAdd(sums + elements.place(k == 0 ? 0 : k - 1, e), value);
  }
};

// A lane's elements of the gradients that pass from step to step, and the cell's other arguments.
template <typename Cell, typename scalar_t, typename Shape, SequenceControls kControls,
          bool kAllStates>
class BackwardCell : ThreadFacts<Cell, Shape> {
  using Facts = ThreadFacts<Cell, Shape>;
  using Facts::kGates, Facts::kStates, Facts::kElements, Facts::kHalves, Facts::kAdds;
  static constexpr int kParameters = CellTraits<Cell>::kParameters;
  using T = GateNumber<scalar_t>;
  using Step = CellStep<Cell, T>;

 public:
  // The parts of a step's gradients that do not depend on later steps: its derivative, and the given gradients of
  // its output and of the cell states before it.
  struct Ordinary {
    CellDerivative<Cell, T> derivatives[kElements];
  };
  // For a cell that normalises: a step on normalised gates, the state that is normalised, and the divisors of both.
  struct Normalised {
    Step in[kElements];
    float state[kElements], gate_scale[kElements], state_scale[kElements];
  };
  struct Prepared : std::conditional_t<CellTraits<Cell>::kNormalises, Normalised, Ordinary> {
    float grad_output[kElements];
    float grad_cells[kAllStates && kStates > 1 ? kStates - 1 : 1][kElements];
  };

  LLTM_JIT_DEVICE void begin(const LanePlace<Shape>& place, const Elements<Shape>& elements,
                             const SequenceBackwardArgs& args) {
    LLTM_JIT_UNROLLED(e, kElements) {
      grad_state_[0][e] = elements.template read<scalar_t>(args.grad_new_h, 0, e);
      LLTM_JIT_UNROLLED_FROM(k, 1, kStates) {
        grad_state_[k][e] = elements.template read<float>(args.grad_new_cells, k - 1, e);
      }
      if constexpr (kControls) old_h_[e] = elements.template read<scalar_t>(args.old_h, 0, e);
      LLTM_JIT_UNROLLED(i, kParameters) grad_parameters_[i][e] = 0;
    }
    LLTM_JIT_UNROLLED(half, kHalves) {
      const int unit = min(place.lane.unit_of(2 * half), place.hidden - 1);
      LLTM_JIT_UNROLLED(i, kParameters) {
        parameters_[i][half] = to_opmath(static_cast<const scalar_t*>(
            args.parameters)[int64_t(i) * place.units() + place.recurrence.first_unit() + unit]);
      }
    }
  }

  // iteration: the iteration whose step is derived.
  template <typename Steps, typename Controls>
  LLTM_JIT_DEVICE void prepare(const Steps& steps, const Controls& controls,
                               const LanePlace<Shape>& place, const Elements<Shape>& elements,
                               const SequenceBackwardArgs& args, int iteration,
                               Prepared* prepared) const {
    steps.read(Steps::kGradOutput, prepared->grad_output);
    float saved[kGates][kElements], inputs[kGates][kElements], old_h[kElements];
    steps.read(Steps::kOldOutput, old_h);
    LLTM_JIT_UNROLLED(g, kGates) {
      steps.read(Steps::kSaved + g, saved[g]);
      if constexpr (!kAdds) steps.read(Steps::kInputs + g, inputs[g]);
    }
    LLTM_JIT_UNROLLED(e, kElements) {
      auto in = step_of_element<Cell, T>(e, saved, inputs, parameters_);
      if constexpr (kControls) {  // a hold before a row's first step has no output
        if (controls.holds_next(e)) old_h[e] = old_h_[e];
        if (controls.resets(e)) old_h[e] = 0;
        if constexpr (kControls == kGivenResets) {
          const int step = place.steps - 1 - iteration;
          const auto* h = of_reset<scalar_t>(place, args.reset_h, step);
          if (controls.resets(e)) old_h[e] = elements.template read<scalar_t>(h, 0, e);
        }
      }
      in.old[0] = T(old_h[e]);
      LLTM_JIT_UNROLLED_FROM(k, 1, kStates) in.old[k] = T(steps.cell(k - 1, e));
      if constexpr (CellTraits<Cell>::kNormalises) {
        prepared->in[e] = in;
      } else {
        prepared->derivatives[e] = CellDerivative<Cell, T>(in);
      }
    }
  }

  // And then of a cell that normalises.
  template <typename Sums>
  LLTM_JIT_DEVICE void normalise(int iteration, const Sums& row_sums, Prepared* prepared) const {
    float mean[kElements];
    if constexpr (CellTraits<Cell>::kNormalisesGates) {
      float numbers[kElements][kGates];
      LLTM_JIT_UNROLLED2(e, kElements, g, kGates) numbers[e][g] = float(prepared->in[e].sum(g));
      row_sums.template moments<0>(iteration, numbers, mean, prepared->gate_scale);
      LLTM_JIT_UNROLLED2(e, kElements, g, kGates) {
        const float away = numbers[e][g] - mean[e];
        prepared->in[e].sum(g) = T(away * prepared->gate_scale[e]);
      }
    }
    if constexpr (kState >= 0) {
      float numbers[kElements][1];
      LLTM_JIT_UNROLLED(e, kElements) {
        T left[kStates];
        run_step(prepared->in[e], left);
        numbers[e][0] = float(left[kState]);
      }
      row_sums.template moments<1>(iteration, numbers, mean, prepared->state_scale);
      LLTM_JIT_UNROLLED(e, kElements) {
        prepared->state[e] = (numbers[e][0] - mean[e]) * prepared->state_scale[e];
      }
    }
  }

  // The gradients of a step's gates (and of their hidden parts, if the cell does not add them), and the other gradients
  // for the previous step, given the part of the output's gradient that comes from the next step's gates.
  template <typename Controls, typename Sums>
  LLTM_JIT_DEVICE void finish(int iteration, const float (&from_gates)[kElements],
                              const Prepared& prepared, const Controls& controls,
                              const ResetGradients<Shape>& of_resets, const Sums& row_sums,
                              float (&grads)[kGates][kElements],
                              float (&grads_of_h)[kGates][kElements]) {
    if constexpr (CellTraits<Cell>::kNormalises) {
      float grad_h[kElements];
      T grad_now[kElements][kStates];
      Step of_step[kElements];
      LLTM_JIT_UNROLLED(e, kElements) {
        grad_h[e] = of_state(e, from_gates[e], of_resets);
        gather(e, grad_h[e], prepared, grad_now[e]);
      }
      derive_rows(iteration, prepared, row_sums, grad_now, of_step);
      LLTM_JIT_UNROLLED(e, kElements) {
        leave(e, grad_h[e], of_step[e], prepared, controls, of_resets, grads, grads_of_h);
      }
    } else {
      LLTM_JIT_UNROLLED(e, kElements) {
        const float grad_h = of_state(e, from_gates[e], of_resets);
        T grad_now[kStates];
        gather(e, grad_h, prepared, grad_now);
        leave(e, grad_h, prepared.derivatives[e](grad_now), prepared, controls, of_resets, grads,
              grads_of_h);
      }
    }
  }

  // Writes the gradients of the initial state and of the parameters.
  LLTM_JIT_DEVICE void write(const Elements<Shape>& elements, const SequenceBackwardArgs& args,
                             const ResetGradients<Shape>& of_resets,
                             const float (&from_gates)[kElements]) const {
    LLTM_JIT_UNROLLED(e, kElements) {
      if (args.grad_old_h) {
        const float grad_h = of_state(e, from_gates[e], of_resets);
        elements.template write<scalar_t>(args.grad_old_h, 0, e, grad_h);
      }
      LLTM_JIT_UNROLLED_FROM(k, 1, kStates) {
        if (!args.grad_old_cells) break;
        elements.template write<float>(args.grad_old_cells, k - 1, e, grad_state_[k][e]);
      }
      LLTM_JIT_UNROLLED(i, kParameters) {
        elements.template write<float>(args.grad_parameters, i, e, grad_parameters_[i][e]);
      }
    }
  }

 private:
  static constexpr int kState = CellTraits<Cell>::kNormalisedState;

  // The gradients of a step's results.
  LLTM_JIT_DEVICE void gather(int e, float grad_h, const Prepared& prepared,
                              T (&grad_now)[kStates]) const {
    grad_now[0] = T(grad_h + prepared.grad_output[e]);
    LLTM_JIT_UNROLLED_FROM(k, 1, kStates) grad_now[k] = T(grad_state_[k][e]);
  }

  // The derivative of the steps of a cell that normalises, Note [Sums of a row]. grad_now is overwritten.
  template <typename Sums>
  LLTM_JIT_DEVICE void derive_rows(int iteration, const Prepared& prepared, const Sums& row_sums,
                                   T (&grad_now)[kElements][kStates],
                                   Step (&of_step)[kElements]) const {
    float first[kElements], second[kElements];
    FinishGradients<Cell, T> finished[kState >= 0 ? kElements : 1];
    if constexpr (kState >= 0) {
      LLTM_JIT_UNROLLED(e, kElements) {
        T left[kStates];
        run_step(prepared.in[e], left);
        finished[e] =
            FinishGradients<Cell, T>(prepared.in[e].p, T(prepared.state[e]), left, grad_now[e]);
        first[e] = float(finished[e].normalised), second[e] = first[e] * prepared.state[e];
      }
      row_sums.template means<2, 1>(iteration, first, second);
      LLTM_JIT_UNROLLED(e, kElements) {
        LLTM_JIT_UNROLLED(k, kStates) grad_now[e][k] = finished[e].now[k];
        const float grad = float(finished[e].normalised) - first[e] - prepared.state[e] * second[e];
        grad_now[e][kState] = grad_now[e][kState] + T(grad * prepared.state_scale[e]);
      }
    }
    LLTM_JIT_UNROLLED(e, kElements) {
      of_step[e] = CellDerivative<Cell, T>(prepared.in[e])(grad_now[e]);
      if constexpr (kState >= 0) {
        LLTM_JIT_UNROLLED(i, kParameters) of_step[e].p[i] = of_step[e].p[i] + finished[e].p[i];
      }
    }
    if constexpr (CellTraits<Cell>::kNormalisesGates) {
      LLTM_JIT_UNROLLED(e, kElements) {
        first[e] = second[e] = 0;
        LLTM_JIT_UNROLLED(g, kGates) {
          const float grad = float(of_step[e].sum(g));
          first[e] += grad, second[e] += grad * float(prepared.in[e].sum(g));
        }
      }
      row_sums.template means<3, kGates>(iteration, first, second);
      LLTM_JIT_UNROLLED2(e, kElements, g, kGates) {
        T& grad = of_step[e].sum(g);
        grad = T((float(grad) - first[e] - float(prepared.in[e].sum(g)) * second[e]) *
                 prepared.gate_scale[e]);
      }
    }
  }

  // Keeps the gradients of a step's arguments.
  template <typename Controls>
  LLTM_JIT_DEVICE void leave(int e, float grad_h, const Step& of_step, const Prepared& prepared,
                             const Controls& controls, const ResetGradients<Shape>& of_resets,
                             float (&grads)[kGates][kElements],
                             float (&grads_of_h)[kGates][kElements]) {
    const bool holds = controls.holds(e), resets = controls.resets(e);
    LLTM_JIT_UNROLLED(g, kGates) {
      grads[g][e] = holds ? 0 : float(of_step.x[g]);
      if constexpr (!kAdds) grads_of_h[g][e] = holds ? 0 : float(of_step.h[g]);
    }
    LLTM_JIT_UNROLLED(i, kParameters) grad_parameters_[i][e] += holds ? 0 : float(of_step.p[i]);
    // The gates' part of a gradient that a reset cuts off is still to come.
    const bool ends = resets && kControls != kGivenResets;
    grad_state_[0][e] = holds ? grad_h : ends ? 0 : float(of_step.old[0]);
    LLTM_JIT_UNROLLED_FROM(k, 1, kStates) {
      float left = float(of_step.old[k]);
      if constexpr (kAllStates) left += prepared.grad_cells[k - 1][e];
      if constexpr (kControls == kGivenResets) {
        if (resets) of_resets.add(0, k, e, left);
      }
      if (!holds) grad_state_[k][e] = resets ? 0 : left;
    }
    if constexpr (kControls == kGivenResets) reset_[e] = resets;
  }

  // The gradient of h before the next step. It is zero if a reset set that h: then the gradient is added to that of the
  // reset's state.
  LLTM_JIT_DEVICE float of_state(int e, float from_gates,
                                 const ResetGradients<Shape>& of_resets) const {
    const float grad_h = grad_state_[0][e] + from_gates;
    if constexpr (kControls == kGivenResets) {
      if (reset_[e]) {
        of_resets.add(1, 0, e, grad_h);
        return 0;
      }
    }
    return grad_h;
  }

  // The next step's gradients for this step's states, without the gates' part.
  float grad_state_[kStates][kElements];
  float old_h_[kElements];   // of the sequence
  bool reset_[kElements]{};  // whether the row was reset before the step after
  float grad_parameters_[CellTraits<Cell>::kParametersRoom][kElements];
  float parameters_[CellTraits<Cell>::kParametersRoom][kHalves];
};

}  // namespace lltm_jit
