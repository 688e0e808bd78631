// Where a lane's numbers are in the arrays of a sequence.
#pragma once

#include "rnn/sequence/cell.h"
#include "rnn/sequence/persistent/lanes/recurrence.cuh"

namespace lltm_jit {

// What a thread's classes know of their cell and shape.
template <typename Cell, typename Shape>
struct ThreadFacts {
  static constexpr SequenceShape kShape = Shape::kShape;
  static constexpr int kGates = Cell::kGates, kStates = Cell::kStates;
  static constexpr int kElements = kShape.elements(), kWords = kShape.words();
  static constexpr int kHalves = kElements <= 2 ? 1 : 2;  // units that a lane's elements are of
  static constexpr bool kAdds = CellAddsGates<Cell>::value, kCluster = kShape.blocks > 1;
};

// The rows and units of a lane, and their places in the arrays.
template <typename Shape>
struct LanePlace {
  const SequenceSizes& sizes;
  int rows, hidden;
  int gate_size;    // from a gate's first unit to that of the next one, of the weights
  int gate_stride;  // and of the other arrays
  int steps;
  Recurrence<Shape> recurrence;
  Lane<Shape> lane;

  // set: the set of rows, counted over all recurrences.
  LLTM_JIT_DEVICE LanePlace(const SequenceSizes& sizes, int set)
      : sizes(sizes),
        rows(static_cast<int>(sizes.batch_size)),
        hidden(static_cast<int>(keep(static_cast<uint32_t>(sizes.hidden_size)))),
        gate_size(Shape::kPadded ? keep(static_cast<uint32_t>(sizes.gate_size())) : hidden),
        gate_stride(Shape::kSeveral ? keep(static_cast<uint32_t>(sizes.gate_stride())) : gate_size),
        steps(static_cast<int>(sizes.steps)),
        recurrence(sizes, set),
        lane(recurrence.rows()) {}

  // Of a row, those of all recurrences.
  LLTM_JIT_DEVICE int units() const {
    return Shape::kSeveral ? static_cast<int>(sizes.units()) : hidden;
  }

  // Whether the row and the units of the lane's pack exist.
  LLTM_JIT_DEVICE bool has_pack() const {
    return lane.pack_row() < rows && lane.pack_unit() < gate_size;
  }

  // Backward: the place of an iteration's step in memory, and of the lane's pack there, in an array where the
  // recurrence's row begins with element `first`.
  LLTM_JIT_DEVICE int64_t step_of(int iteration) const {
    return recurrence.place_of(steps - 1 - static_cast<int>(keep(iteration)), steps);
  }
  template <typename Array>
  LLTM_JIT_DEVICE auto* pack(const Array& array, int iteration, int first) const {
    return array.template as<char>() +
           kBytes * (step_of(iteration) * array.step_stride + lane.pack_row() * array.row_stride +
                     first + lane.pack_unit());
  }
  // Forward: the same in the first computed step; an existing pack if the lane has none.
  template <typename Array>
  LLTM_JIT_DEVICE auto* first_pack(const Array& array, int first) const {
    const int64_t row = has_pack() ? lane.pack_row() : 0, unit = has_pack() ? lane.pack_unit() : 0;
    return array.template as<char>() +
           kBytes * (recurrence.place_of(0, sizes.steps) * array.step_stride +
                     row * array.row_stride + first + unit);
  }
  // From there to another gate, in bytes.
  LLTM_JIT_DEVICE int gate_bytes(int gate) const { return kBytes * gate * gate_stride; }

 private:
  static constexpr int kBytes = Shape::kShape.bytes;
};

// Backward: the place of a lane's pack of units or of gates, or of a step's cell states, in one iteration after the other.
enum class Kept { Units, Gates, Cells };
template <typename Shape, Kept kWhat, typename Array>
class StepPointer {
  static constexpr bool kGoesOn = Shape::kShape.keeps_pointers();  // or computed each time
  using Pointer = decltype(std::declval<Array>().template as<char>());

 public:
  LLTM_JIT_DEVICE explicit StepPointer(const Array& array) : array_(array) {}

  LLTM_JIT_DEVICE void start(const LanePlace<Shape>& place, int iteration) {
    if constexpr (!kGoesOn) return;
    at_ = of(place, iteration);
    const int64_t stride = place.recurrence.stride(array_.step_stride);
    step_ = (kWhat == Kept::Cells ? 4 : Shape::kShape.bytes) * stride;
  }
  // For the first iteration, and at each call for the next one.
  LLTM_JIT_DEVICE Pointer next(const LanePlace<Shape>& place, int iteration) {
    if constexpr (!kGoesOn) return of(place, iteration);
    const Pointer here = at_;
    at_ -= step_;
    return here;
  }

 private:
  LLTM_JIT_DEVICE Pointer of(const LanePlace<Shape>& place, int iteration) const {
    const auto& of = place.recurrence;
    if constexpr (kWhat == Kept::Units) return place.pack(array_, iteration, of.first_of_padded());
    if constexpr (kWhat == Kept::Gates) return place.pack(array_, iteration, of.first_gate());
    const int64_t steps = place.step_of(iteration) * array_.step_stride;
    return array_.template as<char>() + 4 * steps;
  }

  const Array& array_;
  Pointer at_;
  int64_t step_;
};

// Forward: the distance from a step to the next one, in bytes; kept in one block, where all wait for the warp that
// computes it.
template <typename Shape, int kNumberBytes = Shape::kShape.bytes>
class StepBytes {
  static constexpr bool kKept = Shape::kShape.blocks == 1;

