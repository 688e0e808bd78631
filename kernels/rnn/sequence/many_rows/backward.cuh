// The backward pass of Note [Many rows] (shape.h).
#pragma once

#include "rnn/sequence/many_rows/pass.cuh"

namespace lltm_jit {

template <typename Cell, typename scalar_t, typename Variant, bool kControls>
struct ManyRowsBackward : ManyRowsPass<Cell, scalar_t, Variant, SequenceBackwardArgs> {
  using Pass = ManyRowsPass<Cell, scalar_t, Variant, SequenceBackwardArgs>;
  using Pass::args, Pass::rank, Pass::first_unit, Pass::constants, Pass::in_array, Pass::in_state,
      Pass::state_size, Pass::row_of, Pass::has_row, Pass::gate_size, Pass::store_two;
  using Pass::kShape, Pass::kChunks, Pass::kN, Pass::kEights, Pass::kPadded, Pass::kGates,
      Pass::kStates, Pass::kParameters, Pass::kAdds;
  using Pass::Pass;
  using typename Pass::Block, typename Pass::Number, typename Pass::Two;
  static constexpr int kItems = ceil_div(kEights, 4);  // eights of units that a warp finishes
  using Step = CellStep<Cell, Number>;

  // The size of a gate in the exchanged numbers.
  LLTM_JIT_DEVICE int64_t exchanged_size() const { return (args.hidden_size + 7) / 8 * 8; }

  // Loads the transpose of the weights.
  LLTM_JIT_DEVICE void load_weights() const {
    constexpr int kDepth = kChunks * ManyRowsShape::kChunk;
    const auto* source = static_cast<const scalar_t*>(args.weights);
    const int64_t columns = kPadded ? gate_size() : args.hidden_size;
    const auto load = [&](int n, int in_block) {
      const int size = int(exchanged_size());
      int gate = 0, unit = rank * kDepth + in_block;
      LLTM_JIT_UNROLLED(g, kGates) {  // faster than a division
        const bool behind = unit >= size;
        gate += behind, unit -= behind ? size : 0;
      }
      const bool inside = gate < kGates && unit < args.hidden_size && first_unit + n < columns;
      const int64_t at = (gate * gate_size() + unit) * args.weights_stride + first_unit + n;
      return load_or_zero<4>(source + (inside ? at : 0), inside);
    };
    load_along_columns<scalar_t>(*this, load);
    for (int i = threadIdx.x; i < kParameters * kShape.units; i += kShape.threads()) {
      const int unit = first_unit + i % kShape.units;
      constants[i] = unit < args.hidden_size
                         ? to_opmath(static_cast<const scalar_t*>(
                               args.parameters)[i / kShape.units * args.hidden_size + unit])
                         : 0.f;
    }
  }

  // -------------------------------------------------------------------------------------- the steps --

  // The rows and units that this lane finishes: rows `row` and row + 8 of the tile; units `column`
  // and column + 1 of the eights first_eight + 4 n.
  struct Place {
    int tile, warp, lane, row, column, first_eight;
  };
  struct Elements {
    float grad_h[kItems][2][2];  // the part that is no product
    float grad_cells[kStates > 1 ? kStates - 1 : 1][kItems][2][2];
    float grad_parameters[kParameters > 0 ? kParameters : 1][kItems][2][2];
    uint8_t after[2];  // the next step's control
  };
  // The inputs of a step.
  struct Inputs {
    Two gates[kGates][kItems][2], saved[kGates][kItems][2], old_h[kItems][2],
        grad_output[kItems][2];
    float cells[kStates > 1 ? kStates - 1 : 1][kItems][2][2];
    uint8_t control[2];
  };

  // The number of existing eights that this block finishes.
  LLTM_JIT_DEVICE int own_eights() const { return rank / 4 == 0 ? kEights : kN / 8 - kEights; }
  LLTM_JIT_DEVICE int unit_of(const Place& place, int n) const {
    return first_unit + (place.first_eight + 4 * n) * 8 + place.column;
  }
  LLTM_JIT_DEVICE bool has_item(const Place& place, int n) const {
    return place.warp + 4 * n < own_eights();
  }
  LLTM_JIT_DEVICE uint8_t control_at(int64_t step, int64_t row) const {
    return args.control[step * args.control_step_stride + row];
  }

