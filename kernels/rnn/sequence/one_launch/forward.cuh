// The forward pass of a sequence in one launch.
#pragma once

#include "core/launch/launch.cuh"
#include "rnn/sequence/cell.h"
#include "rnn/sequence/kernels.h"
#include "rnn/sequence/numbers/gate_float.cuh"
#include "rnn/sequence/one_launch/exchange.cuh"
#include "rnn/sequence/one_launch/group_sum.cuh"
#include "rnn/sequence/one_launch/recurrence.cuh"

namespace lltm_jit {

// What one thread does. kSaves: for a backward pass; kControls: there are control bytes.
template <typename Cell, typename scalar_t, typename Shape, bool kSaves, bool kControls>
class ForwardThread {
  static constexpr SequenceShape kShape = Shape::kShape;
  static constexpr int kGates = Cell::kGates, kStates = Cell::kStates;
  static constexpr int kElements = kShape.elements(), kWords = kShape.words();
  static constexpr int kRowTiles = kShape.phase_tiles(), kPhases = kShape.phases;
  static constexpr int kHalves = kElements == 2 ? 1 : 2;  // units that a lane's elements are of
  static constexpr bool kAdds = CellAddsGates<Cell>::value, kCluster = kShape.blocks > 1;
  using Weights = WarpWeights<Shape, scalar_t, kGates, 1>;
  static constexpr int kBytes = kShape.bytes;
  static_assert(kBytes == sizeof(scalar_t));
  using T = GateNumber<scalar_t>;
  // The input's part of the gates, element by element.
  struct Inputs {
    Words<kWords> gates[kGates];
  };

  // Shared memory.
  static constexpr int kSums = kShape.copy_bytes(1);
  static constexpr int kWeights = kSums + kShape.sum_bytes(kGates);
  static constexpr int kRing = kWeights + kShape.weight_bytes(kGates);
  static constexpr int kBarriers = kRing + kShape.ring_bytes(kGates, 0);

 public:
  static constexpr int kSharedBytes = kBarriers + SequenceShape::kBarrierBytes;
  static_assert(kSharedBytes == kShape.forward_bytes(kGates));

  // A thread for one set of rows, of all recurrences.
  __device__ __forceinline__ ForwardThread(const SequenceForwardArgs& args, uint32_t shared,
                                           int set)
      : args_(args),
        rows_(static_cast<int>(args.batch_size)),
        hidden_(static_cast<int>(keep(static_cast<uint32_t>(args.hidden_size)))),
        gate_size_(Shape::kPadded ? keep(static_cast<uint32_t>(args.gate_size())) : 0),
        gate_stride_(Shape::kSeveral ? keep(static_cast<uint32_t>(args.gate_stride())) : 0),
        steps_(static_cast<int>(args.steps)),
        recurrence_(args, set),
        lane_(recurrence_.rows()),
        exchange_(lane_, place(args, set, shared)),
        weights_(lane_, shared + kWeights, place(args, set, shared).streamed,
                 [&](int gate, int unit, int k) { return load_tile(gate, unit, k); }),
        group_sum_(lane_, shared + kSums),
        ring_(lane_, shared + kRing),
        controls_(lane_, recurrence_.control(args, 0), recurrence_.stride(args.control_step_stride),
                  args.steps, args.batch_size),
        elements_(lane_, rows_, hidden_, units(), recurrence_.first_unit()),
        units_(lane_, hidden_),
        inside_(lane_.pack_row() < rows_ && lane_.pack_unit() < gate_size()) {
    const int64_t row = inside_ ? lane_.pack_row() : 0, unit = inside_ ? lane_.pack_unit() : 0;
    const auto own = [&](const auto& array, int first) {
      return static_cast<const char*>(array.data) +
             kBytes * (recurrence_.place_of(0, args.steps) * array.step_stride +
                       row * array.row_stride + first + unit);
    };
    gates_ = own(args.gates, recurrence_.first_gate());
    output_ = const_cast<char*>(own(args.output, recurrence_.first_unit()));
    if constexpr (kSaves) {
      saved_gates_ = const_cast<char*>(own(args.saved_gates, recurrence_.first_gate()));
      saved_cells_ = recurrence_.place_of(0, args.steps) * args.saved_cells.step_stride;
    }
  }