 public:
  LLTM_JIT_DEVICE void start(const LanePlace<Shape>& place, int64_t step_stride) {
    if constexpr (kKept) bytes_ = kNumberBytes * place.recurrence.stride(step_stride);
  }
  LLTM_JIT_DEVICE int64_t operator()(const LanePlace<Shape>& place, int64_t step_stride) const {
    return kKept ? bytes_ : kNumberBytes * place.recurrence.stride(step_stride);
  }

 private:
  int64_t bytes_;
};

// The places of a lane's elements in an array of [rows, units].
template <typename Shape>
struct Elements {
  int units;           // of a row
  int64_t first, all;  // of an array
  bool row_exists[2];  // rows of even and of odd elements, with this lane's units
  bool last_exists;    // the unit of elements 2 and 3, where single units may not exist

  Elements() = default;
  LLTM_JIT_DEVICE explicit Elements(const LanePlace<Shape>& place)
      : units(place.units()),
        first(int64_t(place.lane.row_of(0)) * units + place.recurrence.first_unit() +
              place.lane.unit_of(0)),
        all(int64_t(place.rows) * units),
        row_exists{place.lane.row_of(0) < place.rows && place.lane.unit_of(0) < place.hidden,
                   place.lane.row_of(1) < place.rows && place.lane.unit_of(0) < place.hidden},
        last_exists(place.lane.unit_of(2) < place.hidden) {}

  // The same in arrays that have one direction after the other.
  LLTM_JIT_DEVICE Elements apart(const LanePlace<Shape>& place) const {
    Elements other = *this;
    other.units = units / 2;
    const int first_unit = place.recurrence.first_unit();
    other.first -= int64_t(place.lane.row_of(0)) * other.units;
    if (first_unit >= other.units) other.first += int64_t(place.rows - 1) * other.units;
    return other;
  }

  LLTM_JIT_DEVICE bool exists(int e) const {
    return row_exists[e % 2] && (!Shape::kPadded || e < 2 || last_exists);
  }
  // In array k of several, and from the lane's first element of the first array.
  LLTM_JIT_DEVICE int64_t place(int k, int e) const { return first + beside(k, e); }
  LLTM_JIT_DEVICE int64_t beside(int k, int e) const { return k * all + e % 2 * units + e / 2 * 2; }
  template <typename Number>
  LLTM_JIT_DEVICE float read(const void* arrays, int k, int e) const {
    if (!arrays || !exists(e)) return 0;
    return to_opmath(static_cast<const Number*>(arrays)[place(k, e)]);
  }
  template <typename Number>
  LLTM_JIT_DEVICE void write(void* arrays, int k, int e, float value) const {
    if (exists(e)) static_cast<Number*>(arrays)[place(k, e)] = from_opmath<Number>(value);
  }
};

// The first element of a state that a reset before a step sets, or of the state's gradient; null if there is none.
template <typename Number, typename Shape, typename Array>
LLTM_JIT_DEVICE auto* of_reset(const LanePlace<Shape>& place, const Array& array, int64_t step) {
  const int64_t at = place.recurrence.place_of(step, place.steps) * array.step_stride;
  return array.data ? array.template as<Number>() + at : nullptr;
}

// A lane's elements of the states that resets before a step set. Only rows that are reset are read.
template <typename scalar_t, int kStates, typename Shape, typename Args, typename Resets>
LLTM_JIT_DEVICE void read_reset(const LanePlace<Shape>& place, const Elements<Shape>& elements,
                                const Args& args, int64_t step, const Resets& resets,
                                float (&state)[kStates][Shape::kShape.elements()]) {
  LLTM_JIT_UNROLLED(e, Shape::kShape.elements()) {
    if (!resets(e)) continue;
    state[0][e] =
        elements.template read<scalar_t>(of_reset<scalar_t>(place, args.reset_h, step), 0, e);
    LLTM_JIT_UNROLLED_FROM(k, 1, kStates) {
      state[k][e] =
          elements.template read<float>(of_reset<float>(place, args.reset_cells, step), k - 1, e);
    }
  }
}

// A lane's pack, some of whose units may not exist if gates are padded.
template <typename Shape>
class LanePack {
  static constexpr int kWords = Shape::kShape.words();
  static constexpr bool kHalves = Shape::kShape.bytes == 2;

 public:
  LLTM_JIT_DEVICE explicit LanePack(const LanePlace<Shape>& place) {
    if constexpr (Shape::kPadded) {
      left_ = keep(place.hidden - place.lane.pack_unit());
      LLTM_JIT_UNROLLED(i, kWords) {
        masks_[i] = keep(left_ > 2 * i + 1 ? ~0u : left_ > 2 * i ? 0xffffu : 0);
      }
    }
    exists_ = place.has_pack();
  }
  // Whether its row and units exist.
  LLTM_JIT_DEVICE bool exists() const { return exists_; }
  // The units from its first one on.
  LLTM_JIT_DEVICE int left() const { return left_; }

  // Zeros for units that do not exist: they may be NaN, which weights of zero would not cancel.
  LLTM_JIT_DEVICE void cut(Words<kWords>& w) const {
    if constexpr (Shape::kPadded) {
      LLTM_JIT_UNROLLED(i, kWords) {
        w.value[i] = kHalves ? w.value[i] & masks_[i] : left_ > i ? w.value[i] : 0;
      }
    }
  }
  // Writes the existing units to a row of hidden_size units.
  LLTM_JIT_DEVICE void store(void* target, const Words<kWords>& w, int64_t hidden_size) const {
    if (kHalves && hidden_size % 2 == 0) {
      store_first<uint32_t>(target, w, left_ / 2);
    } else {
      store_first<std::conditional_t<kHalves, uint16_t, uint32_t>>(target, w, left_);
    }
  }

 private:
  bool exists_;
  int left_ = 0;
  uint32_t masks_[kWords]{};  // of halves
};

}  // namespace lltm_jit