  // Calls function(n, i, unit, row) for each existing pair of units.
  template <typename Function>
  LLTM_JIT_DEVICE void for_pairs(const Place& place, const Function& function) const {
    LLTM_JIT_UNROLLED2(n, kItems, i, 2) {
      const int unit = unit_of(place, n);
      if (has_item(place, n) && has_row(place, i) && unit < gate_size()) {
        function(n, i, unit, row_of(place, i));
      }
    }
  }
  // Loads two neighbouring units of an array without padding, at any alignment.
  template <typename element_t>
  LLTM_JIT_DEVICE Pack<element_t, 2> load_apart(const element_t* source, int unit) const {
    Pack<element_t, 2> two{};
    if (unit < args.hidden_size) two.values[0] = source[0];
    if (unit + 1 < args.hidden_size) two.values[1] = source[1];
    return two;
  }
  template <typename element_t>
  static LLTM_JIT_DEVICE void set(float (&numbers)[2], const Pack<element_t, 2>& two) {
    LLTM_JIT_UNROLLED(e, 2) numbers[e] = to_opmath(two.values[e]);
  }
  template <typename element_t>
  LLTM_JIT_DEVICE Pack<element_t, 2> load_two(const element_t* source, int unit) const {
    if constexpr (kPadded) return load_apart(source, unit);
    return load_raw<2>(source);
  }
  LLTM_JIT_DEVICE void read(const Place& place, int64_t step, Inputs& in) const {
    in = {};
    if (kControls) {
      LLTM_JIT_UNROLLED(i, 2) {
        if (has_row(place, i)) in.control[i] = control_at(step, row_of(place, i));
      }
    }
    for_pairs(place, [&](int n, int i, int unit, int64_t row) {
      LLTM_JIT_UNROLLED(g, kGates) {
        in.saved[g][n][i] = load_raw<2>(in_array(args.saved_gates, step, row, g, unit));
        if (!kAdds) in.gates[g][n][i] = load_raw<2>(in_array(args.gates, step, row, g, unit));
      }
      const int64_t at = in_state(row, unit);
      if (args.grad_output.data) {
        in.grad_output[n][i] = load_two(in_array(args.grad_output, step, row, 0, unit), unit);
      }
      const bool first = step == 0 || (kControls && (control_at(step - 1, row) & kHolds));
      const bool resets = kControls && (in.control[i] & kResets);
      if (!first && !resets) {
        in.old_h[n][i] = load_two(in_array(args.output, step - 1, row, 0, unit), unit);
      } else if (!resets && args.old_h) {
        in.old_h[n][i] = load_two(static_cast<const scalar_t*>(args.old_h) + at, unit);
      }
      LLTM_JIT_UNROLLED(k, kStates - 1) {
        const auto* cells = args.saved_cells.template as<float>() +
                            step * args.saved_cells.step_stride + k * state_size();
        set(in.cells[k][n][i], load_two(cells + at, unit));
      }
    });
  }

  LLTM_JIT_DEVICE void begin(const Place& place, Elements& own) const {
    own = {};
    for_pairs(place, [&](int n, int i, int unit, int64_t row) {
      const int64_t at = in_state(row, unit), all = state_size();
      if (args.grad_new_h) {
        set(own.grad_h[n][i], load_apart(static_cast<const scalar_t*>(args.grad_new_h) + at, unit));
      }
      LLTM_JIT_UNROLLED(k, kStates - 1) {
        if (!args.grad_new_cells) continue;
        const auto* cells = static_cast<const float*>(args.grad_new_cells) + k * all;
        set(own.grad_cells[k][n][i], load_apart(cells + at, unit));
      }
    });
  }

  // Computes a step's derivative from the gradients that the next step has left in `own`.
  LLTM_JIT_DEVICE void finish(const Place& place, int64_t step, const Inputs& in,
                              Elements& own) const {
    Two of_inputs[kAdds ? 1 : kGates][kItems][2], of_hidden[kGates][kItems][2];
    LLTM_JIT_UNROLLED2(n, kItems, i, 2) {
      const bool holds = kControls && (in.control[i] & kHolds);
      const bool resets = kControls && (in.control[i] & kResets);
      LLTM_JIT_UNROLLED(e, 2) {
        const int in_cluster = (place.first_eight + 4 * n) * 8 + place.column + e;
        const bool inside = !kPadded || first_unit + in_cluster < args.hidden_size;
        Step of;
        LLTM_JIT_UNROLLED(g, kGates) {
          of.sum(g) = Number(to_opmath(in.saved[g][n][i].values[e]));
          if constexpr (!kAdds) of.x[g] = Number(to_opmath(in.gates[g][n][i].values[e]));
        }
        LLTM_JIT_UNROLLED(k, kParameters) {
          const int at = k * kShape.units + min(in_cluster, kShape.units - 1);
          of.p[k] = Number(constants[at]);
        }
        of.old[0] = Number(to_opmath(in.old_h[n][i].values[e]));
        Number grad_now[kStates];
        grad_now[0] = Number(own.grad_h[n][i][e] + to_opmath(in.grad_output[n][i].values[e]));
        LLTM_JIT_UNROLLED_FROM(k, 1, kStates) {
          of.old[k] = Number(in.cells[k - 1][n][i][e]);
          grad_now[k] = Number(own.grad_cells[k - 1][n][i][e]);
        }
        const Step grads = CellDerivative<Cell, Number>(of)(grad_now);
        LLTM_JIT_UNROLLED(g, kGates) {
          const auto written = [&](Number value) {
            return from_opmath<scalar_t>(holds || !inside ? 0.f : float(value));
          };
          of_hidden[g][n][i].values[e] = written(grads.sum(g));
          if constexpr (!kAdds) of_inputs[g][n][i].values[e] = written(grads.x[g]);
        }
        if (holds) continue;
        own.grad_h[n][i][e] = resets ? 0.f : float(grads.old[0]);
        LLTM_JIT_UNROLLED_FROM(k, 1, kStates) {
          own.grad_cells[k - 1][n][i][e] = resets ? 0.f : float(grads.old[k]);
        }
        LLTM_JIT_UNROLLED(k, kParameters) own.grad_parameters[k][n][i][e] += float(grads.p[k]);
      }
      own.after[i] = kControls ? in.control[i] : uint8_t(0);
    }
    send_gradients(place, args.steps - step, of_hidden);
    this->arrive(place.tile);
    for_pairs(place, [&](int n, int i, int unit, int64_t row) {
      const auto target = [&](const MutableSequenceArray& array, int g) {
        return reinterpret_cast<Two*>(in_array(array, step, row, g, unit));
      };
      LLTM_JIT_UNROLLED(g, kGates) {
        *target(kAdds ? args.grad_gates : args.grad_hidden, g) = of_hidden[g][n][i];
        if constexpr (!kAdds) *target(args.grad_gates, g) = of_inputs[g][n][i];
      }
    });
  }

