// One step of a sequence for every hidden unit and row, beside the library's products: any size, any type.
#pragma once

#include "rnn/sequence/cell.h"
#include "rnn/sequence/numbers/gate_float.cuh"
#include "rnn/sequence/steps/place.cuh"
#include "rnn/sequence/steps/row_step.cuh"

namespace lltm_jit {

// One step of a cell, forward and backward. Before the kernel waits for the product, it reads only what earlier
// passes have written.
template <typename Cell, typename scalar_t, int kUnits>
class StepMath {
  using state_t = opmath_t<scalar_t>;
  using T = GateNumber<scalar_t>;
  using Traits = CellTraits<Cell>;
  using Step = CellStep<Cell, T>;
  using Place = StepPlace<scalar_t, kUnits>;
  static constexpr int kGates = Cell::kGates, kStates = Cell::kStates;

 public:
  static LLTM_JIT_DEVICE void run(const ForwardStepArgs& args, const Divisor& packs) {
    const auto& of = args.sequence;
    if (args.is_first()) wait_without_starting_successor();  // for the gates
    for_places(of, packs, [&](const Place& place) {
      const uint8_t control = control_at(of, args.step, place);
      // Later steps find the state that the step before has reset.
      const bool resets = args.is_first() && resets_row(control);
      const bool resets_next = !args.is_last() && resets_row(control_at(of, args.step + 1, place));
      Step in[kUnits];
      state_t x[kGates][kUnits], bias[kGates][kUnits] = {};
      read_parameters(of.parameters, place, in);
      read_gates(of, args.step, place, x, bias);
      wait_for_predecessor();
      read_states(args, resets, place, in);
      T now[kUnits][kStates];
      if (control & kHolds) {
        place.write(of.output, args.step, 0, [](int) { return state_t(0); });
        LLTM_JIT_UNROLLED2(e, kUnits, k, kStates) now[e][k] = in[e].old[k];
      } else {
        add_products(args, !resets || of.reset_h.data, place, x, bias, in);
        if constexpr (Traits::kNormalises) {
          RowStep<Cell, T, kUnits>(place.hidden).run(in, now);
        } else {
          LLTM_JIT_UNROLLED(e, kUnits) run_step(in[e], now[e]);
        }
        write_results(of, args.step, place, in, now);
      }
      if (resets_next) {
        LLTM_JIT_UNROLLED(k, kStates) {
          place.read_reset(of, args.step + 1, k,
                           [&](int e, state_t value) { now[e][k] = T(value); });
        }
      }
      write_states(args, place, now);
    });
  }

  static LLTM_JIT_DEVICE void run(const BackwardStepArgs& args, const Divisor& packs) {
    const auto& of = args.sequence;
    const int64_t step = args.step;
    if (args.is_last()) wait_without_starting_successor();  // for all that earlier passes write
    for_places(of, packs, [&](const Place& place) {
      const uint8_t control = step < 0 ? uint8_t(0) : control_at(of, step, place);
      const bool holds = control & kHolds, resets = resets_row(control);
      Step in[kUnits];
      state_t grad_h[kUnits] = {};
      if (step >= 0) {
        const bool first = step == 0 || control_at(of, step - 1, place) & kHolds;
        read_step(of, step, resets, first, place, in);
        if (of.grad_output.data && !holds) {
          place.read(of.grad_output, step, 0, [&](int e, state_t value) { grad_h[e] = value; });
        }
      }
      wait_for_predecessor();
      state_t grad_after[kUnits];
      receive(args, place, grad_after);
      if (step < 0) {
        place.write(static_cast<scalar_t*>(of.grad_old_h) + place.in_state(),
                    [&](int e) { return grad_after[e]; });
        return;
      }
      T grad_now[kUnits][kStates];
      LLTM_JIT_UNROLLED(e, kUnits) grad_now[e][0] = T(grad_after[e] + grad_h[e]);
      LLTM_JIT_UNROLLED(k, kStates - 1) {
        place.template read_any<state_t>(
            args.is_last() ? of.grad_new_cells : args.grad_cells, place.in_states(k),
            [&](int e, state_t value) { grad_now[e][k + 1] = T(value); });
      }
      Step grads[kUnits] = {};
      if (holds) {
        LLTM_JIT_UNROLLED2(e, kUnits, k, kStates) grads[e].old[k] = grad_now[e][k];
      } else if constexpr (Traits::kNormalises) {
        RowStep<Cell, T, kUnits>(place.hidden).derive(in, grad_now, grads);
      } else {
        LLTM_JIT_UNROLLED(e, kUnits) grads[e] = CellDerivative<Cell, T>(in[e])(grad_now[e]);
      }
      write_gradients(args, place, grads);
      pass_on(args, resets, holds, place, grads);
    });
  }

