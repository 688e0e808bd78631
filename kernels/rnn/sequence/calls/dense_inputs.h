// A call's tensors in the form that kernels take, and what the forward and the backward pass decide alike.
#pragma once

#include "core/host/formula.h"
#include "rnn/sequence/kernels.h"
#include "rnn/sequence/operators.h"
#include "rnn/sequence/padding/gates.h"
#include "rnn/sequence/recurrences.h"

namespace lltm_jit {

// Cell states as the kernels keep them.
inline OptionalTensor running(const OptionalTensor& cells, at::ScalarType dtype) {
  return cells ? OptionalTensor(cells->to(dtype).contiguous()) : std::nullopt;
}

inline GivenStates running_cells(const SequenceInputs& in) {
  return {running(in.c_0, state_dtype(in.gates.scalar_type())), 3};
}

// Where the steps begin, and how they go on: backwards in memory if the sequence is reversed.
template <typename Array>
void point(Array& steps, const Tensor& tensor, bool reverse) {
  if (!tensor.defined()) return;
  if constexpr (std::is_same_v<Array, SequenceArray>) {
    steps.data = tensor.const_data_ptr();
  } else {
    steps.data = tensor.mutable_data_ptr();
  }
  steps.step_stride = tensor.stride(0), steps.row_stride = tensor.stride(-2);
  if (!reverse) return;
  const int64_t last = (tensor.size(0) - 1) * steps.step_stride * tensor.element_size();
  steps.data = steps.template as<char>() + last;
  steps.step_stride = -steps.step_stride;
}

// Of states that rows are reset to; one that all steps have is not moved.
template <typename Array>
void point_to_resets(Array& steps, const OptionalTensor& resets, bool reverse) {
  if (!resets) return;
  const bool one = resets->size(0) == 1;
  point(steps, *resets, reverse && !one);
  if (one) steps.step_stride = 0;
}

inline SequenceSizes sizes_of(const SequenceInputs& in, const RecurrentCell& cell) {
  const Recurrences all = recurrences_of(in);
  SequenceSizes sizes = sizes_of(cell, floating_type(in.gates.scalar_type()), in.tf32,
                                 in.gates.size(0), in.gates.size(1), in.weight_hh.size(-1));
  sizes.directions = static_cast<int>(all.directions), sizes.heads = static_cast<int>(all.heads);
  sizes.padded = is_padded(in, cell);
  return sizes;
}

// The common arguments of forward and backward pass, dense as the kernels take them.
struct DenseInputs {
  Tensor weight_hh;
  OptionalTensor parameters, control;
  GivenStates h, cells;
  bool bidirectional;

  DenseInputs(const SequenceInputs& in, bool padded)
      : weight_hh(readable_weights(in.weight_hh, padded)),
        parameters(in.parameters ? OptionalTensor(readable(*dense(in.parameters))) : std::nullopt),
        control(in.control),
        h(padded || !in.h_0 ? dense(in.h_0) : readable(*dense(in.h_0)), 2),
        cells(running_cells(in)),
        bidirectional(in.bidirectional) {
    if (control && control->stride(-1) != 1) control = control->contiguous();
  }

  template <typename Args>
  void fill(Args& args, bool reverse) const {
    args.weights = weight_hh.const_data_ptr();
    args.weights_stride = weight_hh.stride(-2);
    args.recurrence_stride = weight_hh.stride(0);
    args.parameters = data_or_null(parameters);
    args.old_h = data_or_null(h.first);
    if (!control) return;
    point_to_resets(args.reset_h, h.resets, reverse);
    point_to_resets(args.reset_cells, cells.resets, reverse);
    const Tensor first = bidirectional ? control->select(0, 0) : *control;
    SequenceArray steps{};
    point(steps, first.unsqueeze(2), reverse);
    args.control = static_cast<const uint8_t*>(steps.data);
    args.control_step_stride = steps.step_stride;
    args.control_direction_stride = control->stride(0);
  }
};

// Whether the gates are padded if this device's kernels need it, and only if they take it.
inline bool as_kernels_have_it(const SequenceInputs& in, const RecurrentCell& cell) {
  if (in.gates.is_meta() || !cell.ordinary()) return true;
  const bool may = kernels_pad(in.gates);
  const bool whole = in.weight_hh.size(-1) % kWholeAccess == 0;
  return is_padded(in, cell) ? may : !may || whole || in.gates.size(0) == 1;
}

// Whether there are several recurrences that the kernels here cannot take at once, whatever the plan.
inline bool run_in_turn(const SequenceInputs& in, const RecurrentCell& cell,
                        bool backward = false) {
  if (!has_recurrences(in) || in.gates.is_meta()) return false;
  if (!cell.ordinary()) return true;
  if (is_padded(in, cell)) {
    const bool plain = !in.control && recurrences_of(in).heads == 1;
    return !kernels_pad(in.gates) || (backward && !plain);
  }
  return !in.gates.is_cpu() && in.weight_hh.size(-1) % kWholeAccess > 0;
}

}  // namespace lltm_jit
