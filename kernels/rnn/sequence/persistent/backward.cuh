// The persistent kernel of the backward pass: the gradients of the gates.
//
// The gradient of a step's output is the product of the gradients of the next step's gates and the weights;
// products/gradients.cuh brings this product to the warps that need it. While a warp waits for it, the warp computes
// the rest of the step's derivative, or another warp has done so, Note [Derivatives beside].
#pragma once

#include "rnn/sequence/persistent/cell/backward.cuh"
#include "rnn/sequence/persistent/cell/beside.cuh"
#include "rnn/sequence/persistent/load/saved_steps.cuh"
#include "rnn/sequence/persistent/load/weights.cuh"
#include "rnn/sequence/persistent/products/gradients.cuh"
#include "rnn/sequence/persistent/sets.cuh"
#include "rnn/sequence/persistent/store/gate_gradients.cuh"

namespace lltm_jit {

// The work of one thread. Iteration 0 is the last step of the sequence. kAllStates: there are gradients of the cell
// states of all steps.
template <typename Cell, typename scalar_t, typename Shape, SequenceControls kControls,
          bool kAllStates>
class BackwardThread : ThreadFacts<Cell, Shape> {
  using Facts = ThreadFacts<Cell, Shape>;
  using Facts::kShape, Facts::kGates, Facts::kStates, Facts::kElements, Facts::kWords, Facts::kAdds,
      Facts::kCluster;
  static constexpr bool kSendsParts = kShape.sends_parts();
  static_assert(kShape.bytes == sizeof(scalar_t));
  using Gradients = std::conditional_t<kSendsParts, PartGradients<Shape, scalar_t, kGates>,
                                       AllGradients<Shape, scalar_t, kGates>>;
  using DerivedCell = BackwardCell<Cell, scalar_t, Shape, kControls, kAllStates>;
  using Prepared = typename DerivedCell::Prepared;
  using Steps = SavedSteps<Cell, scalar_t, Shape>;
  using Beside = DerivativesBeside<Cell, scalar_t, Shape, kControls, kAllStates>;
  using Deriving = DerivingThread<Cell, scalar_t, Shape, kControls, kAllStates>;

  // The gradients of the initial state have an iteration of their own. It is inside the same loop if receiving them
  // takes products, because these would otherwise be compiled twice.
  static constexpr int kIterationsAfter = kSendsParts ? 0 : 1;

  // Shared memory.
  static constexpr int kRing = Gradients::kBytes;
  static constexpr int kBeside =
      kRing + kShape.ring_bytes(SequenceShape::kStages, Steps::kPacks, Steps::kFloats);
  static constexpr int kBarriers = kBeside + Beside::kBytes;
  static constexpr int kRowSums = kBarriers + SequenceShape::kBarrierBytes;
  static_assert(kRowSums ==
                kShape.backward_bytes(kGates, kStates, CellTraits<Cell>::kParameters, kAdds));

 public:
  // A thread for one set of rows, of all recurrences.
  LLTM_JIT_DEVICE BackwardThread(const SequenceBackwardArgs& args, uint32_t shared, int set)
      : args_(args),
        place_(args, set),
        gradients_(place_.lane,
                   exchange_place<Shape, kGates, kGates>(args, set, shared, shared + kBarriers),
                   place_.steps,
                   [&](int gate, int unit, int k) {
                     return load_transposed_tile<scalar_t>(place_, args_, gate, unit, k);
                   }),
        saved_(place_, args, shared + kRing),
        controls_(place_.lane, place_.recurrence.control(args, args.steps - 1),
                  -place_.recurrence.stride(args.control_step_stride), args.steps, args.batch_size),
        elements_(place_),
        pack_(place_),
        beside_(place_.lane, shared + kBeside),
        made_(place_, args),
        row_sums_(place_.lane, place_.hidden, shared + kRowSums) {}

  // The work of a thread of the block.
  static LLTM_JIT_DEVICE void run(const SequenceBackwardArgs& args, uint32_t shared, int set) {
    if constexpr (kShape.derives_beside()) {
      if (threadIdx.x >= kShape.threads()) {
        return Deriving(args, shared, set, kRing, kBeside).run();
      }
    }
    BackwardThread(args, shared, set).run();
  }

 private:
  LLTM_JIT_DEVICE void run() {
    begin();
    for (int iteration = 0; iteration < place_.steps + kIterationsAfter; ++iteration) {
      if constexpr (kShape.grid) gradients_.turn(iteration);
      run_iteration(iteration);
    }
    if constexpr (kIterationsAfter == 0) {
      float grad_h[kElements];
      if (args_.grad_old_h && receives()) gradients_.receive(place_.steps, 0, grad_h, [] {});
      if (place_.lane.finishes()) cell_.write(elements_, args_, of_resets(place_.steps), grad_h);
    }
    gradients_.finish();
  }