 private:
  template <typename Args>
  static LLTM_JIT_DEVICE uint8_t control_at(const Args& of, int64_t step, const Place& place) {
    return of.control ? of.control[step * of.control_step_stride + place.row] : uint8_t(0);
  }
  // A row that holds is not reset.
  static LLTM_JIT_DEVICE bool resets_row(uint8_t control) {
    return (control & (kHolds | kResets)) == kResets;
  }

  template <typename Function>
  static LLTM_JIT_DEVICE void for_places(const SequenceSizes& sizes, const Divisor& packs,
                                         const Function& function) {
    if constexpr (Traits::kNormalises) {
      for_row_place<scalar_t, kUnits>(sizes, function);
    } else {
      for_each_place<scalar_t, kUnits>(sizes, packs, function);
    }
  }

  static LLTM_JIT_DEVICE void read_parameters(const void* parameters, const Place& place,
                                              Step (&in)[kUnits]) {
    LLTM_JIT_UNROLLED(k, Traits::kParameters) {
      place.read(static_cast<const scalar_t*>(parameters) + k * place.hidden + place.unit,
                 [&](int e, state_t value) { in[e].p[k] = T(value); });
    }
  }

  // ------------------------------------------------------------------------------------ forward --

  static LLTM_JIT_DEVICE void read_gates(const SequenceForwardArgs& of, int64_t step,
                                         const Place& place, state_t (&x)[kGates][kUnits],
                                         state_t (&bias)[kGates][kUnits]) {
    LLTM_JIT_UNROLLED(g, kGates) {
      const int64_t unit = g * place.gate_size + place.unit;
      place.read(of.gates, step, g, [&](int e, state_t value) { x[g][e] = value; });
      if (of.bias) {
        place.read(static_cast<const scalar_t*>(of.bias) + unit,
                   [&](int e, state_t value) { bias[g][e] = value; });
      }
      if (of.input_bias) {
        place.read(static_cast<const scalar_t*>(of.input_bias) + unit, [&](int e, state_t value) {
          bias[g][e] = to_opmath(from_opmath<scalar_t>(bias[g][e] + value));
        });
      }
    }
  }

  static LLTM_JIT_DEVICE void read_states(const ForwardStepArgs& args, bool resets,
                                          const Place& place, Step (&in)[kUnits]) {
    const auto& of = args.sequence;
    LLTM_JIT_UNROLLED(k, kStates) {
      const auto set = [&](int e, state_t value) { in[e].old[k] = T(value); };
      if (resets) {
        place.read_reset(of, args.step, k, set);
      } else if (!args.is_first()) {
        place.read(k == 0 ? static_cast<const state_t*>(args.output_state) + place.in_state()
                          : static_cast<const state_t*>(args.cells) + place.in_states(k - 1),
                   set);
      } else if (k == 0) {
        place.template read_any<scalar_t>(of.old_h, place.in_state(), set);
      } else {
        place.template read_any<state_t>(of.old_cells, place.in_states(k - 1), set);
      }
    }
  }

