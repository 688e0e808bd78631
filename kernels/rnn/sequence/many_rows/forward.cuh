// The forward pass of Note [Many rows] (shape.h).
#pragma once

#include "rnn/sequence/cell.h"
#include "rnn/sequence/kernels.h"
#include "rnn/sequence/many_rows/cluster.cuh"
#include "rnn/sequence/numbers/gate_float.cuh"

namespace lltm_jit {

template <typename Cell, typename scalar_t, typename Variant, bool kSaves, bool kControls>
struct ManyRowsForward : ClusterBlock<scalar_t, Variant, Cell::kGates> {
  using Block = ClusterBlock<scalar_t, Variant, Cell::kGates>;
  using Block::kShape, Block::kTiles, Block::kChunks, Block::kN, Block::kParts, Block::kPart;
  using Block::rank, Block::first_unit, Block::tile_rows, Block::barriers, Block::constants;
  static constexpr bool kPadded = Variant::kPadded;
  static constexpr int kGates = Cell::kGates, kStates = Cell::kStates;
  static constexpr int kParameters = CellTraits<Cell>::kParameters;
  static constexpr bool kAdds = CellAddsGates<Cell>::value;
  static constexpr int kEights = kShape.units / 8;
  using Number = GateNumber<scalar_t>;
  using Two = Pack<scalar_t, 2>;

  const SequenceForwardArgs& args;

  __device__ __forceinline__ ManyRowsForward(char* shared, const SequenceForwardArgs& args)
      : Block(shared, args.workspace, args.batch_size), args(args) {}

  __device__ __forceinline__ int64_t gate_size() const {
    return kPadded ? padded_size(args.hidden_size) : args.hidden_size;
  }

  // --------------------------------------------------------------------------------- before the steps --

  __device__ __forceinline__ void load_weights() const {
    constexpr int kFours = kChunks * ManyRowsShape::kChunk / 4;
    const int64_t size = gate_size();
    const auto* source = static_cast<const scalar_t*>(args.weights);
    for (int i = threadIdx.x; i < kN * kFours; i += kShape.threads()) {
      const int n = i / kFours, in_block = i % kFours * 4, unit = first_unit + n % kShape.units;
      const int64_t k = int64_t(rank) * kChunks * ManyRowsShape::kChunk + in_block;
      const bool inside = unit < args.hidden_size && k < size;
      const int64_t row = (n / kShape.units) * size + unit;
      const auto four =
          load_or_zero<4>(source + (inside ? row * args.weights_stride + k : 0), inside);
      *reinterpret_cast<Pack<scalar_t, 4>*>(this->weight(n, in_block)) = four;
    }
    for (int i = threadIdx.x; i < (kGates + kParameters) * kShape.units; i += kShape.threads()) {
      const int unit = first_unit + i % kShape.units, at = i / kShape.units;
      float value = 0;
      if (unit < args.hidden_size) {
        if (at >= kGates) {
          value = to_opmath(static_cast<const scalar_t*>(
              args.parameters)[(at - kGates) * args.hidden_size + unit]);
        } else if (args.bias) {
          value = to_opmath(static_cast<const scalar_t*>(args.bias)[at * size + unit]);
        }
      }
      constants[i] = value;
    }
  }

  // -------------------------------------------------------------------------------------- the steps --

  struct Place {
    int tile, thread, row;  // of the lane's first row, in the tile
    int column;             // of its first unit, among eight
  };
  // What a lane keeps of its rows and units: elements [eights][2 rows][2 units].
  struct Elements {
    float old[kStates][kEights][2][2];
    Two inputs[kGates][kEights][2];
    uint8_t control[2];
  };

  __device__ __forceinline__ int64_t row_of(const Place& place, int i) const {
    return int64_t(place.tile) * tile_rows + place.row + 8 * i;
  }
  __device__ __forceinline__ bool has_row(const Place& place, int i) const {
    return place.row + 8 * i < tile_rows && row_of(place, i) < args.batch_size;
  }
  __device__ __forceinline__ int unit_of(const Place& place, int eight) const {
    return first_unit + eight * 8 + place.column;
  }

  __device__ __forceinline__ void read_inputs(const Place& place, int64_t step,
                                              Elements& own) const {
    const auto* gates =
        static_cast<const scalar_t*>(args.gates.data) + step * args.gates.step_stride;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bool inside = has_row(place, i);
      const int64_t row = row_of(place, i);
      if constexpr (kControls) {
        own.control[i] = inside ? args.control[step * args.control_step_stride + row] : 0;
      }
#pragma unroll
      for (int g = 0; g < kGates; ++g) {
#pragma unroll
        for (int j = 0; j < kEights; ++j) {
          const int unit = unit_of(place, j);
          if (inside && unit < args.hidden_size) {
            own.inputs[g][j][i] =
                load_raw<2>(gates + row * args.gates.row_stride + g * gate_size() + unit);
          } else {
            own.inputs[g][j][i] = Two{};
          }
        }
      }
    }
  }

