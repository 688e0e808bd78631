// The data that a backward pass reads of each step, some steps ahead.
#pragma once

#include "rnn/sequence/persistent/lanes/place.cuh"
#include "rnn/sequence/persistent/load/read_ahead.cuh"

namespace lltm_jit {

// Iteration 0 is the last step of the sequence.
template <typename Cell, typename scalar_t, typename Shape>
class SavedSteps : ThreadFacts<Cell, Shape> {
  using Facts = ThreadFacts<Cell, Shape>;
  using Facts::kShape, Facts::kGates, Facts::kStates, Facts::kElements, Facts::kAdds;
  // If a group has warps that do not finish, some of them load for the finishing warps.
  static constexpr bool kHelped = kShape.helped();

 public:
  static constexpr int kPacks = kShape.backward_packs(kGates, kAdds);
  static constexpr int kFloats = kShape.backward_floats(kStates);
  static constexpr int kGradOutput = 0, kSaved = 1, kInputs = kSaved + kGates;
  static constexpr int kOldOutput = kPacks - 1;

  LLTM_JIT_DEVICE SavedSteps(const LanePlace<Shape>& place, const SequenceBackwardArgs& args,
                             uint32_t shared)
      : place_(place),
        args_(args),
        ring_(place.lane, shared),
        grad_output_(args.grad_output),
        output_(args.output),
        saved_gates_(args.saved_gates),
        gates_(args.gates),
        cells_(args.saved_cells) {}

  // All but one of the iterations that fit in the ring; next() brings the others.
  LLTM_JIT_DEVICE void begin(const Elements<Shape>& elements, const LanePack<Shape>& pack) {
    elements_ = elements;
    exists_ = pack.exists();
    grad_output_.start(place_, 0);
    output_.start(place_, 1);
    saved_gates_.start(place_, 0);
    if constexpr (!kAdds) gates_.start(place_, 0);
    if constexpr (kStates > 1) cells_.start(place_, 0);
    for (int i = 0; i < SequenceShape::kStages - 1; ++i) bring(i);
    if constexpr (kHelped) {
      if (brings()) ring_.template arrange<scalar_t, 0>();
    }
  }
  // For loads by other warps: at the beginning of an iteration.
  LLTM_JIT_DEVICE void help(int iteration) {
    if (brings()) {
      ring_.template arrange<scalar_t, 1>();
      next(iteration);
    }
  }
  // What finishing lanes read, one iteration after the other.
  LLTM_JIT_DEVICE void wait() const {
    if constexpr (!kHelped) ring_.wait();
  }
  LLTM_JIT_DEVICE void read(int pack, float (&values)[kElements]) const {
    auto words = ring_.pack(pack);
    if constexpr (!kHelped) words = transpose<scalar_t>(words);
    to_floats<scalar_t>(words, values);
  }
  LLTM_JIT_DEVICE float cell(int k, int e) const { return ring_.number(k * kElements + e); }
  // The given gradients of the cell states before a step. They are not loaded ahead, because they arrive while the
  // gates' gradients arrive.
  template <int kCells>
  LLTM_JIT_DEVICE void read_grad_cells(int iteration, float (&grads)[kCells][kElements]) const {
    const auto* of_step = args_.grad_saved_cells.as<float>() +
                          place_.step_of(iteration) * args_.grad_saved_cells.step_stride;
    LLTM_JIT_UNROLLED2(k, kStates - 1, e, kElements) {
      grads[k][e] = elements_.template read<float>(of_step, k, e);
    }
  }
  LLTM_JIT_DEVICE void next(int iteration) { bring(iteration + SequenceShape::kStages - 1); }

 private:
  LLTM_JIT_DEVICE bool brings() const {
    constexpr int kFinishers = kShape.finishers();
    if constexpr (!kHelped) return place_.lane.finishes();
    return place_.lane.split >= kFinishers && place_.lane.split < 2 * kFinishers;
  }
  LLTM_JIT_DEVICE void bring(int iteration) {
    if (!brings()) return ring_.skip();
    if (iteration < place_.steps) {
      const auto bring_pack = [&](int i, const char* from, bool exists = true) {
        ring_.bring_pack(i, from, exists_ && exists);
      };
      bring_pack(kGradOutput, grad_output_.next(place_, iteration), args_.grad_output.data);
      const char* saved_gates = saved_gates_.next(place_, iteration);
      const char* gates = kAdds ? nullptr : gates_.next(place_, iteration);
      LLTM_JIT_UNROLLED(g, kGates) {
        bring_pack(kSaved + g, saved_gates + place_.gate_bytes(g));
        if constexpr (!kAdds) bring_pack(kInputs + g, gates + place_.gate_bytes(g));
      }
      if constexpr (Shape::kPadded) {
        bring_pack(kOldOutput, output_.next(place_, iteration + 1));
      } else {
        const SequenceArray old_h{args_.old_h, 0, place_.units()};
        const bool first = iteration + 1 == place_.steps;
        bring_pack(kOldOutput,
                   first ? place_.pack(old_h, iteration, place_.recurrence.first_of_padded())
                         : output_.next(place_, iteration + 1),
                   !first || args_.old_h);
      }
      if constexpr (kStates > 1) bring_cells(iteration);
    }
    ring_.commit();
  }
  LLTM_JIT_DEVICE void bring_cells(int iteration) {
    const auto* of_step = reinterpret_cast<const float*>(cells_.next(place_, iteration));
    LLTM_JIT_UNROLLED2(k, kStates - 1, e, kElements) {
      const bool exists = elements_.exists(e);
      ring_.bring_float(k * kElements + e, of_step + elements_.place(k, e), exists);
    }
  }

  LanePlace<Shape> place_;
  const SequenceBackwardArgs& args_;
  Ring<Shape, kPacks, kFloats, SequenceShape::kStages> ring_;
  template <Kept kWhat>
  using Pointer = StepPointer<Shape, kWhat, SequenceArray>;
  Pointer<Kept::Units> grad_output_, output_;
  Pointer<Kept::Gates> saved_gates_, gates_;
  Pointer<Kept::Cells> cells_;
  Elements<Shape> elements_;
  bool exists_;  // the lane's pack
};

}  // namespace lltm_jit
