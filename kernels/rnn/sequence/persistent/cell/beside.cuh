// Derivatives of steps that other warps compute.
//
// Note [Derivatives beside]
// In one block, the derivative of a step of floats takes longer than its products. So in small blocks each finishing
// warp has another warp beside it, which reads the step's inputs and computes the derivative one iteration ahead. Both
// meet at the barrier that every iteration has.
#pragma once

#include "rnn/sequence/persistent/cell/backward.cuh"
#include "rnn/sequence/persistent/exchange/grid.cuh"
#include "rnn/sequence/persistent/load/saved_steps.cuh"

namespace lltm_jit {

// Two iterations' derivatives in shared memory.
template <typename Cell, typename scalar_t, typename Shape, SequenceControls kControls,
          bool kAllStates>
class DerivativesBeside : ThreadFacts<Cell, Shape> {
  using Facts = ThreadFacts<Cell, Shape>;
  using Facts::kShape, Facts::kGates, Facts::kStates, Facts::kElements, Facts::kAdds;
  using T = GateNumber<scalar_t>;
  using Prepared = typename BackwardCell<Cell, scalar_t, Shape, kControls, kAllStates>::Prepared;
  static constexpr int kMost =
      kShape.derivative_numbers(kGates, kStates, CellTraits<Cell>::kParameters, kAdds);
  static constexpr int kNumberBytes = 32 * 4 * kElements;

 public:
  static constexpr int kBytes = kShape.derivative_bytes(kMost);

  LLTM_JIT_DEVICE DerivativesBeside(const Lane<Shape>& lane, uint32_t shared)
      : shared_(keep(shared +
                     (lane.split * kShape.groups + lane.group) * (kBytes / 2 / kShape.warps()) +
                     lane.lane * 4 * kElements)) {}

  LLTM_JIT_DEVICE void store(int iteration, Prepared& prepared) const {
    int at = 0;
    const auto store_number = [&](float (&numbers)[kElements]) {
      store_shared(place(iteration, at++), to_words<float>(numbers));
    };
    for_numbers(prepared, store_number);
  }
  LLTM_JIT_DEVICE void load(int iteration, Prepared& prepared) const {
    CellStep<Cell, NoFloat> nothing{};
    const CellDerivative<Cell, NoFloat> like(nothing);
    LLTM_JIT_UNROLLED(e, kElements) prepared.derivatives[e] = CellDerivative<Cell, T>(like);
    int at = 0;
    const auto load_number = [&](float (&numbers)[kElements]) {
      to_floats<float>(load_shared<kElements>(place(iteration, at++)), numbers);
    };
    for_numbers(prepared, load_number);
  }

 private:
  // Calls function(numbers), which may change them, for all numbers of the elements.
  template <typename Function>
  static LLTM_JIT_DEVICE void for_numbers(Prepared& prepared, const Function& function) {
    function(prepared.grad_output);
    if constexpr (kAllStates && kStates > 1) {
      LLTM_JIT_UNROLLED(k, kStates - 1) function(prepared.grad_cells[k]);
    }
    float numbers[kMost][kElements];
    int count = 0;
    LLTM_JIT_UNROLLED(e, kElements) {
      count = 0;
      prepared.derivatives[e].for_numbers([&](T& number) { numbers[count++][e] = number.value; });
    }
    LLTM_JIT_UNROLLED(i, kMost) {
      if (i < count) function(numbers[i]);
    }
    LLTM_JIT_UNROLLED(e, kElements) {
      count = 0;
      prepared.derivatives[e].for_numbers([&](T& number) { number = T(numbers[count++][e]); });
    }
  }
  LLTM_JIT_DEVICE uint32_t place(int iteration, int number) const {
    return shared_ + (iteration & 1) * (kBytes / 2) + number * kNumberBytes;
  }

  uint32_t shared_;  // of this lane
};

// The work of one thread of another warp.
template <typename Cell, typename scalar_t, typename Shape, SequenceControls kControls,
          bool kAllStates>
class DerivingThread : ThreadFacts<Cell, Shape> {
  using DerivedCell = BackwardCell<Cell, scalar_t, Shape, kControls, kAllStates>;
  using Beside = DerivativesBeside<Cell, scalar_t, Shape, kControls, kAllStates>;

 public:
  // ring, beside: where in shared memory.
  LLTM_JIT_DEVICE DerivingThread(const SequenceBackwardArgs& args, uint32_t shared, int set,
                                 int ring, int beside)
      : args_(args),
        place_(args, set),
        exchange_(place_.lane, {shared, 0, nullptr, nullptr}),
        beside_(place_.lane, shared + beside),
        saved_(place_, args, shared + ring),
        controls_(place_.lane, place_.recurrence.control(args, args.steps - 1),
                  -place_.recurrence.stride(args.control_step_stride), args.steps, args.batch_size),
        elements_(place_),
        pack_(place_) {}

  LLTM_JIT_DEVICE void run() {
    exchange_.clear();
    cell_.begin(place_, elements_, args_);
    saved_.begin(elements_, pack_);
    derive(0);
    exchange_.start();
    for (int iteration = 0; iteration < place_.steps; ++iteration) {
      if (iteration + 1 < place_.steps) derive(iteration + 1);
      sync_block(Shape::kShape.backward_threads());
    }
  }

 private:
  LLTM_JIT_DEVICE void derive(int iteration) {
    typename DerivedCell::Prepared prepared;
    controls_.read_ahead(iteration);
    if constexpr (kAllStates) saved_.read_grad_cells(iteration, prepared.grad_cells);
    saved_.wait();
    cell_.prepare(saved_, controls_, place_, elements_, args_, iteration, &prepared);
    saved_.next(iteration);
    beside_.store(iteration, prepared);
    controls_.advance();
  }

  const SequenceBackwardArgs& args_;
  LanePlace<Shape> place_;
  ClusterExchange<Shape, Cell::kGates> exchange_;
  Beside beside_;
  SavedSteps<Cell, scalar_t, Shape> saved_;
  Controls<Shape, (kControls > 0)> controls_;
  Elements<Shape> elements_;
  LanePack<Shape> pack_;
  DerivedCell cell_;
};

}  // namespace lltm_jit
