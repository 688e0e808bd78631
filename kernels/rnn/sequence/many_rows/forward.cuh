// The forward pass of Note [Many rows] (shape.h).
#pragma once

#include "rnn/sequence/many_rows/pass.cuh"

namespace lltm_jit {

template <typename Cell, typename scalar_t, typename Variant, SequenceSaves kSaves, bool kControls>
struct ManyRowsForward : ManyRowsPass<Cell, scalar_t, Variant, SequenceForwardArgs> {
  using Pass = ManyRowsPass<Cell, scalar_t, Variant, SequenceForwardArgs>;
  using Pass::args, Pass::rank, Pass::first_unit, Pass::constants, Pass::in_array, Pass::in_state,
      Pass::state_size, Pass::row_of, Pass::has_row, Pass::gate_size, Pass::store_two;
  using Pass::kShape, Pass::kChunks, Pass::kN, Pass::kPadded, Pass::kGates, Pass::kStates,
      Pass::kParameters, Pass::kAdds;
  using Pass::Pass;
  using typename Pass::Block, typename Pass::Number, typename Pass::Two;
  static constexpr int kEights = kShape.own_eights(), kAll = kShape.units / 8;
  // Inputs are read after the products, because both need many registers.
  static constexpr bool kReadsLate = kShape.scaled && kShape.tiles == 4 && kAll > 2;

  // own_unit(): the first unit of the cluster that this block finishes. end_unit(): the end of the
  // cluster's units, beyond which a block's last eight may reach.
  LLTM_JIT_DEVICE int own_unit() const { return rank * kEights * 8; }
  LLTM_JIT_DEVICE int end_unit() const {
    return min(int(args.hidden_size), first_unit + kShape.units);
  }

  // --------------------------------------------------------------------------------- before the steps --

  LLTM_JIT_DEVICE void load_weights() const {
    const int64_t size = gate_size();
    const auto* source = static_cast<const scalar_t*>(args.weights);
    // Own units come first: in the second block, the two halves are exchanged, and the units between them stay.
    const auto unit_at = [&](int column) {
      constexpr int kHalf = kEights * 8, kOthers = kShape.units - kHalf;
      return column + (column < kOthers ? own_unit() : column >= kHalf ? -own_unit() : 0);
    };
    const auto load = [&](int n, int in_block) {
      const int unit = first_unit + unit_at(n % kShape.units);
      const int64_t k = int64_t(rank) * kChunks * ManyRowsShape::kChunk + in_block;
      const bool inside = unit < args.hidden_size && k < size;
      const int64_t row = (n / kShape.units) * size + unit;
      return load_or_zero<4>(source + (inside ? row * args.weights_stride + k : 0), inside);
    };
    load_along_k<scalar_t>(*this, load);
    for (int i = threadIdx.x; i < (kGates + kParameters) * kShape.units; i += kShape.threads()) {
      const int unit = first_unit + i % kShape.units, at = i / kShape.units;
      float value = 0;
      if (unit < args.hidden_size) {
        if (at >= kGates) {
          value = to_opmath(static_cast<const scalar_t*>(
              args.parameters)[(at - kGates) * args.hidden_size + unit]);
        } else {
          const auto add = [&](const void* bias) {
            if (bias) value += to_opmath(static_cast<const scalar_t*>(bias)[at * size + unit]);
          };
          add(args.bias);
          add(args.input_bias);
          value = to_opmath(from_opmath<scalar_t>(value));
        }
      }
      constants[i] = value;
    }
  }

  // -------------------------------------------------------------------------------------- the steps --

  struct Place {
    int tile, row;  // row in the tile of the lane's first row
    int column;     // of the lane's first unit, within eight
  };
  // A lane's elements: [eights][2 rows][2 units].
  struct Elements {
    float old[kStates][kEights][2][2];
    Two inputs[kGates][kEights][2];
    uint8_t control[2];
  };

  LLTM_JIT_DEVICE int unit_of(const Place& place, int eight) const {
    return first_unit + own_unit() + eight * 8 + place.column;
  }

