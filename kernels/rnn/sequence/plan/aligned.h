// Whether the arrays of a call have several neighbouring units at places that one access can read.
#pragma once

#include <algorithm>
#include <cstdint>

#include "rnn/sequence/kernels.h"

namespace lltm_jit {

struct AlignedArrays {
  const SequenceSizes& sizes;
  int units;  // of an access
  bool aligned = sizes.hidden_size % units == 0;

  void add(const void* data, ElementType type, int64_t step_stride = 0, int64_t row_stride = 0) {
    constexpr int kAccess = 16;  // bytes, at most
    const int of_element = type == ElementType::Double ? 8 : type == ElementType::Float ? 4 : 2;
    aligned &= reinterpret_cast<uintptr_t>(data) % std::min(units * of_element, kAccess) == 0 &&
               step_stride % units == 0 && row_stride % units == 0;
  }
  template <typename... Arrays>
  void add_steps(ElementType type, const Arrays&... arrays) {
    (add(arrays.data, type, arrays.step_stride, arrays.row_stride), ...);
  }
  template <typename... Pointers>
  void add_each(ElementType type, Pointers... data) {
    (add(data, type), ...);
  }
};

// The arrays of a pass; without the states before the first step, or the gradients after the last one, which no other
// step reads.
inline AlignedArrays arrays_of(const SequenceForwardArgs& of, int units, bool first = true) {
  AlignedArrays arrays{of, units};
  arrays.add_steps(of.type, of.gates, of.output, of.saved_gates, of.reset_h);
  arrays.add_steps(of.state_type, of.saved_cells, of.reset_cells);
  arrays.add_each(of.type, of.bias, of.input_bias, of.parameters, of.new_h);
  arrays.add(of.new_cells, of.narrow_cells ? of.type : of.state_type);
  if (first) arrays.add(of.old_h, of.type), arrays.add(of.old_cells, of.state_type);
  return arrays;
}
inline AlignedArrays arrays_of(const SequenceBackwardArgs& of, int units, bool last = true) {
  AlignedArrays arrays{of, units};
  arrays.add_steps(of.type, of.grad_output, of.gates, of.output, of.saved_gates, of.reset_h,
                   of.grad_gates, of.grad_hidden);
  arrays.add_steps(of.state_type, of.saved_cells, of.grad_saved_cells, of.reset_cells,
                   of.grad_reset_h, of.grad_reset_cells);
  arrays.add_each(of.type, of.parameters, of.old_h, of.grad_old_h);
  arrays.add_each(of.state_type, of.grad_old_cells, of.grad_parameters);
  if (last) arrays.add(of.grad_new_h, of.type), arrays.add(of.grad_new_cells, of.state_type);
  return arrays;
}

}  // namespace lltm_jit