  __device__ __forceinline__ void run() {
    begin();
    for (int step = 0; step < steps_; ++step) run_step(step);
    if (lane_.finishes()) {
      if constexpr (!kCluster) write_outputs();
      write_state();
    }
    exchange_.finish();
  }

 private:
  static __device__ __forceinline__ ExchangePlace place(const SequenceForwardArgs& args, int set,
                                                        uint32_t shared) {
    return exchange_place<Shape, 1, kGates>(args, set, 1, shared, shared + kBarriers);
  }

  // From a gate's first unit to that of the next one, of the weights; and of the other arrays, and the units of a row.
  __device__ __forceinline__ int gate_size() const { return Shape::kPadded ? gate_size_ : hidden_; }
  __device__ __forceinline__ int gate_stride() const {
    return Shape::kSeveral ? gate_stride_ : gate_size();
  }
  __device__ __forceinline__ int units() const {
    return Shape::kSeveral ? static_cast<int>(args_.units()) : hidden_;
  }

  __device__ __forceinline__ typename Weights::Numbers load_tile(int gate, int unit, int k) const {
    const auto* from = recurrence_.template weights<scalar_t>(args_) +
                       (int64_t(gate) * gate_size() + unit) * args_.weights_stride + k;
    const bool exist = unit < hidden_ && k < hidden_;
    const auto first = load_weights<kBytes>(from, exist);
    const auto second = load_weights<kBytes>(from + 2 * args_.weights_stride, exist);
    if constexpr (kBytes == 2) {
      return {first.value[0], second.value[0], first.value[1], second.value[1]};
    } else {
      return {first.value[0],  first.value[1],  first.value[2],  first.value[3],
              second.value[0], second.value[1], second.value[2], second.value[3]};
    }
  }

