// The steps of a sequence on the CPU, from the last to the first.
#include "rnn/sequence/cpu/dots.h"
#include "rnn/sequence/cpu/recurrences.h"
#include "rnn/sequence/cpu/steps.h"
#include "rnn/sequence/cpu/threads.h"

namespace lltm_jit {
namespace {

template <typename scalar_t, typename Weights>
class BackwardSequence {
 public:
  BackwardSequence(const SequenceBackwardArgs& args, void (*cell)(const CellBackwardRow&))
      : args_(args), cell_(cell) {}

  void run() {
    pack_groups(division_, kGroup, depth_ * kLanes, [&](int64_t block, int64_t block_end) {
      weights_.pack_columns(block, block_end, static_cast<const scalar_t*>(args_.weights),
                            args_.weights_stride, hidden_);
    });
    for (int64_t row = 0; row < args_.batch_size; ++row) begin_row(row);
    // A round takes the last computed step's gradients back to the output of the step before, and computes that step.
    run_steps(division_, args_.steps + 1, [&](int64_t round, int64_t index) {
      const SequenceShare share = division_.share(index);
      const int64_t step = args_.steps - 1 - round;
      for (int64_t row = share.row; row < share.row_end; row += kRows) {
        const int64_t row_end = std::min(share.row_end, row + kRows);
        if (round > 0) multiply(step + 1, row, row_end, share);
        for (int64_t r = row; r < row_end && step >= 0; ++r) run_row(step, r, share);
      }
    });
    for (int64_t row = 0; row < args_.batch_size; ++row) end_row(row);
  }

 private:
  using acc_t = typename Weights::acc_t;
  using row_t = typename Weights::row_t;
  static constexpr int64_t kLanes = Weights::kLanes;
  static constexpr int64_t kRows = SequenceCpuBounds::kRows;
  static constexpr int64_t kGroup = 2 * RegisterTile<acc_t>::kVectors;

  const SequenceBackwardArgs& args_;
  void (*const cell_)(const CellBackwardRow&);
  const int64_t hidden_ = args_.hidden_size, depth_ = args_.SequenceSizes::gates * hidden_;
  const int64_t blocks_ = ceil_div(hidden_, kLanes);
  // The same strides as in the forward pass.
  const int64_t gate_stride_ = args_.heads * hidden_;
  const int64_t units_ = args_.units(), cells_stride_ = args_.batch_size * units_;
  const SequenceDivision division_ =
      divide_sequence(args_.steps, args_.batch_size, blocks_, args_.batch_size * depth_ * hidden_);
  Weights weights_{blocks_, depth_};
  // The left factor of products with the weights, for two steps: the gradients of the gates' hidden parts.
  const int64_t gates_stride_ = Weights::row_stride(depth_);
  const AlignedArray<row_t> gates_ = aligned_zeros<row_t>(2 * args_.batch_size * gates_stride_);
  // The products, and the gradients that reach the states other than through the weights.
  const int64_t h_stride_ = blocks_ * kLanes;
  const AlignedArray<acc_t> grad_h_ = aligned_array<acc_t>(args_.batch_size * h_stride_);
  const int64_t states_stride_ = args_.batch_size * hidden_;
  const AlignedArray<acc_t> grad_states_ = aligned_array<acc_t>(args_.states * states_stride_);