  // The state that a step begins with.
  __device__ __forceinline__ void prepare(const Place& place, int64_t step, Elements& own) const {
    if (step == args.steps) return;
    read_inputs(place, step, own);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bool inside = has_row(place, i);
#pragma unroll
      for (int j = 0; j < kEights; ++j) {
        const int unit = unit_of(place, j);
#pragma unroll
        for (int k = 0; k < kStates; ++k) {
          if (kControls && (own.control[i] & (kResets | kHolds)) == kResets) {
            own.old[k][j][i][0] = own.old[k][j][i][1] = 0;
          }
          if (!kSaves || k == 0 || !inside || unit >= args.hidden_size) continue;
          store_two(static_cast<float*>(args.saved_cells.data) +
                        step * args.saved_cells.step_stride +
                        ((k - 1) * args.batch_size + row_of(place, i)) * args.hidden_size + unit,
                    unit, own.old[k][j][i]);
        }
      }
    }
  }

  // Two neighbouring units.
  template <typename element_t>
  __device__ __forceinline__ void store_two(element_t* target, int unit,
                                            const float (&values)[2]) const {
    if constexpr (!kPadded) {
      store_pack<2>(target, values);
    } else {
      target[0] = from_opmath<element_t>(values[0]);
      if (unit + 1 < args.hidden_size) target[1] = from_opmath<element_t>(values[1]);
    }
  }

  __device__ __forceinline__ void send_h(const Place& place, int64_t step, int j, int i,
                                         const float (&h)[2]) const {
    const int unit = unit_of(place, j);
    if (unit >= kShape.blocks * kChunks * ManyRowsShape::kChunk) return;
    char* target = this->exchanged(place.tile, step, place.row + 8 * i, unit);
    store_pack<2>(reinterpret_cast<scalar_t*>(target), h);
  }

  __device__ __forceinline__ void begin(const Place& place, Elements& own) const {
#pragma unroll
    for (int j = 0; j < kEights; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int64_t row = row_of(place, i);
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int unit = unit_of(place, j) + e;
          const bool inside = has_row(place, i) && unit < args.hidden_size;
          const int64_t at = row * args.hidden_size + unit;
          own.old[0][j][i][e] =
              inside && args.old_h ? to_opmath(static_cast<const scalar_t*>(args.old_h)[at]) : 0.f;
#pragma unroll
          for (int k = 1; k < kStates; ++k) {
            own.old[k][j][i][e] =
                inside && args.old_cells
                    ? static_cast<const float*>(
                          args.old_cells)[(k - 1) * args.batch_size * args.hidden_size + at]
                    : 0.f;
          }
        }
        if (has_row(place, i)) send_h(place, 0, j, i, own.old[0][j][i]);
      }
    }
    this->arrive(place.tile);
    prepare(place, 0, own);
  }

  // sums: [gates][eights][2 rows][2 units]
  __device__ __forceinline__ void finish(const Place& place, int64_t step, float (&sums)[kN / 2],
                                         Elements& own) const {
#pragma unroll
    for (int j = 0; j < kEights; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint8_t control = kControls ? own.control[i] : uint8_t(0);
        const bool resets = kControls && (control & kResets),
                   holds = kControls && (control & kHolds);
        float h[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int in_block = j * 8 + place.column + e;
          CellStep<Cell, Number> in;
#pragma unroll
          for (int g = 0; g < kGates; ++g) {
            float& sum = sums[(g * kEights + j) * 4 + i * 2 + e];
            const float x = to_opmath(own.inputs[g][j][i].values[e]);
            const float of_h = (resets ? 0.f : sum) + constants[g * kShape.units + in_block];
            if constexpr (kAdds) {
              sum = x + of_h;
              in.x[g] = Number(sum);
            } else {
              sum = of_h;
              in.x[g] = Number(x);
              in.h[g] = Number(of_h);
            }
          }
#pragma unroll
          for (int k = 0; k < kParameters; ++k) {
            in.p[k] = Number(constants[(kGates + k) * kShape.units + in_block]);
          }
#pragma unroll
          for (int k = 0; k < kStates; ++k) {
            in.old[k] = Number(own.old[k][j][i][e]);
          }
          Number states[kStates];
          run_step(in, states);
#pragma unroll
          for (int k = 0; k < kStates; ++k) {
            if (!holds) own.old[k][j][i][e] = float(states[k]);
          }
          h[e] = kPadded && first_unit + in_block >= args.hidden_size ? 0.f : own.old[0][j][i][e];
        }
        if (has_row(place, i)) send_h(place, step + 1, j, i, h);
      }
    }
    this->arrive(place.tile);
    write(place, step, sums, own);
  }

  // What nobody waits for.
  __device__ __forceinline__ void write(const Place& place, int64_t step,
                                        const float (&sums)[kN / 2], const Elements& own) const {
    const bool last = step + 1 == args.steps;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (!has_row(place, i)) continue;
      const int64_t row = row_of(place, i);
      const bool holds = kControls && (own.control[i] & kHolds);
#pragma unroll
      for (int j = 0; j < kEights; ++j) {
        const int unit = unit_of(place, j);
        if (unit >= args.hidden_size) continue;
        auto* output = static_cast<scalar_t*>(args.output.data) + step * args.output.step_stride +
                       row * args.output.row_stride + unit;
        float h[2] = {holds ? 0.f : own.old[0][j][i][0], holds ? 0.f : own.old[0][j][i][1]};
        store_two(output, unit, h);
        const int64_t at = row * args.hidden_size + unit, all = args.batch_size * args.hidden_size;
        if (kSaves && !holds) {
          auto* saved = static_cast<scalar_t*>(args.saved_gates.data) +
                        step * args.saved_gates.step_stride + row * args.saved_gates.row_stride +
                        unit;
#pragma unroll
          for (int g = 0; g < kGates; ++g) {
            const float* two = sums + (g * kEights + j) * 4 + i * 2;
            store_pack<2>(saved + g * gate_size(), {two[0], two[1]});
          }
        }
        if (!last) continue;
        store_two(static_cast<scalar_t*>(args.new_h) + at, unit, own.old[0][j][i]);
#pragma unroll
        for (int k = 1; k < kStates; ++k) {
          store_two(static_cast<float*>(args.new_cells) + (k - 1) * all + at, unit,
                    own.old[k][j][i]);
        }
      }
    }
  }

  __device__ __forceinline__ void run_steps(const Place& place) const {
    const bool finishes = place.tile % 2 == rank;
    const char* in_block = kShape.reuses
                               ? this->ring(place.tile)
                               : this->received + place.tile / 2 * kShape.sum_bytes(kGates);
    const uint32_t here = shared_address(in_block) + place.thread * 16;
    Elements own;
    if (finishes) begin(place, own);
    typename Block::Slot slot;
    for (int64_t step = 0; step < args.steps; ++step) {
      float sums[kN / 2];
      this->multiply(place.tile, slot, sums);
      if (!finishes) {
        send_sums(place.tile, step, sums, address_in(here, rank ^ 1));
        continue;
      }
      add_sums(place, step, sums, here);
      finish(place, step, sums, own);
      prepare(place, step + 1, own);
    }
  }

  static constexpr int kFours = 128 * 16;  // bytes that a warpgroup sends at once
  static __device__ __forceinline__ constexpr int eights_of(int part) {
    return min(kPart, kN / 8 - part * kPart);
  }

  __device__ __forceinline__ void send_sums(int tile, int64_t step, const float (&sums)[kN / 2],
                                            uint32_t target) const {
    const uint32_t barrier = address_in(barriers.sums[tile].address(), rank ^ 1);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      if (kShape.reuses) wait_in_cluster(barriers.free[tile], int(step * kParts + part) & 1);
#pragma unroll
      for (int i = 0; i < eights_of(part); ++i) {
        send_four(target + i * kFours, sums + 4 * (part * kPart + i), barrier);
      }
    }
  }

  __device__ __forceinline__ void add_sums(const Place& place, int64_t step, float (&sums)[kN / 2],
                                           uint32_t source) const {
    auto& there = barriers.sums[place.tile];
    const uint32_t free = address_in(barriers.free[place.tile].address(), rank ^ 1);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      if (kShape.reuses) this->synchronize(place.tile);  // what lay here has been read
      if (place.thread == 0) {
        there.arrive_and_expect(eights_of(part) * kFours);
        if (kShape.reuses) arrive_at(free);
      }
      wait_in_cluster(there, int(step * kParts + part) & 1);
#pragma unroll
      for (int i = 0; i < eights_of(part); ++i) {
        float* four = sums + 4 * (part * kPart + i);
        const float4 more = load_four(source + i * kFours);
        four[0] += more.x, four[1] += more.y, four[2] += more.z, four[3] += more.w;
      }
    }
  }
};

template <typename Cell, typename scalar_t, typename Variant, bool kSaves, bool kControls>
__device__ __forceinline__ void run_many_rows(const SequenceForwardArgs& args) {
#if LLTM_JIT_HAS_WGMMA
  extern __shared__ char dynamic[];
  const ManyRowsForward<Cell, scalar_t, Variant, kSaves, kControls> forward(dynamic, args);
  wait_without_starting_successor();
  forward.load_weights();
  run_cluster<Variant>(
      [&](int tile) { forward.bring(tile, 0, args.steps, 1); },
      [&] { forward.bring_weights(args.steps); },
      [&](int tile) {
        const int thread = threadIdx.x % 128, lane = thread % 32;
        forward.run_steps({tile, thread, thread / 32 * 16 + lane / 4, lane % 4 * 2});
      });
#endif
}

}  // namespace lltm_jit