  __device__ __forceinline__ void begin() {
    exchange_.clear();
    if (lane_.finishes()) {
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        state_[0][e] = elements_.template read<scalar_t>(args_.old_h, 0, e);
#pragma unroll
        for (int k = 1; k < kStates; ++k) {
          state_[k][e] = elements_.template read<float>(args_.old_cells, k - 1, e);
        }
#pragma unroll
        for (int k = 0; k < kStates; ++k) {
          if (controls_.resets(e)) state_[k][e] = 0;
        }
      }
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        const int unit = min(lane_.unit_of(2 * half), hidden_ - 1);
        const auto number = [&](const void* data, int first, int i, int size) {
          const int64_t place = int64_t(i) * size + first + unit;
          return data ? to_opmath(static_cast<const scalar_t*>(data)[place]) : 0.f;
        };
#pragma unroll
        for (int g = 0; g < kGates; ++g) {
          bias_[g][half] = number(args_.bias, recurrence_.first_gate(), g, gate_stride());
        }
#pragma unroll
        for (int i = 0; i < CellTraits<Cell>::kParameters; ++i) {
          parameters_[i][half] = number(args_.parameters, recurrence_.first_unit(), i, units());
        }
      }
    }
    if constexpr (kShape.grid) {
      if (lane_.finishes()) send_old_h();
    } else {
      if (args_.old_h) copy_old_h();
    }
    for (int i = 0; i < SequenceShape::kStages - 1; ++i) bring(i);
    if constexpr (!kCluster) {
      read_inputs(0);
      arrange_inputs();
    }
    exchange_.start();
    if constexpr (kShape.loads_ahead()) weights_.load_ahead(operands_of(0, 0), loaded_);
    if constexpr (kControls && !kShape.grid) {
      sent_ = load_shared<kWords>(exchange_.own_part(-1));
    }
  }

  __device__ __forceinline__ void send_old_h() {
    Words<kWords> packs[1] = {};
    if (args_.old_h && inside_ && !(controls_.pack_resets() && !controls_.pack_holds())) {
      const auto* from = static_cast<const scalar_t*>(args_.old_h) +
                         int64_t(lane_.pack_row()) * units() + recurrence_.first_unit() +
                         lane_.pack_unit();
      if constexpr (Shape::kPadded) {
        packs[0] = load_first<scalar_t, kWords>(from, units_.left());
      } else {
        packs[0] = load_words<kWords>(from);
      }
    }
    if constexpr (kControls) sent_ = packs[0];
    exchange_.send(-1, packs);
  }

  // Every block brings all of h to its own copy.
  __device__ __forceinline__ void copy_old_h() const {
    constexpr int kChunk = 4;  // units
    constexpr int kChunks = kShape.tiles() * SequenceShape::kUnits / kChunk;
    const int first_row = recurrence_.rows() * kShape.rows;
    for (int i = threadIdx.x; i < kChunks * kShape.rows; i += kShape.threads()) {
      const int unit = i % kChunks * kChunk, in_cluster = i / kChunks, row = first_row + in_cluster;
      if (row >= rows_ || unit >= hidden_) continue;
      const uint8_t control = kControls ? recurrence_.control(args_, 0)[row] : 0;
      if ((control & (kResets | kHolds)) == kResets) continue;
      const auto* from = static_cast<const scalar_t*>(args_.old_h) + int64_t(row) * units() +
                         recurrence_.first_unit() + unit;
      // A tile of B has the rows one after the other, 16 units each.
      constexpr int kTileRows = kShape.rows == 4 ? 4 : 8;
      const int tile = unit / SequenceShape::kUnits * kRowTiles + in_cluster / kTileRows;
      const int place = (tile * kTileRows + in_cluster % kTileRows) * SequenceShape::kUnits +
                        unit % SequenceShape::kUnits;
      Words<kBytes> chunk;
      if constexpr (Shape::kPadded) {
        chunk = load_first<scalar_t, kBytes>(from, hidden_ - unit);
      } else {
        chunk = load_weights<kBytes>(from, true);
      }
      store_shared(exchange_.operands(-1) + place * kBytes, chunk);
    }
  }

  __device__ __forceinline__ void bring(int step) {
    if (!lane_.finishes()) return;
    if (step < steps_) {
#pragma unroll
      for (int g = 0; g < kGates; ++g)
        ring_.bring_pack(g, gates_ + kBytes * g * gate_stride(), inside_);
    }
    ring_.commit();
    gates_ += kBytes * recurrence_.stride(args_.gates.step_stride);
  }

  // The input's part of the gates, for start_sums() once it is arranged.
  __device__ __forceinline__ void read_inputs(int step) {
    if (!lane_.finishes()) return;
    ring_.wait();
#pragma unroll
    for (int g = 0; g < kGates; ++g) inputs_.gates[g] = ring_.pack(g);
    bring(step + SequenceShape::kStages - 1);
  }
  __device__ __forceinline__ void arrange_inputs() {
    if (!lane_.finishes()) return;
#pragma unroll
    for (int g = 0; g < kGates; ++g) inputs_.gates[g] = transpose<scalar_t>(inputs_.gates[g]);
  }

  // What the products of a step are added to: the bias, and the input's part of the gates if it is added.
  __device__ __forceinline__ void start_sums(int phase, typename Weights::Sums& all) const {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int g = 0; g < kGates; ++g) {
        auto& sums = all[n][g];
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[i] = 0;
        if (n > 0 || !lane_.finishes(phase)) continue;
        float inputs[kElements] = {};
        if constexpr (kAdds) to_floats<scalar_t>(inputs_.gates[g], inputs);
        // With two elements a lane, the half that is not the lane's is of no account.
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums[i] = inputs[i % kElements] + bias_[g][kHalves == 2 ? i / 2 : 0];
        }
      }
    }
  }

  __device__ __forceinline__ void run_step(int step) {
    if constexpr (kCluster) {  // while other blocks send
      read_inputs(step);
      arrange_inputs();
    }
    if constexpr (kPhases > 1) begin_step(step);
#pragma unroll 1
    for (int phase = 0; phase < kPhases; ++phase) run_phase(step, phase);
    controls_.advance();
    if constexpr (!kCluster) {
      arrange_inputs();
      __syncthreads();
    }
  }

  __device__ __forceinline__ void run_phase(int step, int phase) {
    typename Weights::Sums all;
    start_sums(phase, all);
    const auto operands = operands_of(step, phase);
    if constexpr (kPhases == 1) begin_step(step);
    if constexpr (kShape.loads_ahead()) {
      weights_.multiply_loaded(all, operands, loaded_);
    } else if constexpr (kCluster) {
      if (step > 0) exchange_.wait(step - 1);
      if constexpr (kBytes == 4) __syncwarp();  // or shuffles would ask whether all lanes are there
      weights_.multiply(all, operands);
    } else {
      weights_.multiply(all, operands, [&] {  // while the tensor cores work
        save_cells();
        if (lane_.finishes()) write_outputs(step > 0);
      });
    }
    float sums[kRowTiles][kGates][kElements];
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int g = 0; g < kGates; ++g) {
#pragma unroll
        for (int e = 0; e < kElements; ++e) {
          const auto& four = all[n][g];
          const float upper = four[e], lower = four[(e + 2) % 4];
          sums[n][g][e] = kElements == 4 || lane_.lane % 4 < 2 ? upper : lower;
        }
      }
    }
    group_sum_(step, phase, sums);
    if constexpr (kShape.loads_ahead()) load_after(step, phase);
    const Inputs inputs = inputs_;
    if constexpr (!kCluster) read_inputs(step + 1);
    if (lane_.finishes(phase)) {
      finish(sums[0], inputs);
      if (!kCluster || step + 1 < steps_) send(step);
      if (kCluster && step > 0 && threadIdx.x == 0) exchange_.expect(step - 1);
      if constexpr (kCluster) write_outputs();
    }
  }

  __device__ __forceinline__ void begin_step(int step) {
    controls_.read_ahead(step);
    if constexpr (kCluster) save_cells();
  }

  __device__ __forceinline__ auto operands_of(int step, int phase) const {
    return exchange_.operands(step - 1) + phase * kRowTiles * kShape.tile_bytes();
  }
  // What the next phase begins with, so that it is on its way while this one is finished.
  __device__ __forceinline__ void load_after(int step, int phase) {
    const bool last = phase + 1 == kPhases;
    if (last && step + 1 == steps_) return;
    weights_.load_ahead(last ? operands_of(step + 1, 0) : operands_of(step, phase + 1), loaded_);
  }

  // The cell, from the gates' sums (or the hidden parts); makes pairs of what is to be written.
  __device__ __forceinline__ void finish(const float (&sums)[kGates][kElements],
                                         const Inputs& inputs) {
    float output[kElements], of_inputs[kGates][kElements];
    if constexpr (!kAdds) {
#pragma unroll
      for (int g = 0; g < kGates; ++g) to_floats<scalar_t>(inputs.gates[g], of_inputs[g]);
    }
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      auto in = step_of_element<Cell, T>(e, sums, of_inputs, parameters_);
#pragma unroll
      for (int k = 0; k < kStates; ++k) in.old[k] = T(state_[k][e]);
      T now[kStates];
      lltm_jit::run_step(in, now);
      output[e] = float(now[0]);
#pragma unroll
      for (int k = 0; k < kStates; ++k) {
        if (!controls_.holds(e)) state_[k][e] = float(now[k]);
        if (controls_.resets_next(e)) state_[k][e] = 0;
      }
    }
    packs_ = transpose<scalar_t>(to_words<scalar_t>(output));
    units_.cut(packs_);
    held_ = controls_.pack_holds();
    if constexpr (kSaves) {
#pragma unroll
      for (int g = 0; g < kGates; ++g) saved_[g] = to_words<scalar_t>(sums[g]);
    }
  }

  __device__ __forceinline__ void send(int step) {
    // Units that do not exist are no numbers that weights of zero could cancel for sure.
    const bool exists = Shape::kPadded || lane_.pack_unit() < hidden_;
    const bool zero = !exists || controls_.pack_resets_next();
    Words<kWords> packs[1];
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const uint32_t word = held_ ? sent_.value[i] : packs_.value[i];
      packs[0].value[i] = zero ? 0 : word;
    }
    if constexpr (kControls) sent_ = packs[0];
    exchange_.send(step, packs);
  }

  // Writes the outputs of the step that has been finished last, if any has.
  __device__ __forceinline__ void write_outputs(bool any = true) {
    const bool writes = inside_ && any;
    Words<kWords> packs = packs_;
    if (held_) packs = {};
    if constexpr (Shape::kPadded) {
      if (writes) units_.store(output_, packs, args_.hidden_size);
    } else {
      if (writes) store_words(output_, packs);
    }
    output_ += any ? kBytes * recurrence_.stride(args_.output.step_stride) : 0;
    if constexpr (kSaves) {
#pragma unroll
      for (int g = 0; g < kGates; ++g) {
        const auto pack = transpose<scalar_t>(saved_[g]);
        if (writes) store_words(saved_gates_ + kBytes * g * gate_stride(), pack);
      }
      saved_gates_ += any ? kBytes * recurrence_.stride(args_.saved_gates.step_stride) : 0;
    }
  }

  // Saves the cell states that a step begins with.
  __device__ __forceinline__ void save_cells() {
    if constexpr (kSaves && kStates > 1) {
      if (lane_.finishes()) write_cells(static_cast<float*>(args_.saved_cells.data) + saved_cells_);
      saved_cells_ += recurrence_.stride(args_.saved_cells.step_stride);
    }
  }
  __device__ __forceinline__ void write_cells(float* cells) const {
#pragma unroll
    for (int k = 1; k < kStates; ++k) {
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        elements_.template write<float>(cells, k - 1, e, state_[k][e]);
      }
    }
  }
  __device__ __forceinline__ void write_state() const {
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      elements_.template write<scalar_t>(args_.new_h, 0, e, state_[0][e]);
    }
    if constexpr (kStates > 1) write_cells(static_cast<float*>(args_.new_cells));
  }

  const SequenceForwardArgs& args_;
  int rows_, hidden_, gate_size_, gate_stride_, steps_;
  Recurrence<Shape> recurrence_;
  Lane<Shape> lane_;
  Exchange<Shape, 1> exchange_;
  Weights weights_;
  GroupSum<Shape, kGates> group_sum_;
  Ring<Shape, kGates, 0> ring_;
  Controls<Shape, kControls> controls_;
  Elements<Shape> elements_;
  PackUnits<Shape> units_;
  bool inside_;  // this lane's pack is of a row and of units that exist

  // Where this lane's pack is, of the next step that is read or written.
  const char* gates_;
  char *output_, *saved_gates_;
  int64_t saved_cells_ = 0;

  typename Weights::Loaded loaded_;  // with phases
  Inputs inputs_;
  float state_[kStates][kElements];
  float bias_[kGates][kHalves];
  float parameters_[CellTraits<Cell>::kParametersRoom][kHalves];
  // What the step that has been finished last gave, to be written.
  Words<kWords> packs_, saved_[kGates];
  bool held_ = false;
  Words<kWords> sent_{};
};

template <typename Cell, typename scalar_t, typename Shape, bool kSaves, bool kControls>
__device__ __forceinline__ void run_sequence(const SequenceForwardArgs& args) {
#if __CUDA_ARCH__ >= 800
  if constexpr (kRunsHere<Shape>) {
    extern __shared__ __align__(128) char shared[];
    wait_for_predecessor();
    const uint32_t address = keep(shared_address(shared));
    for_sets<Shape>(args, [&](int set) {
      ForwardThread<Cell, scalar_t, Shape, kSaves, kControls>(args, address, set).run();
    });
  }
#endif
}

}  // namespace lltm_jit