  row_t* gates(int64_t step, int64_t row) const {
    return gates_.get() + (step % 2 * args_.batch_size + row) * gates_stride_;
  }
  acc_t* grad_h(int64_t row) const { return grad_h_.get() + row * h_stride_; }
  acc_t* grad_state(int64_t index, int64_t row) const {
    return grad_states_.get() + index * states_stride_ + row * hidden_;
  }
  acc_t* grad_parameter(int64_t index, int64_t row) const {
    return static_cast<acc_t*>(args_.grad_parameters) + index * cells_stride_ + row * units_;
  }
  void begin_row(int64_t row) {
    const auto* new_h = static_cast<const scalar_t*>(args_.grad_new_h);
    const auto* new_cells = static_cast<const acc_t*>(args_.grad_new_cells);
    std::fill_n(grad_h(row), h_stride_, acc_t(0));
    copy_row(new_h ? new_h + row * units_ : nullptr, hidden_, grad_state(0, row));
    for (int s = 1; s < args_.states; ++s) {
      copy_row(new_cells ? new_cells + (s - 1) * cells_stride_ + row * units_ : nullptr, hidden_,
               grad_state(s, row));
    }
    for (int p = 0; p < args_.SequenceSizes::parameters; ++p) {
      std::fill_n(grad_parameter(p, row), hidden_, acc_t(0));
    }
  }

  void end_row(int64_t row) {
    if (args_.grad_old_h != nullptr) {
      add_row(grad_h(row), hidden_, grad_state(0, row));
      copy_row(grad_state(0, row), hidden_,
               static_cast<scalar_t*>(args_.grad_old_h) + row * units_);
    }
    if (args_.grad_old_cells == nullptr) return;
    for (int s = 1; s < args_.states; ++s) {
      copy_row(grad_state(s, row), hidden_,
               static_cast<acc_t*>(args_.grad_old_cells) + (s - 1) * cells_stride_ + row * units_);
    }
  }

  void multiply(int64_t step, int64_t row_begin, int64_t row_end, const SequenceShare& share) {
    if (step > 0 || args_.grad_old_h != nullptr) {
      for_each_group(share, kGroup, [&](int64_t block, int64_t block_end) {
        weights_.multiply(gates(step, row_begin), gates_stride_, row_end - row_begin, block,
                          block_end, nullptr, grad_h(row_begin) + block * kLanes, h_stride_);
      });
    }
    const int64_t unit = share.block * kLanes;
    const int64_t units = std::min(share.block_end * kLanes, hidden_) - unit;
    for (int64_t row = row_begin; row < row_end; ++row) {
      if (control_of(args_, step, row) != kResets) continue;
      move_to_reset(step, row, unit, units);
    }
  }

  // Moves the gradient to the state that the row was reset to before the step.
  void move_to_reset(int64_t step, int64_t row, int64_t unit, int64_t units) {
    acc_t* to_h = row_of<acc_t>(args_.grad_reset_h, step, row);
    acc_t* to_cells = row_of<acc_t>(args_.grad_reset_cells, step, row);
    const auto move = [&](acc_t* from, acc_t* to) {
      if (to != nullptr) add_row(from + unit, units, to + unit);
      std::fill_n(from + unit, units, acc_t(0));
    };
    move(grad_h(row), to_h);
    move(grad_state(0, row), to_h);
    for (int s = 1; s < args_.states; ++s) {
      move(grad_state(s, row), to_cells ? to_cells + (s - 1) * cells_stride_ : nullptr);
    }
  }

  void run_row(int64_t step, int64_t row, const SequenceShare& share) {
    const int64_t unit = share.block * kLanes;
    const int64_t units = std::min(share.block_end * kLanes, hidden_) - unit;
    if (step > 0) prefetch(step - 1, row, unit, units);
    scalar_t* grad_gates = row_of<scalar_t>(args_.grad_gates, step, row) + unit;
    scalar_t* grad_hidden = grad_gates;
    if (!args_.adds_gates) grad_hidden = row_of<scalar_t>(args_.grad_hidden, step, row) + unit;
    if (control_of(args_, step, row) == kHolds) {
      hold_row(step, row, unit, units, grad_gates, grad_hidden);
    } else {
      derive_row(step, row, unit, units, grad_gates, grad_hidden);
      if (args_.grad_saved_cells.data != nullptr) add_given(step, row, unit, units);
    }
    for (int g = 0; g < args_.SequenceSizes::gates; ++g) {
      copy_row(grad_hidden + g * gate_stride_, units, gates(step, row) + g * hidden_ + unit);
    }
  }

