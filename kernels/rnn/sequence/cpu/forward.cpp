// The steps of a sequence on the CPU.
#include "rnn/sequence/cpu/dots.h"
#include "rnn/sequence/cpu/steps.h"
#include "rnn/sequence/cpu/threads.h"

// In one unit: it has the same headers and templates, which take half of its time.
#include "rnn/sequence/cpu/backward.cpp"

namespace lltm_jit {
namespace {

template <typename scalar_t, typename Weights>
class ForwardSequence {
 public:
  ForwardSequence(const SequenceForwardArgs& args, void (*cell)(const CellForwardRow&))
      : args_(args), cell_(cell) {
    if (args.bias != nullptr) bias_ = aligned_array<acc_t>(blocks_ * gates_ * kLanes);
    for (int64_t s = 0; s < division_.shares(); ++s) {
      sums_.push_back(aligned_array<acc_t>(kRows * sums_stride_));
    }
  }

  void run() {
    pack_groups(division_, group_, gates_ * kLanes * hidden_,
                [&](int64_t block, int64_t block_end) { pack(block, block_end); });
    for (int64_t row = 0; row < args_.batch_size; ++row) begin_row(row);
    run_steps(division_, args_.steps, [&](int64_t step, int64_t index) {
      const SequenceShare share = division_.share(index);
      for (int64_t row = share.row; row < share.row_end; row += kRows) {
        const int64_t row_end = std::min(share.row_end, row + kRows);
        for_each_group(share, group_, [&](int64_t block, int64_t block_end) {
          run_block(step, row, row_end, block, block_end, sums_[index].get());
        });
      }
    });
    for (int64_t row = 0; row < args_.batch_size; ++row) end_row(row);
  }

 private:
  using acc_t = typename Weights::acc_t;
  using row_t = typename Weights::row_t;
  static constexpr int64_t kLanes = Weights::kLanes;
  static constexpr int64_t kRows = SequenceCpuBounds::kRows;  // of sums at a time

  const SequenceForwardArgs& args_;
  void (*const cell_)(const CellForwardRow&);
  const int gates_ = args_.SequenceSizes::gates;
  const int64_t hidden_ = args_.hidden_size;
  const int64_t blocks_ = ceil_div(hidden_, kLanes);
  // Blocks of units whose gates are done together: as many as fill whole panels, and a few of those, so
  // that a call of the cell has enough to do.
  static constexpr int64_t kVectors = RegisterTile<acc_t>::kVectors;
  const int64_t whole_ = gates_ % kVectors == 0 ? 1 : kVectors;
  const int64_t group_ = whole_ * std::max<int64_t>(1, 4 * kVectors / (whole_ * gates_));
  const int64_t sums_stride_ = group_ * gates_ * kLanes;
  const int64_t weights_count_ = gates_ * hidden_ * hidden_;
  const SequenceDivision division_ =
      divide_sequence(args_.steps, args_.batch_size, blocks_, args_.batch_size* weights_count_,
                      weights_count_ * sizeof(row_t));
  Weights weights_{blocks_ * gates_, hidden_};
  AlignedArray<acc_t> bias_;  // in the order of the weights' columns
  std::vector<AlignedArray<acc_t>> sums_;
  // What the weights are multiplied with, of two steps: h as it was before, and as it is after it.
  const int64_t h_stride_ = Weights::row_stride(hidden_);
  const AlignedArray<row_t> h_ = aligned_zeros<row_t>(2 * args_.batch_size * h_stride_);
  const int64_t states_stride_ = args_.batch_size * hidden_;
  const AlignedArray<acc_t> states_ = aligned_array<acc_t>(args_.states * states_stride_);

  row_t* h(int64_t step, int64_t row) const {
    return h_.get() + (step % 2 * args_.batch_size + row) * h_stride_;
  }
  acc_t* state(int64_t index, int64_t row) const {
    return states_.get() + index * states_stride_ + row * hidden_;
  }
  void pack(int64_t block, int64_t block_end) {
    const int64_t begin = block * gates_, end = block_end * gates_;
    weights_.pack_rows(begin, end, args_.weights_stride, [&](int64_t vector, int64_t& count) {
      return static_cast<const scalar_t*>(args_.weights) +
             first_of(vector, count) * args_.weights_stride;
    });
    for (int64_t vector = begin; vector < end && bias_ != nullptr; ++vector) {
      int64_t count;
      const int64_t first = first_of(vector, count);
      load(static_cast<const scalar_t*>(args_.bias) + first, count)
          .store(bias_.get() + vector * kLanes);
    }
  }

