// The backward steps of a lane, for a cell without a product. They are counted from the last one on.
#pragma once

#include "rnn/sequence/walk/lane.cuh"

namespace lltm_jit {

template <typename Cell, typename scalar_t, int kUnits, bool kControls>
class BackwardWalk : public WalkLane<Cell, scalar_t, kUnits, kControls> {
 public:
  using Lane = WalkLane<Cell, scalar_t, kUnits, kControls>;
  using typename Lane::state_t, typename Lane::T, typename Lane::Traits, typename Lane::Units;
  static constexpr int kStates = Cell::kStates, kGates = Cell::kGates;
  using Map = WalkMap<Cell, T>;
  static constexpr bool kResets = kControls;

  struct Loaded {
    Units gates[kGates], old_h, grad_output;
    Words<state_t, kUnits> cells[kStates];  // but for the first one
    uint8_t control;
    bool first;  // of the row's steps
  };

  T grad_parameters[Traits::kParametersRoom][kUnits];

  LLTM_JIT_DEVICE BackwardWalk(const SequenceBackwardArgs& args, int64_t row, int64_t unit)
      : Lane(args, args.parameters, args.control, args.control_step_stride, row, unit),
        args_(args),
        has_grad_(args.grad_output.data != nullptr),
        grad_output_(has_grad_ ? args.grad_output : args.output) {
    this->template read_states<scalar_t>(args.old_h, 0, first_h_);
    LLTM_JIT_UNROLLED2(p, Traits::kParametersRoom, e, kUnits) grad_parameters[p][e] = T(0);
  }

  // Steps from `index` on, of which so many are valid. whole: whether all are, and another one follows.
  template <bool kWhole, int kSteps>
  LLTM_JIT_DEVICE void load(int64_t index, int64_t valid, Loaded (&loaded)[kSteps]) const {
    const int64_t last = args_.steps - 1 - index;
    const auto *gates = this->at(args_.saved_gates, last), *output = this->at(args_.output, last),
               *grad_output = this->at(grad_output_, last);
    const auto* cells = this->cells_at(args_.saved_cells, last);
    LLTM_JIT_UNROLLED(i, kSteps) {
      const int64_t step = kWhole || i < valid ? last - i : last;
      const int64_t before = kWhole || step > 0 ? step - 1 : 0;
      this->load_gates(gates, loaded[i].gates);
      loaded[i].grad_output = load_words<kUnits>(grad_output);
      LLTM_JIT_UNROLLED_FROM(k, 1, kStates) {
        loaded[i].cells[k] = load_words<kUnits>(cells + (k - 1) * this->rows * this->hidden);
      }
      if (kWhole || (i < valid && step > 0)) output -= args_.output.step_stride;
      loaded[i].old_h = load_words<kUnits>(output);
      loaded[i].control = this->control_of(step);
      loaded[i].first = (!kWhole && step == 0) || (kControls && this->control_of(before) == kHolds);
      if (!kWhole && i + 1 >= valid) continue;
      gates -= args_.saved_gates.step_stride, grad_output -= grad_output_.step_stride;
      cells -= args_.saved_cells.step_stride;
    }
  }

  LLTM_JIT_DEVICE void begin(T (&states)[kStates][kUnits]) const {
    this->read_all(args_.grad_new_h, args_.grad_new_cells, states);
  }

  // The gradients of the states before a step are a map of those after it.
  LLTM_JIT_DEVICE void append(int64_t index, const Loaded& loaded, int e, Map& map) const {
    if (kControls && loaded.control == kHolds) return;
    const CellMap<Cell, T> found(this->step_of(loaded.gates, e));
    Map step;
    step.cuts = kControls && loaded.control == SequenceControl::kResets;
    const T grad = grad_output_of(loaded, e);
    LLTM_JIT_UNROLLED(s, kStates) {
      LLTM_JIT_UNROLLED(of, kStates) step.factors[s][of] = found.factors[of][s];
      step.sums[s] = step.cuts ? T(0) : found.factors[0][s] * grad;
      // After a cut, this is the gradient of the state that the reset has set: run_step_of adds it there.
      if (s > 0 && !step.cuts && args_.grad_saved_cells.data) {
        step.sums[s] = step.sums[s] + given(index, s, e);
      }
    }
    map.append(step);
  }