  // The gates: the input's part, the products if they count, and the biases.
  static LLTM_JIT_DEVICE void add_products(const ForwardStepArgs& args, bool count,
                                           const Place& place, const state_t (&x)[kGates][kUnits],
                                           const state_t (&bias)[kGates][kUnits],
                                           Step (&in)[kUnits]) {
    const auto& of = args.sequence;
    LLTM_JIT_UNROLLED(g, kGates) {
      state_t h[kUnits] = {};
      if (args.products && count) {
        const auto* products = static_cast<const scalar_t*>(args.products);
        place.read(products + (place.row * kGates + g) * place.gate_size + place.unit,
                   [&](int e, state_t value) { h[e] = value; });
      }
      const auto sum = [&](int e) { return Traits::kAddsGates ? x[g][e] + h[e] : h[e]; };
      LLTM_JIT_UNROLLED(e, kUnits) {
        h[e] += bias[g][e];
        in[e].sum(g) = T(sum(e));
        if constexpr (!Traits::kAddsGates) in[e].x[g] = T(x[g][e]);
      }
      if (of.saved_gates.data) place.write(of.saved_gates, args.step, g, sum);
    }
  }

  static LLTM_JIT_DEVICE void write_results(const SequenceForwardArgs& of, int64_t step,
                                            const Place& place, const Step (&in)[kUnits],
                                            const T (&now)[kUnits][kStates]) {
    place.write(of.output, step, 0, [&](int e) { return state_t(now[e][0]); });
    LLTM_JIT_UNROLLED(k, kStates - 1) {
      if (!of.saved_cells.data) continue;
      place.write(of.saved_cells.as<state_t>() + place.in_cells(of.saved_cells, step, k),
                  [&](int e) { return state_t(in[e].old[k + 1]); });
    }
  }

  static LLTM_JIT_DEVICE void write_states(const ForwardStepArgs& args, const Place& place,
                                           const T (&now)[kUnits][kStates]) {
    const auto& of = args.sequence;
    const auto state = [&](int k) { return [&now, k](int e) { return state_t(now[e][k]); }; };
    if (!args.is_last()) {
      place.write(static_cast<scalar_t*>(args.h) + place.in_products(), state(0));
      place.write(static_cast<state_t*>(args.output_state) + place.in_state(), state(0));
    } else {
      place.write(static_cast<scalar_t*>(of.new_h) + place.in_state(), state(0));
    }
    LLTM_JIT_UNROLLED(k, kStates - 1) {
      if (!args.is_last()) {
        place.write(static_cast<state_t*>(args.cells) + place.in_states(k), state(k + 1));
      } else if (of.narrow_cells) {
        place.write(static_cast<scalar_t*>(of.new_cells) + place.in_states(k), state(k + 1));
      } else {
        place.write(static_cast<state_t*>(of.new_cells) + place.in_states(k), state(k + 1));
      }
    }
  }

  // ----------------------------------------------------------------------------------- backward --

  // The inputs of a step. first: whether it is the row's first step.
  static LLTM_JIT_DEVICE void read_step(const SequenceBackwardArgs& of, int64_t step, bool resets,
                                        bool first, const Place& place, Step (&in)[kUnits]) {
    read_parameters(of.parameters, place, in);
    LLTM_JIT_UNROLLED(g, kGates) {
      place.read(of.saved_gates, step, g, [&](int e, state_t value) { in[e].sum(g) = T(value); });
      if constexpr (!Traits::kAddsGates) {
        place.read(of.gates, step, g, [&](int e, state_t value) { in[e].x[g] = T(value); });
      }
    }
    const auto read_old_h = [&](int e, state_t value) { in[e].old[0] = T(value); };
    if (resets) {
      place.read_reset(of, step, 0, read_old_h);
    } else if (!first) {
      place.read(of.output, step - 1, 0, read_old_h);
    } else {
      place.template read_any<scalar_t>(of.old_h, place.in_state(), read_old_h);
    }
    LLTM_JIT_UNROLLED(k, kStates - 1) {
      place.read(of.saved_cells.as<state_t>() + place.in_cells(of.saved_cells, step, k),
                 [&](int e, state_t value) { in[e].old[k + 1] = T(value); });
    }
  }

