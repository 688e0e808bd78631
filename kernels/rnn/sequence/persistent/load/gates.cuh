// The input's part of the gates, which a finishing lane reads some steps ahead.
#pragma once

#include "rnn/sequence/persistent/lanes/place.cuh"
#include "rnn/sequence/persistent/load/read_ahead.cuh"

namespace lltm_jit {

template <typename Shape, typename scalar_t, int kGates>
class InputGates {
  static constexpr SequenceShape kShape = Shape::kShape;

 public:
  // Of a step: packs, and once arranged, element by element.
  struct Step {
    Words<kShape.words()> gates[kGates];
  };

  LLTM_JIT_DEVICE InputGates(const LanePlace<Shape>& place, const SequenceArray& gates,
                             uint32_t shared)
      : place_(place), ring_(place.lane, shared), array_(gates) {}
  LLTM_JIT_DEVICE void start(const LanePack<Shape>& pack) {
    exists_ = pack.exists();
    from_ = place_.first_pack(array_, place_.recurrence.first_gate());
    step_bytes_.start(place_, array_.step_stride);
  }

  // All but one of the steps that fit in the ring; read() brings the others.
  LLTM_JIT_DEVICE void begin() {
    for (int i = 0; i < kShape.forward_stages() - 1; ++i) bring(i);
  }
  LLTM_JIT_DEVICE void read(int step) {
    if (!place_.lane.finishes()) return;
    ring_.wait();
    LLTM_JIT_UNROLLED(g, kGates) step_.gates[g] = ring_.pack(g);
    bring(step + kShape.forward_stages() - 1);
  }
  LLTM_JIT_DEVICE void arrange() {
    if (!place_.lane.finishes()) return;
    LLTM_JIT_UNROLLED(g, kGates) step_.gates[g] = transpose<scalar_t>(step_.gates[g]);
  }
  // The gates that were read last.
  LLTM_JIT_DEVICE const Step& step() const { return step_; }

 private:
  LLTM_JIT_DEVICE void bring(int step) {
    if (!place_.lane.finishes()) return;
    if (step < place_.steps) {
      LLTM_JIT_UNROLLED(g, kGates) ring_.bring_pack(g, from_ + place_.gate_bytes(g), exists_);
    }
    ring_.commit();
    from_ += step_bytes_(place_, array_.step_stride);
  }

  LanePlace<Shape> place_;
  Ring<Shape, kGates, 0, kShape.forward_stages()> ring_;
  const SequenceArray& array_;
  const char* from_;  // the lane's pack of the step that is brought next
  StepBytes<Shape> step_bytes_;
  bool exists_;
  Step step_;
};

}  // namespace lltm_jit