  void prefetch(int64_t step, int64_t row, int64_t unit, int64_t units) const {
    const scalar_t* saved = row_of<scalar_t>(args_.saved_gates, step, row) + unit;
    for (int g = 0; g < args_.SequenceSizes::gates; ++g) {
      prefetch_row(saved + g * gate_stride_, units);
    }
    if (args_.grad_output.data != nullptr) {
      prefetch_row(row_of<scalar_t>(args_.grad_output, step, row) + unit, units);
    }
    for (int s = 1; s < args_.states; ++s) {
      prefetch_row(row_of<acc_t>(args_.saved_cells, step, row) + (s - 1) * cells_stride_ + unit,
                   units);
    }
  }

  void derive_row(int64_t step, int64_t row, int64_t unit, int64_t units, scalar_t* grad_gates,
                  scalar_t* grad_hidden) {
    CellBackwardRow cell{.units = units, .gate_stride = gate_stride_, .parameter_stride = units_};
    if (args_.grad_output.data != nullptr) {
      cell.grad_output = row_of<scalar_t>(args_.grad_output, step, row) + unit;
    }
    cell.acc_grad_h = grad_h(row) + unit;
    cell.acc_grad_states = grad_state(0, row) + unit;
    cell.state_stride = states_stride_, cell.cell_stride = cells_stride_;
    if (!args_.adds_gates) cell.gates = row_of<scalar_t>(args_.gates, step, row) + unit;
    cell.saved_gates = row_of<scalar_t>(args_.saved_gates, step, row) + unit;
    if (args_.SequenceSizes::parameters > 0) {
      cell.parameters = static_cast<const scalar_t*>(args_.parameters) + unit;
      cell.acc_grad_parameters = grad_parameter(0, row) + unit;
    }
    if (const scalar_t* old_h = old_h_of(step, row)) cell.old_h = old_h + unit;
    if (args_.states > 1) {
      cell.acc_saved_cells = row_of<acc_t>(args_.saved_cells, step, row) + unit;
    }
    cell.grad_gates = grad_gates, cell.grad_hidden = grad_hidden;
    cell_(cell);
  }

  // Adds the caller's gradient of the cell states before the step.
  void add_given(int64_t step, int64_t row, int64_t unit, int64_t units) {
    const acc_t* given = row_of<acc_t>(args_.grad_saved_cells, step, row) + unit;
    for (int s = 1; s < args_.states; ++s, given += cells_stride_) {
      add_row(given, units, grad_state(s, row) + unit);
    }
  }

  // The gradients of the states pass unchanged. The output's gradient passes, too, because no product replaces it.
  void hold_row(int64_t step, int64_t row, int64_t unit, int64_t units, scalar_t* grad_gates,
                scalar_t* grad_hidden) {
    for (int g = 0; g < args_.SequenceSizes::gates; ++g) {
      std::fill_n(grad_gates + g * gate_stride_, units, scalar_t(0));
      std::fill_n(grad_hidden + g * gate_stride_, units, scalar_t(0));
    }
    add_row(grad_h(row) + unit, units, grad_state(0, row) + unit);
  }

  // The h before a step; null if it is zero.
  const scalar_t* old_h_of(int64_t step, int64_t row) const {
    if (control_of(args_, step, row) == kResets) return row_of<scalar_t>(args_.reset_h, step, row);
    do --step;
    while (step >= 0 && control_of(args_, step, row) == kHolds);
    if (step >= 0) return row_of<scalar_t>(args_.output, step, row);
    if (args_.old_h == nullptr) return nullptr;
    return static_cast<const scalar_t*>(args_.old_h) + row * units_;
  }
};

}  // namespace

void sequence_backward_cpu(const SequenceBackwardArgs& args, const CpuCell& cell) {
  run_recurrences<BackwardSequence>(args, cell.backward);
}

}  // namespace lltm_jit