  // The output's gradient from the next step.
  static LLTM_JIT_DEVICE void receive(const BackwardStepArgs& args, const Place& place,
                                      state_t (&grad)[kUnits]) {
    const auto& of = args.sequence;
    const auto set = [&](int e, state_t value) { grad[e] = value; };
    if (args.is_last()) {
      place.template read_any<scalar_t>(of.grad_new_h, place.in_state(), set);
    } else {
      place.read(static_cast<const state_t*>(args.grad_output_state) + place.in_state(), set);
    }
    if (args.products) {
      const auto add = [&](int e, state_t value) { grad[e] += value; };
      if (!args.gates_apart) {
        place.read(static_cast<const scalar_t*>(args.products) + place.in_products(), add);
      } else {
        LLTM_JIT_UNROLLED(g, kGates) {
          place.read(static_cast<const float*>(args.products) + place.in_products(g), add);
        }
      }
    }
    if (!args.is_last() && resets_row(control_at(of, args.step + 1, place))) {
      place.add_to_reset(of, args.step + 1, 0, [&](int e) { return grad[e]; });
      LLTM_JIT_UNROLLED(e, kUnits) grad[e] = 0;
    }
  }

  // Those of the gates and the parameters.
  static LLTM_JIT_DEVICE void write_gradients(const BackwardStepArgs& args, const Place& place,
                                              const Step (&grads)[kUnits]) {
    const auto& of = args.sequence;
    LLTM_JIT_UNROLLED(g, kGates) {
      place.write_gradient(of.grad_gates, args.step, g,
                           [&](int e) { return state_t(grads[e].x[g]); });
      if constexpr (!Traits::kAddsGates) {
        place.write_gradient(of.grad_hidden, args.step, g,
                             [&](int e) { return state_t(grads[e].h[g]); });
      }
    }
    LLTM_JIT_UNROLLED(k, Traits::kParameters) {
      auto* sums = static_cast<state_t*>(of.grad_parameters);
      state_t sum[kUnits];
      place.template read_any<state_t>(
          args.is_last() ? nullptr : sums, place.in_states(k),
          [&](int e, state_t value) { sum[e] = value + state_t(grads[e].p[k]); });
      place.write(sums + place.in_states(k), [&](int e) { return sum[e]; });
    }
  }

  // The gradients of the states before the step.
  static LLTM_JIT_DEVICE void pass_on(const BackwardStepArgs& args, bool resets, bool holds,
                                      const Place& place, const Step (&grads)[kUnits]) {
    const auto& of = args.sequence;
    place.write(static_cast<state_t*>(args.grad_output_state) + place.in_state(),
                [&](int e) { return state_t(grads[e].old[0]); });
    LLTM_JIT_UNROLLED(k, kStates - 1) {
      state_t left[kUnits];
      LLTM_JIT_UNROLLED(e, kUnits) left[e] = state_t(grads[e].old[k + 1]);
      if (of.grad_saved_cells.data && !holds) {
        place.read(
            of.grad_saved_cells.as<state_t>() + place.in_cells(of.grad_saved_cells, args.step, k),
            [&](int e, state_t value) { left[e] += value; });
      }
      if (resets) {
        place.add_to_reset(of, args.step, k + 1, [&](int e) { return left[e]; });
        LLTM_JIT_UNROLLED(e, kUnits) left[e] = 0;
      }
      place.write(static_cast<state_t*>(args.grad_cells) + place.in_states(k),
                  [&](int e) { return left[e]; });
    }
  }
};

}  // namespace lltm_jit
