// The forward steps of a lane, for a cell without a product.
#pragma once

#include "rnn/sequence/walk/lane.cuh"

namespace lltm_jit {

template <typename Cell, typename scalar_t, int kUnits, bool kControls>
class ForwardWalk : public WalkLane<Cell, scalar_t, kUnits, kControls> {
 public:
  using Lane = WalkLane<Cell, scalar_t, kUnits, kControls>;
  using typename Lane::state_t;
  using typename Lane::T;
  using typename Lane::Units;
  static constexpr int kStates = Cell::kStates, kGates = Cell::kGates;
  using Map = WalkMap<Cell, T>;

  struct Loaded {
    Units gates[kGates];
    uint8_t control;
  };

  __device__ __forceinline__ ForwardWalk(const SequenceForwardArgs& args, int64_t row, int64_t unit)
      : Lane(args, args.parameters, args.control, args.control_step_stride, row, unit),
        args_(args) {}

  __device__ __forceinline__ void load(int64_t step, Loaded& loaded) const {
#pragma unroll
    for (int g = 0; g < kGates; ++g) loaded.gates[g] = Lane::load(args_.gates, step, g);
    loaded.control = this->control_of(step);
  }

  __device__ __forceinline__ void begin(T (&states)[kStates][kUnits]) const {
    this->template read_states<scalar_t>(args_.old_h, 0, states[0]);
#pragma unroll
    for (int k = 1; k < kStates; ++k) {
      this->template read_states<state_t>(args_.old_cells, k - 1, states[k]);
    }
  }

  // Appends the step to the unit's map.
  __device__ __forceinline__ void append(int64_t, const Loaded& loaded, int e, Map& map) const {
    if (kControls && loaded.control == kHolds) return;
    const CellMap<Cell, T> found(this->step_of(loaded.gates, e));
    Map step;
    step.cuts = kControls && loaded.control == kResets;
#pragma unroll
    for (int s = 0; s < kStates; ++s) {
      step.sums[s] = found.sums[s];
#pragma unroll
      for (int of = 0; of < kStates; ++of) step.factors[s][of] = found.factors[s][of];
    }
    map.append(step);
  }

  __device__ __forceinline__ void run(int64_t step, const Loaded& loaded, bool inside,
                                      T (&states)[kStates][kUnits]) {
    T output[kUnits], saved[kStates][kUnits];
    const bool holds = kControls && loaded.control == kHolds;
    const bool resets = kControls && loaded.control == kResets;
#pragma unroll
    for (int e = 0; e < kUnits; ++e) {
      auto in = this->step_of(loaded.gates, e);
#pragma unroll
      for (int k = 0; k < kStates; ++k) {
        saved[k][e] = in.old[k] = resets ? T(0) : states[k][e];
      }
      T now[kStates];
      run_step(in, now);
      output[e] = holds ? T(0) : now[0];
#pragma unroll
      for (int k = 0; k < kStates; ++k) states[k][e] = holds ? states[k][e] : now[k];
    }
    if (!inside) return;
    Lane::write(static_cast<scalar_t*>(args_.output.data) + this->in_array(args_.output, step),
                output);
    if (!args_.saved_cells.data) return;
    auto* cells = static_cast<state_t*>(args_.saved_cells.data);
#pragma unroll
    for (int k = 1; k < kStates; ++k) {
      Lane::write(cells + step * args_.saved_cells.step_stride + this->in_state(k - 1), saved[k]);
    }
  }

  __device__ __forceinline__ void end(const T (&states)[kStates][kUnits]) const {
    Lane::write(static_cast<scalar_t*>(args_.new_h) + this->in_state(), states[0]);
#pragma unroll
    for (int k = 1; k < kStates; ++k) {
      if (args_.narrow_cells) {
        Lane::write(static_cast<scalar_t*>(args_.new_cells) + this->in_state(k - 1), states[k]);
      } else {
        Lane::write(static_cast<state_t*>(args_.new_cells) + this->in_state(k - 1), states[k]);
      }
    }
  }

 private:
  const SequenceForwardArgs& args_;
};

}  // namespace lltm_jit
