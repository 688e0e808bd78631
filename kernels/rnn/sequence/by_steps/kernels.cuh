// One step of a sequence for every hidden unit and row, where a library multiplies: any size, any type.
#pragma once

#include "core/launch/fast_divide.cuh"
#include "core/launch/launch.cuh"
#include "rnn/sequence/by_steps/kernels.h"
#include "rnn/sequence/cell.h"
#include "rnn/sequence/numbers/gate_float.cuh"

namespace lltm_jit {

// A hidden unit of a row, and where arrays have what belongs to it.
template <typename scalar_t>
struct StepPlace {
  using state_t = opmath_t<scalar_t>;
  int64_t row, unit, hidden, rows, gate_size;

  __device__ __forceinline__ int64_t in_state() const { return row * hidden + unit; }
  __device__ __forceinline__ int64_t in_states(int k) const {
    return k * rows * hidden + in_state();
  }

  template <typename Array>
  __device__ __forceinline__ int64_t in_array(const Array& array, int64_t step, int gate) const {
    return step * array.step_stride + row * array.row_stride + gate * gate_size + unit;
  }
  __device__ __forceinline__ state_t read(const SequenceArray& array, int64_t step,
                                          int gate = 0) const {
    return to_opmath(static_cast<const scalar_t*>(array.data)[in_array(array, step, gate)]);
  }
  __device__ __forceinline__ void write(const MutableSequenceArray& array, int64_t step, int gate,
                                        state_t value) const {
    static_cast<scalar_t*>(array.data)[in_array(array, step, gate)] = from_opmath<scalar_t>(value);
  }
  // And zeros for units that do not exist.
  __device__ __forceinline__ void write_gradient(const MutableSequenceArray& array, int64_t step,
                                                 int gate, state_t value) const {
    write(array, step, gate, value);
    if (unit + 1 < hidden) return;
    for (int64_t i = hidden; i < gate_size; ++i) {
      static_cast<scalar_t*>(array.data)[in_array(array, step, gate) + i - unit] =
          from_opmath<scalar_t>(state_t(0));
    }
  }
  // The same in an array of saved cells.
  template <typename Array>
  __device__ __forceinline__ int64_t in_cells(const Array& array, int64_t step, int k) const {
    return step * array.step_stride + in_states(k);
  }
};

// Calls function(place) for each unit of each row.
template <typename scalar_t, typename Function>
__device__ __forceinline__ void for_each_place(const SequenceSizes& sizes, const Divisor& hidden,
                                               const Function& function) {
  const int64_t count = sizes.batch_size * sizes.hidden_size;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += int64_t(gridDim.x) * blockDim.x) {
    int64_t unit = i;
    const int64_t row = hidden.divide(unit);
    function(
        StepPlace<scalar_t>{row, unit, sizes.hidden_size, sizes.batch_size, sizes.gate_size()});
  }
}

__device__ __forceinline__ uint8_t control_of(const uint8_t* control, int64_t step_stride,
                                              int64_t step, int64_t row) {
  return control ? control[step * step_stride + row] : uint8_t(0);
}

// One step of a cell, forward and backward.
template <typename Cell, typename scalar_t>
struct StepMath {
  using state_t = opmath_t<scalar_t>;
  using T = GateNumber<scalar_t>;
  using Traits = CellTraits<Cell>;
  using Step = CellStep<Cell, T>;
  static constexpr int kGates = Cell::kGates, kStates = Cell::kStates;

  static __device__ __forceinline__ void read_parameters(const void* parameters,
                                                         const StepPlace<scalar_t>& place,
                                                         Step* in) {
#pragma unroll
    for (int k = 0; k < Traits::kParameters; ++k) {
      in->p[k] =
          T(to_opmath(static_cast<const scalar_t*>(parameters)[k * place.hidden + place.unit]));
    }
  }

  static __device__ __forceinline__ void run(const ForwardStepArgs& args, const Divisor& hidden) {
    wait_for_predecessor();
    const auto& of = args.sequence;
    for_each_place<scalar_t>(of, hidden, [&](const StepPlace<scalar_t>& place) {
      const uint8_t control = control_of(of.control, of.control_step_stride, args.step, place.row);
      if (control & kHolds) {
        place.write(of.output, args.step, 0, 0);
        return;
      }
      const bool resets = control & kResets;
      auto* output_state = static_cast<state_t*>(args.output_state);
      auto* cells = static_cast<state_t*>(of.new_cells);
      Step in;
      read_parameters(of.parameters, place, &in);
#pragma unroll
      for (int k = 0; k < kStates; ++k) {
        const auto* state =
            k == 0 ? output_state + place.in_state() : cells + place.in_states(k - 1);
        in.old[k] = T(resets ? state_t(0) : *state);
      }
#pragma unroll
      for (int g = 0; g < kGates; ++g) {
        const int64_t unit = g * place.gate_size + place.unit;
        const auto* products = static_cast<const scalar_t*>(args.products);
        const state_t product = to_opmath(products[place.row * kGates * place.gate_size + unit]);
        state_t bias = of.bias ? to_opmath(static_cast<const scalar_t*>(of.bias)[unit]) : 0;
        if (of.input_bias) {
          bias += to_opmath(static_cast<const scalar_t*>(of.input_bias)[unit]);
          bias = to_opmath(from_opmath<scalar_t>(bias));
        }
        const state_t h = (resets ? state_t(0) : product) + bias,
                      x = place.read(of.gates, args.step, g);
        if constexpr (CellAddsGates<Cell>::value) {
          in.x[g] = T(x + h);
        } else {
          in.x[g] = T(x);
          in.h[g] = T(h);
        }
        if (of.saved_gates.data) {
          place.write(of.saved_gates, args.step, g, CellAddsGates<Cell>::value ? x + h : h);
        }
      }
      T now[kStates];
      run_step(in, now);
      const auto output = state_t(now[0]);
      place.write(of.output, args.step, 0, output);
      static_cast<scalar_t*>(of.new_h)[place.in_state()] = from_opmath<scalar_t>(output);
      output_state[place.in_state()] = output;
#pragma unroll
      for (int k = 0; k < kStates - 1; ++k) {
        if (of.saved_cells.data) {
          static_cast<state_t*>(of.saved_cells.data)[place.in_cells(of.saved_cells, args.step, k)] =
              state_t(in.old[k + 1]);
        }
        cells[place.in_states(k)] = state_t(now[k + 1]);
      }
    });
  }

