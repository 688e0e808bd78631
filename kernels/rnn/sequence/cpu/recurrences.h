// Several recurrences on the CPU: each runs as a sequence of its own, whose arrays are a part of the call's.
#pragma once

#include "core/launch/parallel.h"
#include "rnn/sequence/kernels.h"

namespace lltm_jit {

// Where a recurrence lies in the arrays of a call, Note [Recurrences] (kernels.h).
template <typename scalar_t, typename acc_t>
class OneOfRecurrences {
 public:
  OneOfRecurrences(const SequenceSizes& all, int64_t index)
      : index_(index),
        unit_(index * all.hidden_size),
        gate_((index / all.heads * all.gates * all.heads + index % all.heads) * all.hidden_size),
        steps_(all.steps),
        reverses_(index >= all.heads) {}

  SequenceForwardArgs operator()(SequenceForwardArgs args) const {
    move_common(args);
    move<scalar_t>(args.bias, gate_);
    move<acc_t>(args.old_cells, unit_);
    move<scalar_t>(args.output, unit_);
    move<scalar_t>(args.new_h, unit_);
    move<acc_t>(args.new_cells, unit_);
    move<scalar_t>(args.input, 0);
    move<scalar_t>(args.input_weights, gate_ * args.input_weights_stride);
    move<scalar_t>(args.input_bias, gate_);
    return args;
  }

  SequenceBackwardArgs operator()(SequenceBackwardArgs args) const {
    move_common(args);
    move<scalar_t>(args.grad_output, unit_);
    move<scalar_t>(args.grad_new_h, unit_);
    move<acc_t>(args.grad_new_cells, unit_);
    move<scalar_t>(args.output, unit_);
    move<scalar_t>(args.grad_gates, gate_);
    move<scalar_t>(args.grad_hidden, gate_);
    move<scalar_t>(args.grad_old_h, unit_);
    move<acc_t>(args.grad_old_cells, unit_);
    move<acc_t>(args.grad_parameters, unit_);
    move<acc_t>(args.grad_saved_cells, unit_);
    return args;
  }

 private:
  const int64_t index_, unit_, gate_, steps_;
  const bool reverses_;

  template <typename Args>
  void move_common(Args& args) const {
    move<scalar_t>(args.gates, gate_);
    move<scalar_t>(args.saved_gates, gate_);
    move<acc_t>(args.saved_cells, unit_);
    move<scalar_t>(args.weights, index_ * args.recurrence_stride);
    move<scalar_t>(args.parameters, unit_);
    move<scalar_t>(args.old_h, unit_);
    if (args.control == nullptr || !reverses_) return;
    args.control += args.control_direction_stride + (steps_ - 1) * args.control_step_stride;
    args.control_step_stride = -args.control_step_stride;
  }

  template <typename T>
  static void move(const void*& data, int64_t count) {
    if (data != nullptr) data = static_cast<const T*>(data) + count;
  }
  template <typename T>
  static void move(void*& data, int64_t count) {
    if (data != nullptr) data = static_cast<T*>(data) + count;
  }
  template <typename T, typename Array>
  void move(Array& array, int64_t count) const {
    move<T>(array.data, count + (reverses_ ? (steps_ - 1) * array.step_stride : 0));
    if (reverses_) array.step_stride = -array.step_stride;
  }
};

// Calls run(index) for each recurrence: each on a core of its own if that keeps nearly all of them busy, else one
// after the other, each on all.
template <typename Run>
void for_each_recurrence(const SequenceSizes& sizes, const Run& run) {
  constexpr int64_t kWorthWaking = 1 << 19;  // multiply-adds
  const int64_t count = sizes.recurrences();
  const int64_t products =
      sizes.steps * sizes.batch_size * sizes.gates * sizes.hidden_size * sizes.hidden_size * count;
  const int64_t threads = at::get_num_threads();
  const bool fill = 4 * ceil_div(count, threads) * threads <= 5 * count;
  if (count > 1 && fill && products >= kWorthWaking) {
    for_each_task(count, 1, run);
  } else {
    for (int64_t i = 0; i < count; ++i) run(i);
  }
}

}  // namespace lltm_jit
