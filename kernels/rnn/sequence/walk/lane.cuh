// A lane of the kernels for cells without a product: its numbers in the arrays, and the map of its steps.
#pragma once

#include "core/launch/block.cuh"
#include "rnn/sequence/numbers/gate_float.cuh"
#include "rnn/sequence/walk/kernels.h"
#include "rnn/sequence/walk/map.h"

namespace lltm_jit {

// The map of the states over some steps; a reset among them cuts off the earlier states.
template <typename Cell, typename T>
struct WalkMap {
  static constexpr int kStates = Cell::kStates, kNumbers = kStates * (kStates + 1);
  T factors[kStates][kStates], sums[kStates];
  bool cuts;

  static LLTM_JIT_DEVICE WalkMap identity() {
    WalkMap map;
    map.cuts = false;
    LLTM_JIT_UNROLLED(s, kStates) {
      map.sums[s] = T(0);
      LLTM_JIT_UNROLLED(of, kStates) map.factors[s][of] = T(s == of ? 1 : 0);
    }
    return map;
  }

  LLTM_JIT_DEVICE void apply_to(T (&states)[kStates]) const {
    T found[kStates];
    LLTM_JIT_UNROLLED(s, kStates) {
      T sum = sums[s];
      LLTM_JIT_UNROLLED(of, kStates) sum = sum + factors[s][of] * states[of];
      found[s] = cuts ? sums[s] : sum;
    }
    LLTM_JIT_UNROLLED(s, kStates) states[s] = found[s];
  }

  // Makes this the map of its steps and then those of `next`.
  LLTM_JIT_DEVICE void append(const WalkMap& next) {
    next.apply_to(sums);
    T column[kStates];
    LLTM_JIT_UNROLLED(of, kStates) {
      LLTM_JIT_UNROLLED(s, kStates) column[s] = factors[s][of];
      LLTM_JIT_UNROLLED(s, kStates) {
        T sum = next.factors[s][0] * column[0];
        LLTM_JIT_UNROLLED_FROM(k, 1, kStates) sum = sum + next.factors[s][k] * column[k];
        factors[s][of] = sum;
      }
    }
    cuts = cuts || next.cuts;
  }

  // Calls function(index, number) for each number but `cuts`.
  template <typename Function>
  LLTM_JIT_DEVICE void for_numbers(const Function& function) {
    LLTM_JIT_UNROLLED(s, kStates) {
      LLTM_JIT_UNROLLED(of, kStates) function(s * (kStates + 1) + of, factors[s][of]);
      function(s * (kStates + 1) + kStates, sums[s]);
    }
  }
};

// Neighbouring elements as they were loaded, in whole registers until they are used.
template <typename element_t, int kCount>
struct alignas(sizeof(element_t) * kCount) Words {
  using Word = std::conditional_t<sizeof(element_t) * kCount % 4 == 0, uint32_t, uint16_t>;
  static constexpr int kWords = sizeof(element_t) * kCount / sizeof(Word);
  Word words[kWords];

  LLTM_JIT_DEVICE opmath_t<element_t> operator[](int index) const {
    element_t elements[kCount];
    memcpy(elements, words, sizeof(elements));
    return to_opmath(elements[index]);
  }
};
template <int kCount, typename element_t>
LLTM_JIT_DEVICE Words<element_t, kCount> load_words(const element_t* source) {
  return *reinterpret_cast<const Words<element_t, kCount>*>(source);
}

// A lane's units of a row, in both passes. Its pointers are to the first of them.
template <typename Cell, typename scalar_t, int kUnits, bool kControls>
struct WalkLane {
  using state_t = opmath_t<scalar_t>;
  using T = GateNumber<scalar_t>;
  using Step = CellStep<Cell, T>;
  using Traits = CellTraits<Cell>;
  using Units = Words<scalar_t, kUnits>;
  static constexpr int kStates = Cell::kStates, kGates = Cell::kGates;

  int64_t row, unit, hidden, rows;
  const uint8_t* control;
  int64_t control_stride;
  T parameters[Traits::kParametersRoom][kUnits];

