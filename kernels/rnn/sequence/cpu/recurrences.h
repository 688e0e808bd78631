// Several recurrences on the CPU. Each runs as a sequence of its own, whose arrays are parts of the call's.
#pragma once

#include "core/launch/parallel.h"
#include "rnn/sequence/cpu/rows.h"
#include "rnn/sequence/cpu/steps.h"

namespace lltm_jit {

// The place of a recurrence in the arrays of a call, Note [Recurrences] (kernels.h).
class OneOfRecurrences {
 public:
  // of_element, of_acc: the sizes of an element and of a number of the arithmetic type.
  OneOfRecurrences(const SequenceSizes& all, int64_t index, int64_t of_element, int64_t of_acc)
      : of_element_(of_element),
        of_acc_(of_acc),
        index_(index),
        unit_(index * all.hidden_size),
        gate_((index / all.heads * all.gates * all.heads + index % all.heads) * all.hidden_size),
        steps_(all.steps),
        reverses_(index >= all.heads && all.layers == 0) {}

  C10_NOINLINE SequenceForwardArgs operator()(SequenceForwardArgs args) const {
    move_common(args);
    move(of_element_, unit_, args.output, args.new_h);
    move(of_acc_, unit_, args.old_cells, args.new_cells);
    move(of_element_, gate_, args.bias, args.input_bias);
    move(of_element_, gate_ * args.input_weights_stride, args.input_weights);
    move(of_element_, 0, args.input);
    return args;
  }

  C10_NOINLINE SequenceBackwardArgs operator()(SequenceBackwardArgs args) const {
    move_common(args);
    move(of_element_, unit_, args.output, args.grad_output, args.grad_new_h, args.grad_old_h);
    move(of_acc_, unit_, args.grad_new_cells, args.grad_old_cells, args.grad_saved_cells,
         args.grad_parameters, args.grad_reset_h, args.grad_reset_cells);
    move(of_element_, gate_, args.grad_gates, args.grad_hidden);
    return args;
  }

 private:
  const int64_t of_element_, of_acc_, index_, unit_, gate_, steps_;
  const bool reverses_;

  template <typename Args>
  void move_common(Args& args) const {
    move(of_element_, unit_, args.old_h, args.reset_h, args.parameters);
    move(of_acc_, unit_, args.reset_cells, args.saved_cells);
    move(of_element_, gate_, args.gates, args.saved_gates);
    move(of_element_, index_ * args.recurrence_stride, args.weights);
    if (args.control == nullptr || !reverses_) return;
    args.control += args.control_direction_stride + (steps_ - 1) * args.control_step_stride;
    args.control_step_stride = -args.control_step_stride;
  }

  template <typename... Arrays>
  void move(int64_t size, int64_t count, Arrays&... arrays) const {
    (move_one(size, arrays, count), ...);
  }
  template <typename Void>
  static void move_one(int64_t size, Void*& data, int64_t count) {
    data = element_of<char>(data, size * count);
  }
  template <typename Array>
  void move_one(int64_t size, Array& array, int64_t count) const {
    move_one(size, array.data, count + (reverses_ ? (steps_ - 1) * array.step_stride : 0));
    if (reverses_) array.step_stride = -array.step_stride;
  }
};

// Calls run(index) for each recurrence: each on its own core if that keeps nearly all cores busy;
// else one after another, each on all cores.
inline void for_each_recurrence(const SequenceSizes& sizes, c10::function_ref<void(int64_t)> run) {
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

// Instead of the weights of a cell without a product. Its units are divided in blocks of kLanes.
template <typename scalar_t>
struct NoWeights {
  using acc_t = opmath_t<scalar_t>;
  using row_t = acc_t;
  static constexpr bool kProduct = false;
  static constexpr int64_t kLanes = 64;
  template <typename... Sizes>
  explicit NoWeights(Sizes...) {}
  static int64_t row_stride(int64_t) { return 0; }
};

// Runs each recurrence as a Sequence, with the cell's function for the type.
template <template <typename scalar_t, typename Weights> class Sequence, typename Args>
void run_recurrences(const Args& args, const CpuCell& cell) {
  if (!cell.product) {
    dispatch_floating(args.type, [&](auto scalar) {
      using scalar_t = decltype(scalar);
      Sequence<scalar_t, NoWeights<scalar_t>>(args, cell).run();
    });
    return;
  }
  dispatch_weights(args.type, [&](auto scalar, auto weights) {
    using Weights = typename decltype(weights)::type;
    using scalar_t = decltype(scalar);
    for_each_recurrence(args, [&](int64_t index) {
      const OneOfRecurrences place(args, index, sizeof(scalar_t), sizeof(opmath_t<scalar_t>));
      const Args one = place(args);
      Sequence<scalar_t, Weights>(one, cell).run();
    });
  });
}

}  // namespace lltm_jit
