// The persistent kernel of the forward pass.
#pragma once

#include "rnn/sequence/persistent/cell/forward.cuh"
#include "rnn/sequence/persistent/exchange/grid.cuh"
#include "rnn/sequence/persistent/exchange/old_h.cuh"
#include "rnn/sequence/persistent/load/gates.cuh"
#include "rnn/sequence/persistent/load/weights.cuh"
#include "rnn/sequence/persistent/products/group_sum.cuh"
#include "rnn/sequence/persistent/products/warp_weights.cuh"
#include "rnn/sequence/persistent/sets.cuh"
#include "rnn/sequence/persistent/store/outputs.cuh"

namespace lltm_jit {

// The work of one thread.
template <typename Cell, typename scalar_t, typename Shape, SequenceSaves kSaves,
          SequenceControls kControls>
class ForwardThread : ThreadFacts<Cell, Shape> {
  using Facts = ThreadFacts<Cell, Shape>;
  using Facts::kShape, Facts::kGates, Facts::kStates, Facts::kElements, Facts::kWords,
      Facts::kCluster;
  static constexpr int kRowTiles = kShape.phase_tiles(), kPhases = kShape.phases;
  // With two rows, gates need not be arranged, and are read while tensor cores work.
  static constexpr bool kReadsEarly = kShape.rows == 2;
  // Note [Sent as multiplied].
  static constexpr bool kSendsHalves =
      kShape.rows == 2 && !kShape.tf32 && !kControls && CellIsBounded<Cell>::value;
  using Weights = WarpWeights<Shape, scalar_t, kGates, 1, kShape.small_floats(), kSendsHalves>;
  using Gates = InputGates<Shape, scalar_t, kGates>;

  // Shared memory.
  static constexpr int kSums = kShape.copy_bytes(1);
  static constexpr int kWeights = kSums + kShape.sum_bytes(kGates);
  static constexpr int kRing = kWeights + kShape.weight_bytes(kGates);
  static constexpr int kBarriers = kRing + kShape.ring_bytes(kShape.forward_stages(), kGates, 0);
  static constexpr int kRowSums = kBarriers + SequenceShape::kBarrierBytes;
  static_assert(kRowSums == kShape.forward_bytes(kGates));

 public:
  // A thread for one set of rows, of all recurrences.
  LLTM_JIT_DEVICE ForwardThread(const SequenceForwardArgs& args, uint32_t shared, int set)
      : args_(args),
        place_(args, set),
        exchange_(place_.lane, exchange_at(args, set, shared)),
        weights_(place_.lane, shared + kWeights, exchange_at(args, set, shared).streamed,
                 [&](int gate, int unit, int k) { return load_tile(place_, args, gate, unit, k); }),
        group_sum_(place_.lane, shared + kSums),
        gates_(place_, args.gates, shared + kRing),
        controls_(place_.lane, place_.recurrence.control(args, 0),
                  place_.recurrence.stride(args.control_step_stride), args.steps, args.batch_size),
        elements_(place_),
        pack_(place_),
        outputs_(place_, elements_, pack_, args),
        row_sums_(place_.lane, place_.hidden, shared + kRowSums) {
    // Pointers last: this order decides how well the compiler does the loops.
    gates_.start(pack_);
    outputs_.start();
  }

  static LLTM_JIT_DEVICE void run(const SequenceForwardArgs& args, uint32_t shared, int set) {
    ForwardThread(args, shared, set).run();
  }

 private:
  LLTM_JIT_DEVICE void run() {
    begin();
    for (int step = 0; step < place_.steps; ++step) {
      if constexpr (kShape.grid) exchange_.turn(step, place_.steps);
      run_step(step);
    }
    if (place_.lane.finishes()) {
      if constexpr (!kCluster) outputs_.write();
      outputs_.write_state(cell_.state());
    }
    exchange_.finish();
  }