  LLTM_JIT_DEVICE WalkLane(const SequenceSizes& sizes, const void* learnt, const uint8_t* controls,
                           int64_t control_step_stride, int64_t of_row, int64_t of_unit)
      : row(of_row),
        unit(of_unit),
        hidden(sizes.hidden_size),
        rows(sizes.batch_size),
        control(controls + of_row),
        control_stride(control_step_stride) {
    LLTM_JIT_UNROLLED(p, Traits::kParameters) {
      read(static_cast<const scalar_t*>(learnt) + p * hidden + unit, parameters[p]);
    }
  }

  LLTM_JIT_DEVICE int64_t in_state(int64_t index = 0) const {
    return (index * rows + row) * hidden + unit;
  }
  template <typename element_t>
  static LLTM_JIT_DEVICE void read(const element_t* source, T (&values)[kUnits]) {
    opmath_t<element_t> numbers[kUnits];
    load_pack<kUnits>(source, numbers);
    LLTM_JIT_UNROLLED(e, kUnits) values[e] = T(state_t(numbers[e]));
  }
  // Zeros where there is no array.
  template <typename element_t>
  LLTM_JIT_DEVICE void read_states(const void* array, int64_t index, T (&values)[kUnits]) const {
    if (array) return read(static_cast<const element_t*>(array) + in_state(index), values);
    LLTM_JIT_UNROLLED(e, kUnits) values[e] = T(0);
  }
  // h, and the cell states.
  LLTM_JIT_DEVICE void read_all(const void* h, const void* cells,
                                T (&states)[kStates][kUnits]) const {
    read_states<scalar_t>(h, 0, states[0]);
    LLTM_JIT_UNROLLED_FROM(k, 1, kStates) read_states<state_t>(cells, k - 1, states[k]);
  }
  template <typename element_t>
  static LLTM_JIT_DEVICE void write(element_t* target, const T (&values)[kUnits]) {
    opmath_t<element_t> numbers[kUnits];
    LLTM_JIT_UNROLLED(e, kUnits) numbers[e] = state_t(values[e]);
    store_pack<kUnits>(target, numbers);
  }
  template <typename Array>
  LLTM_JIT_DEVICE int64_t in_array(const Array& array, int64_t step) const {
    return step * array.step_stride + row * array.row_stride + unit;
  }
  template <typename Array>
  LLTM_JIT_DEVICE auto* at(const Array& array, int64_t step) const {
    return array.template as<scalar_t>() + in_array(array, step);
  }
  // In array `index` of cell states.
  template <typename Array>
  LLTM_JIT_DEVICE auto* cells_at(const Array& array, int64_t step, int64_t index = 0) const {
    return array.template as<state_t>() + step * array.step_stride + in_state(index);
  }
  LLTM_JIT_DEVICE void load_gates(const scalar_t* source, Units (&gates)[kGates]) const {
    LLTM_JIT_UNROLLED(g, kGates) gates[g] = load_words<kUnits>(source + g * hidden);
  }
  // kHolds, kResets or 0.
  LLTM_JIT_DEVICE uint8_t control_of(int64_t step) const {
    if (!kControls) return 0;
    const uint8_t found = control[step * control_stride];
    return found & kHolds ? uint8_t(kHolds) : found;
  }
  // What the row is reset to before a step.
  template <typename Args>
  LLTM_JIT_DEVICE void read_reset(const Args& args, int64_t step,
                                  T (&states)[kStates][kUnits]) const {
    LLTM_JIT_UNROLLED(k, kStates) {
      LLTM_JIT_UNROLLED(e, kUnits) states[k][e] = T(0);
      if (k == 0 && args.reset_h.data) read(at(args.reset_h, step), states[k]);
      if (k > 0 && args.reset_cells.data) read(cells_at(args.reset_cells, step, k - 1), states[k]);
    }
  }
  // A step of unit e, but for its old states.
  LLTM_JIT_DEVICE Step step_of(const Units (&gates)[kGates], int e) const {
    Step step;
    LLTM_JIT_UNROLLED(g, kGates) step.x[g] = T(gates[g][e]);
    LLTM_JIT_UNROLLED(p, Traits::kParameters) step.p[p] = parameters[p][e];
    return step;
  }
};

}  // namespace lltm_jit