  // Calls function(input, whether it exists, its place) for each pair of a step's inputs.
  template <typename Function>
  LLTM_JIT_DEVICE void for_inputs(const Place& place, int64_t step, Elements& own,
                                  const Function& function) const {
    LLTM_JIT_UNROLLED(i, 2) {
      const bool inside = has_row(place, i);
      const int64_t row = row_of(place, i);
      LLTM_JIT_UNROLLED2(g, kGates, j, kEights) {
        const int unit = unit_of(place, j);
        function(own.inputs[g][j][i], inside && unit < end_unit(),
                 in_array(args.gates, step, row, g, unit));
      }
    }
  }
  LLTM_JIT_DEVICE void read_inputs(const Place& place, int64_t step, Elements& own) const {
    for_inputs(place, step, own, [](Two& input, bool inside, const scalar_t* source) {
      input = inside ? load_raw<2>(source) : Two{};
    });
  }

  // Prepares a step: reads its inputs, resets the state if asked to, and saves the cells.
  LLTM_JIT_DEVICE void prepare(const Place& place, int64_t step, Elements& own) const {
    if (step == args.steps) return;
    if constexpr (kReadsLate) {
      for_inputs(place, step, own, [](Two&, bool inside, const scalar_t* source) {
        if (inside) asm volatile("prefetch.global.L2 [%0];" ::"l"(source));
      });
    } else {
      read_inputs(place, step, own);
    }
    LLTM_JIT_UNROLLED(i, 2) {
      const bool inside = has_row(place, i);
      if constexpr (kControls) {
        own.control[i] =
            inside ? args.control[step * args.control_step_stride + row_of(place, i)] : 0;
      }
      LLTM_JIT_UNROLLED(j, kEights) {
        const int unit = unit_of(place, j);
        LLTM_JIT_UNROLLED(k, kStates) {
          if (kControls && (own.control[i] & (kResets | kHolds)) == kResets) {
            own.old[k][j][i][0] = own.old[k][j][i][1] = 0;
          }
          if (!kSaves || k == 0 || !inside || unit >= end_unit()) continue;
          store_two(args.saved_cells.template as<float>() + step * args.saved_cells.step_stride +
                        ((k - 1) * args.batch_size + row_of(place, i)) * args.hidden_size + unit,
                    unit, own.old[k][j][i]);
        }
      }
    }
  }

  LLTM_JIT_DEVICE void send_h(const Place& place, int64_t step, int j, int i,
                              const float (&h)[2]) const {
    const int unit = unit_of(place, j);
    const int end = min(first_unit + kShape.units, kShape.blocks * kChunks * ManyRowsShape::kChunk);
    if (unit >= end) return;
    this->send_two(place.tile, step, place.row + 8 * i, unit, has_row(place, i), h);
  }

  LLTM_JIT_DEVICE void begin(const Place& place, Elements& own) const {
    LLTM_JIT_UNROLLED2(j, kEights, i, 2) {
      const int64_t row = row_of(place, i);
      LLTM_JIT_UNROLLED(e, 2) {
        const int unit = unit_of(place, j) + e;
        const bool inside = has_row(place, i) && unit < end_unit();
        const int64_t at = in_state(row, unit);
        own.old[0][j][i][e] =
            inside && args.old_h ? to_opmath(static_cast<const scalar_t*>(args.old_h)[at]) : 0.f;
        LLTM_JIT_UNROLLED_FROM(k, 1, kStates) {
          own.old[k][j][i][e] =
              inside && args.old_cells
                  ? static_cast<const float*>(args.old_cells)[(k - 1) * state_size() + at]
                  : 0.f;
        }
      }
      send_h(place, 0, j, i, own.old[0][j][i]);
    }
    this->arrive(place.tile);
    prepare(place, 0, own);
  }