  // Runs the valid steps among those that were loaded.
  template <bool kWhole, int kSteps>
  LLTM_JIT_DEVICE void run(int64_t index, int64_t valid, const Loaded (&loaded)[kSteps],
                           T (&states)[kStates][kUnits]) {
    auto* target = this->at(args_.grad_gates, args_.steps - 1 - index);
    LLTM_JIT_UNROLLED(i, kSteps) {
      if (kWhole || i < valid) run_step_of(index + i, loaded[i], target, states);
      target -= args_.grad_gates.step_stride;
    }
  }

  LLTM_JIT_DEVICE void end(const T (&states)[kStates][kUnits]) const {
    if (args_.grad_old_h) {
      Lane::write(static_cast<scalar_t*>(args_.grad_old_h) + this->in_state(), states[0]);
    }
    if (!args_.grad_old_cells) return;
    LLTM_JIT_UNROLLED_FROM(k, 1, kStates) {
      Lane::write(static_cast<state_t*>(args_.grad_old_cells) + this->in_state(k - 1), states[k]);
    }
  }

 private:
  const SequenceBackwardArgs& args_;
  const bool has_grad_;
  const SequenceArray grad_output_;
  T first_h_[kUnits];

  LLTM_JIT_DEVICE void run_step_of(int64_t index, const Loaded& loaded, scalar_t* target,
                                   T (&states)[kStates][kUnits]) {
    T grad_gates[kGates][kUnits];
    const bool holds = kControls && loaded.control == kHolds;
    const bool resets = kControls && loaded.control == SequenceControl::kResets;
    T reset[kStates][kUnits];
    if (resets) this->read_reset(args_, args_.steps - 1 - index, reset);
    LLTM_JIT_UNROLLED(e, kUnits) {
      auto in = this->step_of(loaded.gates, e);
      const T before = loaded.first ? first_h_[e] : T(loaded.old_h[e]);
      in.old[0] = resets ? reset[0][e] : before;
      T grad_now[kStates];
      grad_now[0] = states[0][e] + grad_output_of(loaded, e);
      LLTM_JIT_UNROLLED_FROM(k, 1, kStates) {
        in.old[k] = T(loaded.cells[k][e]);
        grad_now[k] = states[k][e];
      }
      const auto grads = CellDerivative<Cell, T>(in)(grad_now);
      LLTM_JIT_UNROLLED(g, kGates) grad_gates[g][e] = holds ? T(0) : grads.x[g];
      LLTM_JIT_UNROLLED(p, Traits::kParameters) {
        const T sum = grad_parameters[p][e] + grads.p[p];
        grad_parameters[p][e] = holds ? grad_parameters[p][e] : sum;
      }
      LLTM_JIT_UNROLLED(k, kStates) {
        T left = grads.old[k];
        if (k > 0 && args_.grad_saved_cells.data) left = left + given(index, k, e);
        if (resets) add_to_reset(index, k, e, left);
        states[k][e] = holds ? states[k][e] : resets ? T(0) : left;
      }
    }
    LLTM_JIT_UNROLLED(g, kGates) Lane::write(target + g * this->hidden, grad_gates[g]);
  }
  LLTM_JIT_DEVICE T grad_output_of(const Loaded& loaded, int e) const {
    return has_grad_ ? T(loaded.grad_output[e]) : T(0);
  }
  // Adds to the gradient of a state that a reset has set, which no other step has.
  LLTM_JIT_DEVICE void add_to_reset(int64_t index, int state, int e, const T& grad) const {
    const auto& array = state == 0 ? args_.grad_reset_h : args_.grad_reset_cells;
    if (!array.data) return;
    const int64_t step = args_.steps - 1 - index;
    auto* sums = state == 0 ? array.template as<state_t>() + this->in_array(array, step)
                            : this->cells_at(array, step, state - 1);
    sums[e] = state_t(grad);
  }
  // Of the cell states of all steps.
  LLTM_JIT_DEVICE T given(int64_t index, int state, int e) const {
    return T(this->cells_at(args_.grad_saved_cells, args_.steps - 1 - index, state - 1)[e]);
  }
};

}  // namespace lltm_jit
