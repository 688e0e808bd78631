// The backward steps of a lane, for a cell without a product. They are counted from the last one on.
#pragma once

#include "rnn/sequence/walk/lane.cuh"

namespace lltm_jit {

template <typename Cell, typename scalar_t, int kUnits, bool kControls>
class BackwardWalk : public WalkLane<Cell, scalar_t, kUnits, kControls> {
 public:
  using Lane = WalkLane<Cell, scalar_t, kUnits, kControls>;
  using typename Lane::state_t;
  using typename Lane::T;
  using typename Lane::Traits;
  using typename Lane::Units;
  static constexpr int kStates = Cell::kStates, kGates = Cell::kGates;
  using Map = WalkMap<Cell, T>;

  struct Loaded {
    Units gates[kGates], old_h, grad_output;
    Pack<state_t, kUnits> cells[kStates];  // but for the first one
    uint8_t control;
    bool first;  // of the row's steps
  };

  T grad_parameters[Traits::kParametersRoom][kUnits];

  __device__ __forceinline__ BackwardWalk(const SequenceBackwardArgs& args, int64_t row,
                                          int64_t unit)
      : Lane(args, args.parameters, args.control, args.control_step_stride, row, unit),
        args_(args),
        has_grad_(args.grad_output.data != nullptr),
        grad_output_(has_grad_ ? args.grad_output : args.output) {
    this->template read_states<scalar_t>(args.old_h, 0, first_h_);
#pragma unroll
    for (int p = 0; p < Traits::kParametersRoom; ++p) {
#pragma unroll
      for (int e = 0; e < kUnits; ++e) grad_parameters[p][e] = T(0);
    }
  }

  // Loads without conditions, or each would wait for the one before.
  __device__ __forceinline__ void load(int64_t index, Loaded& loaded) const {
    const int64_t step = args_.steps - 1 - index, before = step > 0 ? step - 1 : 0;
#pragma unroll
    for (int g = 0; g < kGates; ++g) loaded.gates[g] = Lane::load(args_.saved_gates, step, g);
    loaded.old_h = Lane::load(args_.output, before);
    loaded.grad_output = Lane::load(grad_output_, step);
#pragma unroll
    for (int k = 1; k < kStates; ++k) {
      loaded.cells[k] =
          load_raw<kUnits>(static_cast<const state_t*>(args_.saved_cells.data) +
                           step * args_.saved_cells.step_stride + this->in_state(k - 1));
    }
    loaded.control = this->control_of(step);
    loaded.first = step == 0 || (kControls && this->control_of(before) == kHolds);
  }

  __device__ __forceinline__ void begin(T (&states)[kStates][kUnits]) const {
    this->template read_states<scalar_t>(args_.grad_new_h, 0, states[0]);
#pragma unroll
    for (int k = 1; k < kStates; ++k) {
      this->template read_states<state_t>(args_.grad_new_cells, k - 1, states[k]);
    }
  }

  // The gradients of the states before a step are a map of those after it.
  __device__ __forceinline__ void append(int64_t index, const Loaded& loaded, int e,
                                         Map& map) const {
    if (kControls && loaded.control == kHolds) return;
    const CellMap<Cell, T> found(this->step_of(loaded.gates, e));
    Map step;
    step.cuts = kControls && loaded.control == kResets;
    const T grad = grad_output_of(loaded, e);
#pragma unroll
    for (int s = 0; s < kStates; ++s) {
#pragma unroll
      for (int of = 0; of < kStates; ++of) step.factors[s][of] = found.factors[of][s];
      step.sums[s] = step.cuts ? T(0) : found.factors[0][s] * grad;
      if (s > 0 && args_.grad_saved_cells.data) step.sums[s] = step.sums[s] + given(index, s, e);
    }
    map.append(step);
  }

  __device__ __forceinline__ void run(int64_t index, const Loaded& loaded, bool inside,
                                      T (&states)[kStates][kUnits]) {
    const int64_t step = args_.steps - 1 - index;
    T grad_gates[kGates][kUnits];
    const bool holds = kControls && loaded.control == kHolds;
    const bool resets = kControls && loaded.control == kResets;
#pragma unroll
    for (int e = 0; e < kUnits; ++e) {
      auto in = this->step_of(loaded.gates, e);
      const T before = loaded.first ? first_h_[e] : Lane::number(loaded.old_h, e);
      in.old[0] = resets ? T(0) : before;
      T grad_now[kStates];
      grad_now[0] = states[0][e] + grad_output_of(loaded, e);
#pragma unroll
      for (int k = 1; k < kStates; ++k) {
        in.old[k] = T(loaded.cells[k].values[e]);
        grad_now[k] = states[k][e];
      }
      const auto grads = CellDerivative<Cell, T>(in)(grad_now);
#pragma unroll
      for (int g = 0; g < kGates; ++g) grad_gates[g][e] = holds ? T(0) : grads.x[g];
#pragma unroll
      for (int p = 0; p < Traits::kParameters; ++p) {
        const T sum = grad_parameters[p][e] + grads.p[p];
        grad_parameters[p][e] = holds ? grad_parameters[p][e] : sum;
      }
#pragma unroll
      for (int k = 0; k < kStates; ++k) {
        T left = grads.old[k];
        if (k > 0 && args_.grad_saved_cells.data) left = left + given(index, k, e);
        states[k][e] = holds ? states[k][e] : resets ? T(0) : left;
      }
    }
    if (!inside) return;
    auto* target =
        static_cast<scalar_t*>(args_.grad_gates.data) + this->in_array(args_.grad_gates, step);
#pragma unroll
    for (int g = 0; g < kGates; ++g) Lane::write(target + g * this->hidden, grad_gates[g]);
  }

  __device__ __forceinline__ void end(const T (&states)[kStates][kUnits]) const {
    if (args_.grad_old_h) {
      Lane::write(static_cast<scalar_t*>(args_.grad_old_h) + this->in_state(), states[0]);
    }
    if (!args_.grad_old_cells) return;
#pragma unroll
    for (int k = 1; k < kStates; ++k) {
      Lane::write(static_cast<state_t*>(args_.grad_old_cells) + this->in_state(k - 1), states[k]);
    }
  }

 private:
  const SequenceBackwardArgs& args_;
  const bool has_grad_;
  const SequenceArray grad_output_;
  T first_h_[kUnits];

  __device__ __forceinline__ T grad_output_of(const Loaded& loaded, int e) const {
    return has_grad_ ? Lane::number(loaded.grad_output, e) : T(0);
  }
  // Of the cell states of all steps.
  __device__ __forceinline__ T given(int64_t index, int state, int e) const {
    const int64_t step = args_.steps - 1 - index;
    return T(static_cast<const state_t*>(
        args_.grad_saved_cells
            .data)[step * args_.grad_saved_cells.step_stride + this->in_state(state - 1) + e]);
  }
};

}  // namespace lltm_jit