  // sums: [gates][eights][2 rows][2 units]
  LLTM_JIT_DEVICE void finish(const Place& place, int64_t step, float (&sums)[kN / 2],
                              Elements& own) const {
    LLTM_JIT_UNROLLED2(j, kEights, i, 2) {
      const uint8_t control = kControls ? own.control[i] : uint8_t(0);
      const bool resets = kControls && (control & kResets), holds = kControls && (control & kHolds);
      float h[2];
      LLTM_JIT_UNROLLED(e, 2) {
        const int in_cluster = own_unit() + j * 8 + place.column + e;
        CellStep<Cell, Number> in;
        LLTM_JIT_UNROLLED(g, kGates) {
          float& sum = sums[(g * kAll + j) * 4 + i * 2 + e];
          const float x = to_opmath(own.inputs[g][j][i].values[e]);
          const float of_h = (resets ? 0.f : sum) + constants[g * kShape.units + in_cluster];
          sum = kAdds ? x + of_h : of_h;
          in.sum(g) = Number(sum);
          if constexpr (!kAdds) in.x[g] = Number(x);
        }
        LLTM_JIT_UNROLLED(k, kParameters) {
          in.p[k] = Number(constants[(kGates + k) * kShape.units + in_cluster]);
        }
        LLTM_JIT_UNROLLED(k, kStates) in.old[k] = Number(own.old[k][j][i][e]);
        Number states[kStates];
        run_step(in, states);
        LLTM_JIT_UNROLLED(k, kStates) {
          if (!holds) own.old[k][j][i][e] = float(states[k]);
        }
        h[e] = kPadded && first_unit + in_cluster >= args.hidden_size ? 0.f : own.old[0][j][i][e];
      }
      send_h(place, step + 1, j, i, h);
    }
    this->arrive(place.tile);
    write(place, step, sums, own);
  }

  // Stores results for which nobody waits.
  LLTM_JIT_DEVICE void write(const Place& place, int64_t step, const float (&sums)[kN / 2],
                             const Elements& own) const {
    const bool last = step + 1 == args.steps;
    LLTM_JIT_UNROLLED(i, 2) {
      if (!has_row(place, i)) continue;
      const int64_t row = row_of(place, i);
      const bool holds = kControls && (own.control[i] & kHolds);
      LLTM_JIT_UNROLLED(j, kEights) {
        const int unit = unit_of(place, j);
        if (unit >= end_unit()) continue;
        const int64_t at = in_state(row, unit), all = state_size();
        float h[2] = {holds ? 0.f : own.old[0][j][i][0], holds ? 0.f : own.old[0][j][i][1]};
        store_two(in_array(args.output, step, row, 0, unit), unit, h);
        if (kSaves == kSavesAll && !holds) {
          LLTM_JIT_UNROLLED(g, kGates) {
            const float* two = sums + (g * kAll + j) * 4 + i * 2;
            store_pack<2>(in_array(args.saved_gates, step, row, g, unit), {two[0], two[1]});
          }
        }
        if (!last) continue;
        store_two(static_cast<scalar_t*>(args.new_h) + at, unit, own.old[0][j][i]);
        LLTM_JIT_UNROLLED_FROM(k, 1, kStates) {
          const int64_t place = (k - 1) * all + at;
          if (args.narrow_cells) {
            store_two(static_cast<scalar_t*>(args.new_cells) + place, unit, own.old[k][j][i]);
          } else {
            store_two(static_cast<float*>(args.new_cells) + place, unit, own.old[k][j][i]);
          }
        }
      }
    }
  }

  LLTM_JIT_DEVICE void run_steps(const Place& place) const {
    Elements own;
    begin(place, own);
    typename Pass::Slot slot;
    for (int64_t step = 0; step < args.steps; ++step) {
      float sums[kN / 2];
      this->multiply(place.tile, slot, sums);
      exchange_halves<Block>(*this, place.tile, step, sums, [&] {
        if constexpr (kReadsLate) read_inputs(place, step, own);
      });
      finish(place, step, sums, own);
      prepare(place, step + 1, own);
    }
  }
};

template <typename Cell, typename scalar_t, typename Variant, SequenceSaves kSaves, bool kControls>
LLTM_JIT_DEVICE void run_many_rows(const SequenceForwardArgs& args) {
#if LLTM_JIT_HAS_WGMMA
  extern __shared__ char dynamic[];
  const ManyRowsForward<Cell, scalar_t, Variant, kSaves, kControls> forward(dynamic, args);
  wait_without_starting_successor();
  forward.load_weights();
  run_cluster<Variant>([&](int tile) { forward.bring(tile, 0, args.steps, 1); },
                       [&] { forward.bring_weights(args.steps); },
                       [&](int tile) {
                         const int thread = threadIdx.x % 128, lane = thread % 32;
                         forward.run_steps({tile, thread / 32 * 16 + lane / 4, lane % 4 * 2});
                       });
#endif
}

}  // namespace lltm_jit