  // What a step was computed from. first: it is the row's first one.
  static __device__ __forceinline__ Step read_step(const SequenceBackwardArgs& of, int64_t step,
                                                   bool resets, bool first,
                                                   const StepPlace<scalar_t>& place) {
    Step in;
    read_parameters(of.parameters, place, &in);
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      if constexpr (CellAddsGates<Cell>::value) {
        in.x[g] = T(place.read(of.saved_gates, step, g));
      } else {
        in.x[g] = T(place.read(of.gates, step, g));
        in.h[g] = T(place.read(of.saved_gates, step, g));
      }
    }
    state_t old_h = 0;
    if (!resets && !first) {
      old_h = place.read(of.output, step - 1);
    } else if (!resets && of.old_h) {
      old_h = to_opmath(static_cast<const scalar_t*>(of.old_h)[place.in_state()]);
    }
    in.old[0] = T(old_h);
#pragma unroll
    for (int k = 0; k < kStates - 1; ++k) {
      in.old[k + 1] = T(static_cast<const state_t*>(
          of.saved_cells.data)[place.in_cells(of.saved_cells, step, k)]);
    }
    return in;
  }

  static __device__ __forceinline__ void run(const BackwardStepArgs& args, const Divisor& hidden) {
    wait_for_predecessor();
    const auto& of = args.sequence;
    const int64_t step = args.step;
    for_each_place<scalar_t>(of, hidden, [&](const StepPlace<scalar_t>& place) {
      const auto control_at = [&](int64_t of_step) {
        return control_of(of.control, of.control_step_stride, of_step, place.row);
      };
      auto& grad_output_state = static_cast<state_t*>(args.grad_output_state)[place.in_state()];
      auto* grad_cells = static_cast<state_t*>(args.grad_cells);
      // The step after adds its part, unless it began with zeros.
      state_t grad_h = grad_output_state;
      if (args.products && !(control_at(step + 1) & kResets)) {
        grad_h += to_opmath(static_cast<const scalar_t*>(args.products)[place.in_state()]);
      }
      if (step < 0) {
        static_cast<scalar_t*>(of.grad_old_h)[place.in_state()] = from_opmath<scalar_t>(grad_h);
        return;
      }
      const uint8_t control = control_at(step);
      if (control & kHolds) {
        grad_output_state = grad_h;
#pragma unroll
        for (int g = 0; g < kGates; ++g) {
          place.write_gradient(of.grad_gates, step, g, 0);
          if constexpr (!CellAddsGates<Cell>::value)
            place.write_gradient(of.grad_hidden, step, g, 0);
        }
        return;
      }
      const bool resets = control & kResets;
      const bool first = step == 0 || control_at(step - 1) & kHolds;
      if (of.grad_output.data) grad_h += place.read(of.grad_output, step);
      T grad_now[kStates];
      grad_now[0] = T(grad_h);
#pragma unroll
      for (int k = 0; k < kStates - 1; ++k) grad_now[k + 1] = T(grad_cells[place.in_states(k)]);
      const auto grads =
          CellDerivative<Cell, T>(read_step(of, step, resets, first, place))(grad_now);
#pragma unroll
      for (int g = 0; g < kGates; ++g) {
        place.write_gradient(of.grad_gates, step, g, state_t(grads.x[g]));
        if constexpr (!CellAddsGates<Cell>::value) {
          place.write_gradient(of.grad_hidden, step, g, state_t(grads.h[g]));
        }
      }
#pragma unroll
      for (int k = 0; k < CellTraits<Cell>::kParameters; ++k) {
        static_cast<state_t*>(of.grad_parameters)[place.in_states(k)] += state_t(grads.p[k]);
      }
      grad_output_state = resets ? state_t(0) : state_t(grads.old[0]);
#pragma unroll
      for (int k = 0; k < kStates - 1; ++k) {
        grad_cells[place.in_states(k)] = resets ? state_t(0) : state_t(grads.old[k + 1]);
      }
    });
  }
};

}  // namespace lltm_jit