  static LLTM_JIT_DEVICE ExchangePlace exchange_at(const SequenceForwardArgs& args, int set,
                                                   uint32_t shared) {
    return exchange_place<Shape, 1, kGates>(args, set, shared, shared + kBarriers);
  }

  LLTM_JIT_DEVICE void begin() {
    exchange_.clear();
    row_sums_.clear();
    if (place_.lane.finishes()) cell_.begin(place_, elements_, args_, controls_);
    if constexpr (kShape.grid) {
      if (place_.lane.finishes()) {
        const Words<kWords> packs[] = {old_h_words<scalar_t>(place_, pack_, args_, controls_)};
        if constexpr (kControls) sent_ = packs[0];
        exchange_.send(-1, packs);
      }
    } else if constexpr (kSendsHalves) {
      send_old_h();
    } else {
      if (args_.old_h) copy_old_h<scalar_t, kControls>(place_, args_, exchange_);
    }
    gates_.begin();
    if constexpr (!kCluster) {
      gates_.read(0);
      gates_.arrange();
    }
    exchange_.start();
    if constexpr (kShape.loads_ahead()) weights_.load_ahead(operands_of(0, 0), loaded_);
    if constexpr (kControls && !kShape.grid) {
      sent_ = load_shared<kWords>(exchange_.own_part(-1));
    }
  }

  LLTM_JIT_DEVICE void run_step(int step) {
    if constexpr (kCluster) {  // while other blocks send
      gates_.read(step);
      gates_.arrange();
    }
    if constexpr (kPhases > 1) begin_step(step);
#pragma unroll 1
    for (int phase = 0; phase < kPhases; ++phase) run_phase(step, phase);
    if constexpr (kSendsHalves) weights_.set_inverse(1 / kScaleOfBounded);
    controls_.advance();
    if constexpr (!kCluster) {
      gates_.arrange();
      __syncthreads();
    }
  }

  LLTM_JIT_DEVICE void run_phase(int step, int phase) {
    typename Weights::Sums all;
    cell_.start_sums(place_.lane.finishes(phase), gates_.step().gates, all);
    const auto operands = operands_of(step, phase);
    typename Gates::Step gates;
    if constexpr (kReadsEarly) gates = gates_.step();
    if constexpr (kPhases == 1) begin_step(step);
    if constexpr (kShape.loads_ahead()) {
      weights_.multiply_loaded(all, operands, loaded_);
    } else if constexpr (kCluster) {
      if (step > 0) exchange_.wait(step - 1);
      // Or shuffles would check that all lanes are there.
      if constexpr (kShape.bytes == 4) __syncwarp();
      weights_.multiply(all, operands);
    } else {
      weights_.multiply(all, operands, [&] {  // while the tensor cores work
        if constexpr (kReadsEarly) gates_.read(step + 1);
        outputs_.save_cells(cell_.state());
        if (place_.lane.finishes()) outputs_.write(step > 0);
      });
    }
    float sums[kRowTiles][kGates][kElements];
    LLTM_JIT_UNROLLED2(n, kRowTiles, g, kGates) {
      LLTM_JIT_UNROLLED(e, kElements) {
        const auto& four = all[n][g];
        const float upper = four[e], lower = four[(e + 2) % 4];
        sums[n][g][e] = kElements == 4 || place_.lane.lane % 4 < 2 ? upper : lower;
      }
    }
    group_sum_(step, phase, sums);
    if constexpr (kShape.loads_ahead()) load_after(step, phase);
    if constexpr (!kReadsEarly) gates = gates_.step();
    if constexpr (!kReadsEarly && !kCluster) gates_.read(step + 1);
    if (place_.lane.finishes(phase)) {
      float output[kElements];
      cell_.finish(step, sums[0], gates.gates, controls_, row_sums_, output);
      outputs_.take(output, sums[0], controls_);
      if (!kCluster || step + 1 < place_.steps) send(step);
      if (kCluster && step > 0 && threadIdx.x == 0) exchange_.expect(step - 1);
      if constexpr (kCluster) outputs_.write();
    }
  }