  // The first row of the weights that belongs to a vector of columns, and how many do.
  int64_t first_of(int64_t vector, int64_t& count) const {
    const int64_t unit = vector / gates_ * kLanes;
    count = std::min(kLanes, hidden_ - unit);
    return vector % gates_ * hidden_ + unit;
  }

  void begin_row(int64_t row) {
    const auto* old_h = static_cast<const scalar_t*>(args_.old_h);
    const auto* old_cells = static_cast<const acc_t*>(args_.old_cells);
    const bool resets = control_of(args_, 0, row) == kResets;
    if (resets || old_h == nullptr) {
      std::fill_n(h(0, row), hidden_, row_t(0));
      std::fill_n(state(0, row), hidden_, acc_t(0));
    } else {
      Weights::take_row(old_h + row * hidden_, hidden_, h(0, row));
      std::copy_n(old_h + row * hidden_, hidden_, state(0, row));
    }
    for (int s = 1; s < args_.states; ++s) {
      if (resets || old_cells == nullptr) {
        std::fill_n(state(s, row), hidden_, acc_t(0));
      } else {
        std::copy_n(old_cells + (s - 1) * states_stride_ + row * hidden_, hidden_, state(s, row));
      }
    }
  }

  void end_row(int64_t row) {
    std::copy_n(state(0, row), hidden_, static_cast<scalar_t*>(args_.new_h) + row * hidden_);
    for (int s = 1; s < args_.states; ++s) {
      std::copy_n(state(s, row), hidden_,
                  static_cast<acc_t*>(args_.new_cells) + (s - 1) * states_stride_ + row * hidden_);
    }
  }

  void run_block(int64_t step, int64_t row_begin, int64_t row_end, int64_t block, int64_t block_end,
                 acc_t* sums) {
    const int64_t vector = block * gates_, vector_end = block_end * gates_;
    weights_.multiply(h(step, row_begin), h_stride_, row_end - row_begin, vector, vector_end,
                      bias_ != nullptr ? bias_.get() + vector * kLanes : nullptr, sums,
                      sums_stride_);
    const int64_t unit = block * kLanes, units = std::min(block_end * kLanes, hidden_) - unit;
    for (int64_t row = row_begin; row < row_end; ++row, sums += sums_stride_) {
      run_row(step, row, unit, units, sums);
    }
  }

  void run_row(int64_t step, int64_t row, int64_t unit, int64_t units, const acc_t* sums) {
    if (step + 1 < args_.steps) {
      const scalar_t* next = row_of<scalar_t>(args_.gates, step + 1, row) + unit;
      for (int g = 0; g < gates_; ++g) prefetch_row(next + g * hidden_, units);
    }
    scalar_t* output = row_of<scalar_t>(args_.output, step, row) + unit;
    row_t* new_h = h(step + 1, row) + unit;
    if (control_of(args_, step, row) == kHolds) {
      std::fill_n(output, units, scalar_t(0));
      std::copy_n(h(step, row) + unit, units, new_h);
    } else {
      CellForwardRow cell{};
      cell.units = units;
      cell.gate_stride = hidden_;
      cell.gates = row_of<scalar_t>(args_.gates, step, row) + unit;
      cell.acc_sums = sums;
      if (args_.parameters != nullptr) {
        cell.parameters = static_cast<const scalar_t*>(args_.parameters) + unit;
      }
      cell.acc_states = state(0, row) + unit;
      cell.state_stride = cell.cell_stride = states_stride_;
      cell.output = output;
      if (args_.saved_gates.data != nullptr) {
        cell.saved_gates = row_of<scalar_t>(args_.saved_gates, step, row) + unit;
      }
      if (args_.saved_cells.data != nullptr) {
        cell.acc_saved_cells = row_of<acc_t>(args_.saved_cells, step, row) + unit;
      }
      cell_(cell);
      Weights::take_row(output, units, new_h);
    }
    if (step + 1 < args_.steps && control_of(args_, step + 1, row) == kResets) {
      std::fill_n(new_h, units, row_t(0));
      for (int s = 0; s < args_.states; ++s) std::fill_n(state(s, row) + unit, units, acc_t(0));
    }
  }
};

}  // namespace

void sequence_forward_cpu(const SequenceForwardArgs& args, const CpuCell& cell) {
  dispatch_weights(args.type, [&](auto scalar, auto weights) {
    using Weights = typename decltype(weights)::type;
    ForwardSequence<decltype(scalar), Weights>(args, cell.forward[static_cast<int>(args.type)])
        .run();
  });
}

}  // namespace lltm_jit
