// The forward steps of a lane, for a cell without a product.
#pragma once

#include "rnn/sequence/walk/lane.cuh"

namespace lltm_jit {

template <typename Cell, typename scalar_t, int kUnits, bool kControls>
class ForwardWalk : public WalkLane<Cell, scalar_t, kUnits, kControls> {
 public:
  using Lane = WalkLane<Cell, scalar_t, kUnits, kControls>;
  using typename Lane::state_t, typename Lane::T, typename Lane::Units;
  static constexpr int kStates = Cell::kStates, kGates = Cell::kGates;
  using Map = WalkMap<Cell, T>;
  static constexpr bool kResets = kControls;

  struct Loaded {
    Units gates[kGates];
    uint8_t control;
  };

  LLTM_JIT_DEVICE ForwardWalk(const SequenceForwardArgs& args, int64_t row, int64_t unit)
      : Lane(args, args.parameters, args.control, args.control_step_stride, row, unit),
        args_(args) {}

  // Steps from `index` on, of which so many are valid. whole: whether all are, and another one follows.
  template <bool kWhole, int kSteps>
  LLTM_JIT_DEVICE void load(int64_t index, int64_t valid, Loaded (&loaded)[kSteps]) const {
    const auto* gates = this->at(args_.gates, index);
    LLTM_JIT_UNROLLED(i, kSteps) {
      this->load_gates(gates, loaded[i].gates);
      if (kWhole || i + 1 < valid) gates += args_.gates.step_stride;
      loaded[i].control = this->control_of(kWhole || i < valid ? index + i : index);
    }
  }

  LLTM_JIT_DEVICE void begin(T (&states)[kStates][kUnits]) const {
    this->read_all(args_.old_h, args_.old_cells, states);
  }

  // Appends the step to the unit's map.
  LLTM_JIT_DEVICE void append(int64_t index, const Loaded& loaded, int e, Map& map) const {
    if (kControls && loaded.control == kHolds) return;
    const CellMap<Cell, T> found(this->step_of(loaded.gates, e));
    Map step;
    step.cuts = kControls && loaded.control == SequenceControl::kResets;
    LLTM_JIT_UNROLLED(s, kStates) {
      step.sums[s] = found.sums[s];
      LLTM_JIT_UNROLLED(of, kStates) step.factors[s][of] = found.factors[s][of];
    }
    if (kControls && step.cuts) {
      T reset[kStates][kUnits];
      this->read_reset(args_, index, reset);
      LLTM_JIT_UNROLLED2(s, kStates, of, kStates) {
        step.sums[s] = step.sums[s] + found.factors[s][of] * reset[of][e];
      }
    }
    map.append(step);
  }

  // Runs the valid steps among those that were loaded.
  template <bool kWhole, int kSteps>
  LLTM_JIT_DEVICE void run(int64_t index, int64_t valid, const Loaded (&loaded)[kSteps],
                           T (&states)[kStates][kUnits]) {
    auto* output = this->at(args_.output, index);
    auto* cells = this->cells_at(args_.saved_cells, index);
    LLTM_JIT_UNROLLED(i, kSteps) {
      if (kWhole || i < valid) run_step_of(index + i, loaded[i], output, cells, states);
      output += args_.output.step_stride, cells += args_.saved_cells.step_stride;
    }
  }

  LLTM_JIT_DEVICE void end(const T (&states)[kStates][kUnits]) const {
    Lane::write(static_cast<scalar_t*>(args_.new_h) + this->in_state(), states[0]);
    LLTM_JIT_UNROLLED_FROM(k, 1, kStates) {
      if (args_.narrow_cells) {
        Lane::write(static_cast<scalar_t*>(args_.new_cells) + this->in_state(k - 1), states[k]);
      } else {
        Lane::write(static_cast<state_t*>(args_.new_cells) + this->in_state(k - 1), states[k]);
      }
    }
  }

 private:
  const SequenceForwardArgs& args_;

  LLTM_JIT_DEVICE void run_step_of(int64_t step, const Loaded& loaded, scalar_t* output_at,
                                   state_t* cells, T (&states)[kStates][kUnits]) {
    T output[kUnits], saved[kStates][kUnits];
    const bool holds = kControls && loaded.control == kHolds;
    if (kControls && loaded.control == SequenceControl::kResets) {
      this->read_reset(args_, step, states);
    }
    LLTM_JIT_UNROLLED(e, kUnits) {
      auto in = this->step_of(loaded.gates, e);
      LLTM_JIT_UNROLLED(k, kStates) saved[k][e] = in.old[k] = states[k][e];
      T now[kStates];
      run_step(in, now);
      output[e] = holds ? T(0) : now[0];
      LLTM_JIT_UNROLLED(k, kStates) states[k][e] = holds ? states[k][e] : now[k];
    }
    Lane::write(output_at, output);
    if constexpr (kStates > 1) {
      if (!args_.saved_cells.data) return;
      LLTM_JIT_UNROLLED_FROM(k, 1, kStates) {
        Lane::write(cells + (k - 1) * this->rows * this->hidden, saved[k]);
      }
    }
  }
};

}  // namespace lltm_jit