  LLTM_JIT_DEVICE void begin() {
    gradients_.clear();
    row_sums_.clear();
    cell_.begin(place_, elements_, args_);
    if constexpr (!kShape.derives_beside()) saved_.begin(elements_, pack_);
    gradients_.start();
  }

  // In a block or a grid, all warps make sums for the warps that finish.
  LLTM_JIT_DEVICE bool receives() const { return !kSendsParts || place_.lane.finishes(); }

  LLTM_JIT_DEVICE void run_iteration(int iteration) {
    Prepared prepared;
    const bool has_step = kIterationsAfter == 0 || iteration < place_.steps;
    if constexpr (kShape.helped()) {
      if (has_step) saved_.help(iteration);
    }
    if (kCluster && has_step) prepare(iteration, &prepared);
    if (has_step) controls_.read_ahead(iteration);
#pragma unroll 1
    for (int phase = 0; phase < kShape.phases; ++phase) {
      float grad_h[kElements];
      if (receives() && (has_step || !kCluster || args_.grad_old_h)) {
        gradients_.receive(iteration, phase, grad_h,
                           [&] {  // one block: while the tensor cores work
                             if (kShape.derives_beside() || has_step) prepare(iteration, &prepared);
                             if (place_.lane.finishes() && iteration > 0) {
                               made_.write(place_, pack_, iteration - 1);
                             }
                           });
      }
      if (!has_step) {
        if (place_.lane.finishes(phase)) {
          cell_.write(elements_, args_, of_resets(iteration), grad_h);
        }
        continue;
      }
      if (place_.lane.finishes(phase)) finish(iteration, grad_h, prepared);
      if (!kCluster || iteration + 1 < place_.steps || args_.grad_old_h) {
        gradients_.spread(iteration);
      }
      if (kCluster && place_.lane.finishes(phase)) made_.write(place_, pack_, iteration);
    }
    if (has_step) controls_.advance();
  }

  LLTM_JIT_DEVICE void prepare(int iteration, Prepared* prepared) {
    // Separate from has_step, or ptxas spills more of float's weights.
    if constexpr (kShape.derives_beside()) return beside_.load(iteration, *prepared);
    if (!keep(place_.lane.finishes())) return;
    if constexpr (kAllStates) saved_.read_grad_cells(iteration, prepared->grad_cells);
    saved_.wait();
    cell_.prepare(saved_, controls_, place_, elements_, args_, iteration, prepared);
    if constexpr (CellTraits<Cell>::kNormalises) {
      cell_.normalise(iteration, row_sums_, prepared);
    }
    saved_.next(iteration);
  }

  LLTM_JIT_DEVICE void finish(int iteration, const float (&from_gates)[kElements],
                              const Prepared& prepared) {
    float grads[kGates][kElements], grads_of_h[kGates][kElements];
    cell_.finish(iteration, from_gates, prepared, controls_, of_resets(iteration), row_sums_, grads,
                 grads_of_h);
    made_.take(pack_, grads, grads_of_h);
    put(iteration);
  }

  LLTM_JIT_DEVICE ResetGradients<Shape> of_resets(int iteration) const {
    return {place_, elements_, args_, iteration};
  }

  LLTM_JIT_DEVICE void put(int iteration) const {
    // Units that do not exist may be NaN, which weights of zero would not cancel.
    const bool exists = Shape::kPadded || place_.lane.pack_unit() < place_.hidden;
    const bool zero = !exists || (kControls == kZeroResets && controls_.pack_resets());
    typename Gradients::Packs packs;
    LLTM_JIT_UNROLLED(g, kGates) {
      LLTM_JIT_UNROLLED(i, kWords) packs[g].value[i] = zero ? 0 : made_.packs()[g].value[i];
      if constexpr (kShape.sends_tf32()) packs[g] = rounded_to_tf32(packs[g]);
    }
    gradients_.put(iteration, packs);
  }

  const SequenceBackwardArgs& args_;
  LanePlace<Shape> place_;
  Gradients gradients_;
  Steps saved_;
  Controls<Shape, (kControls > 0)> controls_;
  Elements<Shape> elements_;
  LanePack<Shape> pack_;
  Beside beside_;
  DerivedCell cell_;
  GateGradients<Shape, scalar_t, kGates, kAdds> made_;
  RowSums<Cell, Shape, SequenceShape::kBackwardSums> row_sums_;
};

}  // namespace lltm_jit
