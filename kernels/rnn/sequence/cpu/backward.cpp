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
  BackwardSequence(const SequenceBackwardArgs& args, const CpuSteps<scalar_t>& cell)
      : args_(args), cell_(cell.backward) {}

  void run() {
    if constexpr (Weights::kProduct) {
      pack_groups(division_, kGroup, depth_ * kLanes, [&](int64_t block, int64_t block_end) {
        weights_.pack_columns(block, block_end, static_cast<const scalar_t*>(args_.weights),
                              args_.weights_stride, hidden_);
      });
    }
    run_shares(division_, args_.steps + 1, *this);
  }

  void begin(const SequenceShare& share) {
    for (int64_t row = share.row; row < share.row_end; ++row) {
      std::fill_n(grad_h(row) + share.unit, share.units, acc_t(0));
      grad_states_.read(row, share.unit, share.units,
                        element_of<scalar_t>(args_.grad_new_h, row * units_),
                        element_of<acc_t>(args_.grad_new_cells, row * units_));
      for (int p = 0; p < args_.SequenceSizes::parameters; ++p) {
        std::fill_n(grad_parameters(row, share.unit) + p * cells_stride_, share.units, acc_t(0));
      }
    }
  }

  // A round takes the last computed step's gradients back to the output of the step before, and computes that step.
  void step(int64_t round, const SequenceShare& share) {
    const int64_t step = args_.steps - 1 - round;
    for (int64_t row = share.row; row < share.row_end; row += kRows) {
      const int64_t row_end = std::min(share.row_end, row + kRows);
      if (round > 0) pass_back(step + 1, row, row_end, share);
      for (int64_t r = row; r < row_end && step >= 0; ++r) run_row(step, r, share);
    }
  }

  void end(const SequenceShare& share) {
    for (int64_t row = share.row; row < share.row_end; ++row) {
      add_row(grad_h(row) + share.unit, share.units, grad_states_(0, row) + share.unit);
      grad_states_.write(row, share.unit, share.units,
                         element_of<scalar_t>(args_.grad_old_h, row * units_),
                         element_of<acc_t>(args_.grad_old_cells, row * units_));
    }
  }

 private:
  using acc_t = typename Weights::acc_t;
  using row_t = typename Weights::row_t;
  static constexpr int64_t kLanes = Weights::kLanes;
  static constexpr int64_t kRows = SequenceCpuBounds::kRows;
  static constexpr int64_t kGroup = 2 * RegisterTile<acc_t>::kVectors;

  const SequenceBackwardArgs& args_;
  void (*const cell_)(const CellBackwardRow<scalar_t>&);
  const int64_t hidden_ = args_.hidden_size, depth_ = args_.SequenceSizes::gates * hidden_;
  const int64_t blocks_ = ceil_div(hidden_, kLanes);
  // The same strides as in the forward pass.
  const int64_t gate_stride_ = args_.heads * hidden_;
  const int64_t units_ = args_.units(), cells_stride_ = args_.batch_size * units_;
  const SequenceDivision division_ =
      Weights::kProduct ? divide_sequence(args_, kLanes, args_.batch_size * depth_ * hidden_)
                        : divide_without_product(args_, kLanes);
  Weights weights_{blocks_, depth_};
  // The left factor of products with the weights, for two steps: the gradients of the gates' hidden parts.
  const int64_t gates_stride_ = Weights::row_stride(depth_);
  const AlignedArray<row_t> gates_ = aligned_zeros<row_t>(2 * args_.batch_size * gates_stride_);
  // The products, and the gradients that reach the states other than through the weights.
  const int64_t h_stride_ = blocks_ * kLanes;
  const AlignedArray<acc_t> grad_h_ = aligned_array<acc_t>(args_.batch_size * h_stride_);
  const RowStates<scalar_t> grad_states_{args_};

  row_t* gates(int64_t step, int64_t row) const {
    return gates_.get() + (step % 2 * args_.batch_size + row) * gates_stride_;
  }
  acc_t* grad_h(int64_t row) const { return grad_h_.get() + row * h_stride_; }
  acc_t* grad_parameters(int64_t row, int64_t unit) const {
    return element_of<acc_t>(args_.grad_parameters, row * units_ + unit);
  }

  // Takes a step's gradients back to the states before it.
  void pass_back(int64_t step, int64_t row_begin, int64_t row_end, const SequenceShare& share) {
    if constexpr (Weights::kProduct) {
      if (step > 0 || args_.grad_old_h != nullptr) {
        for_each_group(share, kGroup, [&](int64_t block, int64_t block_end) {
          weights_.multiply(gates(step, row_begin), gates_stride_, row_end - row_begin, block,
                            block_end, nullptr, grad_h(row_begin) + block * kLanes, h_stride_);
        });
      }
    }
    for (int64_t row = row_begin; row < row_end; ++row) {
      if (control_of(args_, step, row) == kResets)
        move_to_reset(step, row, share.unit, share.units);
    }
  }

  // Moves the gradient to the state that the row was reset to before the step.
  void move_to_reset(int64_t step, int64_t row, int64_t unit, int64_t units) {
    acc_t* to_h = row_of<acc_t>(args_.grad_reset_h, step, row, unit);
    acc_t* to_cells = row_of<acc_t>(args_.grad_reset_cells, step, row, unit);
    const auto move = [&](acc_t* from, acc_t* to) {
      if (to != nullptr) add_row(from + unit, units, to);
      std::fill_n(from + unit, units, acc_t(0));
    };
    move(grad_h(row), to_h);
    move(grad_states_(0, row), to_h);
    for (int s = 1; s < args_.states; ++s) {
      move(grad_states_(s, row), element_of<acc_t>(to_cells, (s - 1) * cells_stride_));
    }
  }

  void run_row(int64_t step, int64_t row, const SequenceShare& share) {
    const int64_t unit = share.unit, units = share.units;
    if (step > 0) prefetch(step - 1, row, unit, units);
    scalar_t* grad_gates = row_of<scalar_t>(args_.grad_gates, step, row, unit);
    scalar_t* grad_hidden =
        args_.adds_gates ? grad_gates : row_of<scalar_t>(args_.grad_hidden, step, row, unit);
    if (control_of(args_, step, row) == kHolds) {
      hold_row(step, row, unit, units, grad_gates, grad_hidden);
    } else {
      derive_row(step, row, unit, units, grad_gates, grad_hidden);
      if (args_.grad_saved_cells.data != nullptr) add_given(step, row, unit, units);
    }
    if constexpr (Weights::kProduct) {
      for (int g = 0; g < args_.SequenceSizes::gates; ++g) {
        copy_row(grad_hidden + g * gate_stride_, units, gates(step, row) + g * hidden_ + unit);
      }
    }
  }

  void prefetch(int64_t step, int64_t row, int64_t unit, int64_t units) const {
    const scalar_t* saved = row_of<scalar_t>(args_.saved_gates, step, row, unit);
    for (int g = 0; g < args_.SequenceSizes::gates; ++g) {
      prefetch_row(saved + g * gate_stride_, units);
    }
    if (args_.grad_output.data != nullptr) {
      prefetch_row(row_of<scalar_t>(args_.grad_output, step, row, unit), units);
    }
    for (int s = 1; s < args_.states; ++s) {
      prefetch_row(row_of<acc_t>(args_.saved_cells, step, row, unit) + (s - 1) * cells_stride_,
                   units);
    }
  }

  void derive_row(int64_t step, int64_t row, int64_t unit, int64_t units, scalar_t* grad_gates,
                  scalar_t* grad_hidden) {
    cell_({.units = units,
           .gate_stride = gate_stride_,
           .parameter_stride = units_,
           .grad_output = row_of<scalar_t>(args_.grad_output, step, row, unit),
           .grad_h = grad_h(row) + unit,
           .grad_states = grad_states_(0, row) + unit,
           .state_stride = grad_states_.stride,
           .gates = row_of<scalar_t>(args_.gates, step, row, unit),
           .saved_gates = row_of<scalar_t>(args_.saved_gates, step, row, unit),
           .parameters = element_of<scalar_t>(args_.parameters, unit),
           .old_h = element_of<scalar_t>(old_h_of(step, row), unit),
           .saved_cells = row_of<acc_t>(args_.saved_cells, step, row, unit),
           .grad_gates = grad_gates,
           .grad_hidden = grad_hidden,
           .grad_parameters = grad_parameters(row, unit),
           .cell_stride = cells_stride_});
  }

  // Adds the caller's gradient of the cell states before the step.
  void add_given(int64_t step, int64_t row, int64_t unit, int64_t units) {
    const acc_t* given = row_of<acc_t>(args_.grad_saved_cells, step, row, unit);
    for (int s = 1; s < args_.states; ++s, given += cells_stride_) {
      add_row(given, units, grad_states_(s, row) + unit);
    }
  }

  // The gradients of the states pass unchanged. The output's gradient passes, too, because no product replaces it.
  void hold_row(int64_t step, int64_t row, int64_t unit, int64_t units, scalar_t* grad_gates,
                scalar_t* grad_hidden) {
    for (int g = 0; g < args_.SequenceSizes::gates; ++g) {
      std::fill_n(grad_gates + g * gate_stride_, units, scalar_t(0));
      std::fill_n(grad_hidden + g * gate_stride_, units, scalar_t(0));
    }
    add_row(grad_h(row) + unit, units, grad_states_(0, row) + unit);
  }

  // The h before a step; null if it is zero.
  const scalar_t* old_h_of(int64_t step, int64_t row) const {
    if (control_of(args_, step, row) == kResets) return row_of<scalar_t>(args_.reset_h, step, row);
    do --step;
    while (step >= 0 && control_of(args_, step, row) == kHolds);
    if (step >= 0) return row_of<scalar_t>(args_.output, step, row);
    return element_of<scalar_t>(args_.old_h, row * units_);
  }
};

}  // namespace

void sequence_cpu(const SequenceBackwardArgs& args, const CpuCell& cell) {
  run_recurrences<BackwardSequence>(args, cell);
}

}  // namespace lltm_jit
