// The units that a thread has in a step, and the places of their numbers in the arrays.
#pragma once

#include "core/launch/block.cuh"
#include "core/launch/fast_divide.cuh"
#include "rnn/sequence/steps/kernels.h"

namespace lltm_jit {

// Neighbouring hidden units of a row, and the places of their numbers in the arrays.
template <typename scalar_t, int kUnits>
struct StepPlace {
  using state_t = opmath_t<scalar_t>;
  int64_t row, unit, hidden, rows, gate_size;
  bool inside = true;  // else nothing is written

  LLTM_JIT_DEVICE int64_t in_state() const { return row * hidden + unit; }
  LLTM_JIT_DEVICE int64_t in_states(int k) const { return k * rows * hidden + in_state(); }
  // In h, and in the backward pass's products, which have room for padding.
  LLTM_JIT_DEVICE int64_t in_products(int k = 0) const {
    return (k * rows + row) * gate_size + unit;
  }

  template <typename Array>
  LLTM_JIT_DEVICE int64_t in_array(const Array& array, int64_t step, int gate) const {
    return step * array.step_stride + row * array.row_stride + gate * gate_size + unit;
  }
  // Calls function(e, value) for each unit.
  template <typename element_t, typename Function>
  LLTM_JIT_DEVICE void read(const element_t* source, const Function& function) const {
    opmath_t<element_t> values[kUnits];
    load_pack<kUnits>(source, values);
    LLTM_JIT_UNROLLED(e, kUnits) function(e, values[e]);
  }
  // Zeros where there is no array.
  template <typename element_t, typename Function>
  LLTM_JIT_DEVICE void read_any(const void* array, int64_t at, const Function& function) const {
    if (array) return read(static_cast<const element_t*>(array) + at, function);
    LLTM_JIT_UNROLLED(e, kUnits) function(e, opmath_t<element_t>(0));
  }
  // State k of the states that a reset before a step sets.
  template <typename Args, typename Function>
  LLTM_JIT_DEVICE void read_reset(const Args& of, int64_t step, int k,
                                  const Function& function) const {
    if (k == 0) {
      read_any<scalar_t>(of.reset_h.data, in_array(of.reset_h, step, 0), function);
    } else {
      read_any<state_t>(of.reset_cells.data, in_cells(of.reset_cells, step, k - 1), function);
    }
  }
  // Adds function(e) to the gradient of that state, if it is wanted.
  template <typename Function>
  LLTM_JIT_DEVICE void add_to_reset(const SequenceBackwardArgs& of, int64_t step, int k,
                                    const Function& function) const {
    const auto& array = k == 0 ? of.grad_reset_h : of.grad_reset_cells;
    if (!array.data) return;
    auto* sums =
        array.as<state_t>() + (k == 0 ? in_array(array, step, 0) : in_cells(array, step, k - 1));
    state_t sum[kUnits];
    read(sums, [&](int e, state_t value) { sum[e] = value + function(e); });
    write(sums, [&](int e) { return sum[e]; });
  }
  template <typename Function>
  LLTM_JIT_DEVICE void read(const SequenceArray& array, int64_t step, int gate,
                            const Function& function) const {
    read(array.as<scalar_t>() + in_array(array, step, gate), function);
  }
  // Writes function(e).
  template <typename element_t, typename Function>
  LLTM_JIT_DEVICE void write(element_t* target, const Function& function) const {
    if (!inside) return;
    opmath_t<element_t> values[kUnits];
    LLTM_JIT_UNROLLED(e, kUnits) values[e] = function(e);
    store_pack<kUnits>(target, values);
  }
  template <typename Function>
  LLTM_JIT_DEVICE void write(const MutableSequenceArray& array, int64_t step, int gate,
                             const Function& function) const {
    write(array.as<scalar_t>() + in_array(array, step, gate), function);
  }
  // And zeros for units that do not exist.
  template <typename Function>
  LLTM_JIT_DEVICE void write_gradient(const MutableSequenceArray& array, int64_t step, int gate,
                                      const Function& function) const {
    write(array, step, gate, function);
    if (!inside || unit + kUnits < hidden) return;
    auto* behind = array.as<scalar_t>() + in_array(array, step, gate) - unit;
#pragma unroll 1
    for (int64_t i = hidden; i < gate_size; ++i) behind[i] = from_opmath<scalar_t>(state_t(0));
  }
  // The same in an array of saved cells.
  template <typename Array>
  LLTM_JIT_DEVICE int64_t in_cells(const Array& array, int64_t step, int k) const {
    return step * array.step_stride + in_states(k);
  }
};

// Calls function(place) for all units of each row; `packs` of units are in a row.
template <typename scalar_t, int kUnits, typename Function>
LLTM_JIT_DEVICE void for_each_place(const SequenceSizes& sizes, const Divisor& packs,
                                    const Function& function) {
  const int64_t count = sizes.batch_size * (sizes.hidden_size / kUnits);
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += int64_t(gridDim.x) * blockDim.x) {
    int64_t pack = i;
    const int64_t row = packs.divide(pack);
    function(StepPlace<scalar_t, kUnits>{row, pack * kUnits, sizes.hidden_size, sizes.batch_size,
                                         sizes.gate_size()});
  }
}

// Note [A block for each row]: the same for a thread's units. A thread without any takes part in sums, and reads what
// the first one does.
template <typename scalar_t, int kUnits, typename Function>
LLTM_JIT_DEVICE void for_row_place(const SequenceSizes& sizes, const Function& function) {
  const int64_t unit = int64_t(threadIdx.x) * kUnits;
  const bool inside = unit < sizes.hidden_size;
  function(StepPlace<scalar_t, kUnits>{blockIdx.x, inside ? unit : 0, sizes.hidden_size,
                                       sizes.batch_size, sizes.gate_size(), inside});
}

}  // namespace lltm_jit
