// Which recurrence a set of rows belongs to, and where its parts of the arrays are: Note [Recurrences] (kernels.h).
#pragma once

#include "rnn/sequence/kernels.h"
#include "rnn/sequence/persistent/lanes/lane.cuh"

namespace lltm_jit {

// With a single recurrence the compiler knows all of this.
template <typename Shape>
class Recurrence {
  static constexpr bool kSeveral = Shape::kSeveral;

 public:
  // set: counted over all recurrences, one after the other.
  LLTM_JIT_DEVICE Recurrence(const SequenceSizes& sizes, int set) : rows_(set) {
    if constexpr (kSeveral) {
      constexpr SequenceShape kShape = Shape::kShape;
      const int sets = static_cast<int>(kShape.sets(sizes.batch_size, 1));
      const int hidden = static_cast<int>(sizes.hidden_size);
      const int gate_size = Shape::kPadded ? static_cast<int>(sizes.gate_size()) : hidden;
      index_ = set / sets;
      rows_ = set % sets;
      direction_ = keep(index_ / sizes.heads);
      const int before = direction_ * (sizes.gates - 1) * sizes.heads;
      first_unit_ = keep(index_ * hidden);
      if constexpr (Shape::kPadded) first_of_padded_ = keep(index_ * gate_size);
      first_gate_ = keep((before + index_) * gate_size);
      if (sizes.layers > 0) direction_ = 0;
    }
  }

  // The set of rows of the batch.
  LLTM_JIT_DEVICE int rows() const { return rows_; }
  // Where in a row its units begin, and its first gate.
  LLTM_JIT_DEVICE int first_unit() const { return first_unit_; }
  LLTM_JIT_DEVICE int first_gate() const { return first_gate_; }
  // In a row with room for padding between recurrences.
  LLTM_JIT_DEVICE int first_of_padded() const {
    return Shape::kPadded ? first_of_padded_ : first_unit_;
  }

  template <typename Number, typename Args>
  LLTM_JIT_DEVICE const Number* weights(const Args& args) const {
    return static_cast<const Number*>(args.weights) +
           (kSeveral ? index_ * args.recurrence_stride : 0);
  }
  template <typename Args>
  LLTM_JIT_DEVICE const uint8_t* control(const Args& args, int64_t step) const {
    return args.control + (kSeveral ? direction_ * args.control_direction_stride : 0) +
           place_of(step, args.steps) * args.control_step_stride;
  }
  // A step's place in memory, and the distance from there to the next one.
  LLTM_JIT_DEVICE int64_t place_of(int64_t step, int64_t steps) const {
    return kSeveral && direction_ ? steps - 1 - step : step;
  }
  LLTM_JIT_DEVICE int64_t stride(int64_t step_stride) const {
    return kSeveral && keep(direction_) ? -step_stride : step_stride;
  }

 private:
  int rows_, index_ = 0, first_unit_ = 0, first_gate_ = 0, first_of_padded_ = 0;
  uint32_t direction_ = 0;
};

}  // namespace lltm_jit