  LLTM_JIT_DEVICE void begin_step(int step) {
    controls_.read_ahead(step);
    if constexpr (kControls == kGivenResets) {
      if (place_.lane.finishes()) {
        cell_.read_ahead(place_, elements_, args_, step, controls_);
        if (controls_.pack_resets_next()) {
          const void* h = of_reset<scalar_t>(place_, args_.reset_h, step + 1);
          next_h_ = words_of_h<scalar_t>(place_, pack_, h);
        }
      }
    }
    if constexpr (kCluster) outputs_.save_cells(cell_.state());
  }

  LLTM_JIT_DEVICE auto operands_of(int step, int phase) const {
    return exchange_.operands(step - 1) + phase * kRowTiles * kShape.tile_bytes();
  }
  // The first loads of the next phase, which are in flight while this phase is finished.
  LLTM_JIT_DEVICE void load_after(int step, int phase) {
    const bool last = phase + 1 == kPhases;
    if (last && step + 1 == place_.steps) return;
    weights_.load_ahead(last ? operands_of(step + 1, 0) : operands_of(step, phase + 1), loaded_);
  }

  // The initial h, which may be of any size.
  LLTM_JIT_DEVICE void send_old_h() {
    weights_.set_inverse(1);
    if (!args_.old_h) return;
    const auto* of_row = static_cast<const float*>(args_.old_h) + place_.recurrence.first_unit() +
                         int64_t(place_.lane.pack_row()) * place_.units();
    float largest = 0;
    if (place_.lane.pack_row() < place_.rows) {
      for (int unit = place_.lane.pack_unit() - place_.lane.unit; unit < place_.hidden;
           unit += SequenceShape::kUnits) {
        largest = fmaxf(largest, fabsf(of_row[unit]));
      }
    }
    const HalfScale scale = scale_of_two_rows(largest);
    weights_.set_inverse(scale.inverse);
    const auto h = old_h_words<scalar_t>(place_, pack_, args_, controls_);
    exchange_.send_halves(-1, 0, in_halves(__uint_as_float(h.value[0]), scale.scale));
  }
  LLTM_JIT_DEVICE void send(int step) {
    // Units that do not exist may be NaN, which weights of zero would not cancel.
    const bool exists = Shape::kPadded || place_.lane.pack_unit() < place_.hidden;
    const bool resets = controls_.pack_resets_next();
    Words<kWords> packs[1];
    LLTM_JIT_UNROLLED(i, kWords) {
      const uint32_t word = outputs_.word(i, sent_);
      const uint32_t reset = kControls == kGivenResets ? next_h_.value[i] : 0;
      packs[0].value[i] = !exists ? 0 : resets ? reset : word;
    }
    if constexpr (kControls) sent_ = packs[0];
    if constexpr (kShape.sends_tf32()) packs[0] = rounded_to_tf32(packs[0]);
    if constexpr (kSendsHalves) {
      const float h = __uint_as_float(packs[0].value[0]);
      exchange_.send_halves(step, 0, in_halves(h, kScaleOfBounded));
    } else {
      exchange_.send(step, packs);
    }
  }

  const SequenceForwardArgs& args_;
  LanePlace<Shape> place_;
  Exchange<Shape, 1> exchange_;
  Weights weights_;
  GroupSum<Shape, kGates> group_sum_;
  Gates gates_;
  Controls<Shape, (kControls > 0)> controls_;
  Elements<Shape> elements_;
  LanePack<Shape> pack_;
  ForwardCell<Cell, scalar_t, Shape, kControls> cell_;
  Outputs<Shape, scalar_t, kGates, kStates, kSaves> outputs_;
  typename Weights::Loaded loaded_;  // with phases
  Words<kWords> sent_{}, next_h_{};  // next_h_: of a row that is reset
  RowSums<Cell, Shape, SequenceShape::kForwardSums> row_sums_;
};

}  // namespace lltm_jit