  LLTM_JIT_DEVICE void send_gradients(const Place& place, int64_t count,
                                      const Two (&grads)[kGates][kItems][2]) const {
    LLTM_JIT_UNROLLED(n, kItems) {
      if (!has_item(place, n)) continue;
      const int unit = unit_of(place, n);
      LLTM_JIT_UNROLLED(i, 2) {
        const bool there = has_row(place, i) && unit < gate_size();
        LLTM_JIT_UNROLLED(g, kGates) {
          const Two two = there ? grads[g][n][i] : Two{};
          this->send_two(place.tile, count, place.row + 8 * i, g * exchanged_size() + unit, there,
                         {to_opmath(two.values[0]), to_opmath(two.values[1])});
        }
      }
    }
  }

  LLTM_JIT_DEVICE void end(const Place& place, const Elements& own) const {
    for_pairs(place, [&](int n, int i, int unit, int64_t row) {
      const int64_t at = in_state(row, unit), all = state_size();
      if (args.grad_old_h) {
        store_two(static_cast<scalar_t*>(args.grad_old_h) + at, unit, own.grad_h[n][i]);
      }
      LLTM_JIT_UNROLLED(k, kStates - 1) {
        if (!args.grad_old_cells) continue;
        store_two(static_cast<float*>(args.grad_old_cells) + k * all + at, unit,
                  own.grad_cells[k][n][i]);
      }
      LLTM_JIT_UNROLLED(k, kParameters) {
        store_two(static_cast<float*>(args.grad_parameters) + k * all + at, unit,
                  own.grad_parameters[k][n][i]);
      }
    });
  }

  LLTM_JIT_DEVICE void exchange_sums(const Place& place, int64_t count, const float (&sums)[kN / 2],
                                     Elements& own) const {
    lltm_jit::exchange_sums<Block>(
        *this, place.tile, place.warp, place.lane, own_eights(), count, sums,
        [&](int n, const float4& all) {
          const bool first = !(kControls && (own.after[0] & kResets));
          const bool second = !(kControls && (own.after[1] & kResets));
          own.grad_h[n][0][0] += first ? all.x : 0, own.grad_h[n][0][1] += first ? all.y : 0;
          own.grad_h[n][1][0] += second ? all.z : 0, own.grad_h[n][1][1] += second ? all.w : 0;
        });
  }

  LLTM_JIT_DEVICE void run_steps(const Place& place) const {
    Elements own;
    Inputs in;
    begin(place, own);
    typename Pass::Slot slot;
    for (int64_t step = args.steps - 1; step >= 0; --step) {
      read(place, step, in);
      if (step + 1 < args.steps) {
        float sums[kN / 2];
        this->multiply(place.tile, slot, sums);
        exchange_sums(place, args.steps - 2 - step, sums, own);
      }
      finish(place, step, in, own);
    }
    if (args.grad_old_h) {
      float sums[kN / 2];
      this->multiply(place.tile, slot, sums);
      exchange_sums(place, args.steps - 1, sums, own);
    }
    end(place, own);
  }
};

template <typename Cell, typename scalar_t, typename Variant, bool kControls>
LLTM_JIT_DEVICE void run_many_rows(const SequenceBackwardArgs& args) {
#if LLTM_JIT_HAS_WGMMA
  extern __shared__ char dynamic[];
  using Backward = ManyRowsBackward<Cell, scalar_t, Variant, kControls>;
  const Backward backward(dynamic, args);
  wait_without_starting_successor();
  backward.load_weights();
  const int64_t products = args.steps - (args.grad_old_h ? 0 : 1);
  run_cluster<Variant>(
      [&](int tile) { backward.bring(tile, 1, products, 0); },
      [&] { backward.bring_weights(products); },
      [&](int tile) {
        const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
        backward.run_steps({tile, warp, lane, backward.rank % 4 * 16 + lane / 4, lane % 4 * 2,
                            backward.rank / 4 * Backward::kEights + warp});
      });
#endif
}

}  // namespace lltm_jit
