// The rows of a call's arrays on the CPU, and the states between steps.
#pragma once

#include <algorithm>

#include "core/memory/aligned_array.h"
#include "core/types/vectorized.h"
#include "rnn/sequence/kernels.h"

namespace lltm_jit {

// The effect of a step on a row. A row that is held is not reset.
template <typename Args>
uint8_t control_of(const Args& args, int64_t step, int64_t row) {
  if (args.control == nullptr) return 0;
  const uint8_t control = args.control[step * args.control_step_stride + row];
  return control & kHolds ? kHolds : control;
}

// An element of an array; null if the array is null.
template <typename T>
const T* element_of(const void* data, int64_t index) {
  return data == nullptr ? nullptr : static_cast<const T*>(data) + index;
}
template <typename T>
T* element_of(void* data, int64_t index) {
  return data == nullptr ? nullptr : static_cast<T*>(data) + index;
}

// Row `row` of step `step`, from `unit` on; null if the array is null.
template <typename T>
const T* row_of(const SequenceArray& array, int64_t step, int64_t row, int64_t unit = 0) {
  return element_of<T>(array.data, step * array.step_stride + row * array.row_stride + unit);
}
template <typename T>
T* row_of(const MutableSequenceArray& array, int64_t step, int64_t row, int64_t unit = 0) {
  return element_of<T>(array.data, step * array.step_stride + row * array.row_stride + unit);
}

// Copies a row to one of another type; zeros if it is null. Like add_row() it is compiled once for each pair of types:
// g++ would unroll and vectorise the conversions in every loop.
template <typename From, typename To>
C10_NOINLINE void copy_row(const From* row, int64_t count, To* target) {
  constexpr int64_t kLanes = at::vec::Vectorized<opmath_t<To>>::size();
  if (row == nullptr) return void(std::fill_n(target, count, To(0)));
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t n = std::min(kLanes, count - i);
    store(target + i, load(row + i, n), n);
  }
}
template <typename acc_t>
C10_NOINLINE void add_row(const acc_t* row, int64_t count, acc_t* target) {
  for (int64_t i = 0; i < count; ++i) target[i] += row[i];
}

// The states between steps, or their gradients: [states, batch, hidden].
template <typename scalar_t>
class RowStates {
 public:
  using acc_t = opmath_t<scalar_t>;

  const int64_t stride;  // from state to state

  explicit RowStates(const SequenceSizes& sizes)
      : stride(sizes.batch_size * sizes.hidden_size), sizes_(sizes) {}

  acc_t* operator()(int64_t index, int64_t row) const {
    return states_.get() + index * stride + row * sizes_.hidden_size;
  }

  // Reads units of a row from rows of the call's h and cell states; zeros if they are null.
  C10_NOINLINE void read(int64_t row, int64_t unit, int64_t units, const void* h,
                         const void* cells) const {
    copy_row(element_of<scalar_t>(h, unit), units, (*this)(0, row) + unit);
    for (int s = 1; s < sizes_.states; ++s) {
      copy_row(element_of<acc_t>(cells, cell_place(s) + unit), units, (*this)(s, row) + unit);
    }
  }
  // Writes them, unless they are null.
  C10_NOINLINE void write(int64_t row, int64_t unit, int64_t units, void* h, void* cells) const {
    if (h != nullptr) copy_row((*this)(0, row) + unit, units, element_of<scalar_t>(h, unit));
    for (int s = 1; s < sizes_.states && cells != nullptr; ++s) {
      copy_row((*this)(s, row) + unit, units, element_of<acc_t>(cells, cell_place(s) + unit));
    }
  }

 private:
  const SequenceSizes& sizes_;
  const AlignedArray<acc_t> states_ = aligned_array<acc_t>(sizes_.states * stride);

  int64_t cell_place(int s) const { return (s - 1) * sizes_.batch_size * sizes_.units(); }
};

}  // namespace lltm_jit
