// The steps of a sequence on the CPU.
#include "core/products/bounds.h"
#include "rnn/sequence/cpu/dots.h"
#include "rnn/sequence/cpu/recurrences.h"
#include "rnn/sequence/cpu/steps.h"
#include "rnn/sequence/cpu/threads.h"

namespace lltm_jit {
namespace {

template <typename scalar_t, typename Weights>
class ForwardSequence {
 public:
  ForwardSequence(const SequenceForwardArgs& args, const CpuSteps<scalar_t>& cell)
      : args_(args), cell_(cell.forward) {
    if (!Weights::kProduct) return;
    if (args.bias != nullptr) bias_ = aligned_array<acc_t>(blocks_ * gates_ * kLanes);
    if (args.input_bias != nullptr) input_bias_ = aligned_array<acc_t>(blocks_ * gates_ * kLanes);
    for (int64_t s = 0; s < division_.shares(); ++s) {
      scratch_.push_back({aligned_array<acc_t>(kRows * sums_stride_)});
      if (!has_input_) continue;
      scratch_.back().x = aligned_zeros<row_t>(kRows * x_stride_);
      scratch_.back().inputs = aligned_array<acc_t>(kRows * inputs_stride_);
    }
  }

  void run() {
    if constexpr (Weights::kProduct) {
      pack_groups(division_, group_, gates_ * kLanes * (hidden_ + input_size_),
                  [&](int64_t block, int64_t block_end) { pack(block, block_end); });
    }
    run_shares(division_, args_.steps, *this);
  }

  void begin(const SequenceShare& share) {
    for (int64_t row = share.row; row < share.row_end; ++row) {
      if (control_of(args_, 0, row) == kResets) {
        reset_row(0, row, share.unit, share.units);
      } else {
        set_row(0, row, share.unit, share.units, element_of<scalar_t>(args_.old_h, row * units_),
                element_of<acc_t>(args_.old_cells, row * units_));
      }
    }
  }

  void step(int64_t i, const SequenceShare& share) {
    if constexpr (Weights::kProduct) {
      const Scratch& scratch = scratch_[share.index];
      for (int64_t row = share.row; row < share.row_end; row += kRows) {
        const int64_t row_end = std::min(share.row_end, row + kRows);
        if (has_input_ && i % ahead_ == 0) take_input(i, row, row_end, scratch);
        for_each_group(share, group_, [&](int64_t block, int64_t block_end) {
          run_block(i, row, row_end, block, block_end, share, scratch);
        });
      }
    } else {
      run_row(i, share.row, share.unit, share.units, nullptr, nullptr);
    }
  }

  void end(const SequenceShare& share) {
    for (int64_t row = share.row; row < share.row_end; ++row) {
      states_.write(row, share.unit, share.units, element_of<scalar_t>(args_.new_h, row * units_),
                    element_of<acc_t>(args_.new_cells, row * units_));
    }
  }

 private:
  using acc_t = typename Weights::acc_t;
  using row_t = typename Weights::row_t;
  static constexpr int64_t kLanes = Weights::kLanes;
  static constexpr int64_t kRows = SequenceCpuBounds::kRows;  // rows of sums at a time

  // A thread's own arrays.
  struct Scratch {
    AlignedArray<acc_t> sums;
    // Rows of the input, and their products, for one step or for several steps in succession.
    AlignedArray<row_t> x{};
    AlignedArray<acc_t> inputs{};
  };

  const SequenceForwardArgs& args_;
  void (*const cell_)(const CellForwardRow<scalar_t>&);
  const int gates_ = args_.SequenceSizes::gates;
  const int64_t hidden_ = args_.hidden_size;
  const int64_t blocks_ = ceil_div(hidden_, kLanes);
  // The strides in the call's arrays, over all recurrences: from gate to gate, and from row to row.
  const int64_t gate_stride_ = args_.heads * hidden_;
  const int64_t units_ = args_.units();
  // Blocks of units whose gates are computed together: as many as fill whole panels, times a few,
  // so that one call of the cell has enough work.
  static constexpr int64_t kVectors = RegisterTile<acc_t>::kVectors;
  const int64_t whole_ = gates_ % kVectors == 0 ? 1 : kVectors;
  const int64_t group_ = whole_ * std::max<int64_t>(1, 4 * kVectors / (whole_ * gates_));
  const int64_t sums_stride_ = group_ * gates_ * kLanes;
  const bool has_input_ = args_.input.data != nullptr;
  const int64_t input_size_ = has_input_ ? args_.input_size : 0;
  const SequenceDivision division_ =
      Weights::kProduct
          ? divide_sequence(args_, kLanes,
                            args_.batch_size * gates_ * hidden_ * (hidden_ + input_size_),
                            gates_ * hidden_ * hidden_ * sizeof(row_t))
          : divide_without_product(args_, kLanes);
  Weights weights_{blocks_ * gates_, hidden_};
  // The input is multiplied for as many steps at once as give enough rows. The order of the sums is that of the
  // product over all steps, so that a layer's results do not depend on whether its gradients are computed.
  Weights input_weights_{has_input_ ? blocks_ * gates_ : 0, input_size_,
                         has_input_ ? packed_block_depth(input_size_) : 1};
  const int64_t ahead_ =
      std::max<int64_t>(1, kRows / ceil_div(args_.batch_size, division_.row_groups));
  const int64_t x_stride_ = Weights::row_stride(input_size_);
  const int64_t inputs_stride_ =
      ahead_ == 1 ? sums_stride_ : (ceil_div(blocks_, division_.unit_groups) * gates_ + 1) * kLanes;
  AlignedArray<acc_t> bias_, input_bias_;  // in the order of the weights' columns
  std::vector<Scratch> scratch_;
  // The left factor of products with the weights, for two steps: h before and after the step.
  const int64_t h_stride_ = Weights::row_stride(hidden_);
  const AlignedArray<row_t> h_ = aligned_zeros<row_t>(2 * args_.batch_size * h_stride_);
  const RowStates<scalar_t> states_{args_};

  row_t* h(int64_t step, int64_t row) const {
    return h_.get() + (step % 2 * args_.batch_size + row) * h_stride_;
  }
  void pack(int64_t block, int64_t block_end) {
    pack(block, block_end, weights_, args_.weights, args_.weights_stride, hidden_, args_.bias,
         bias_);
    if (!has_input_) return;
    pack(block, block_end, input_weights_, args_.input_weights, args_.input_weights_stride,
         gate_stride_, args_.input_bias, input_bias_);
  }
  // Packs weights whose gates are gate_rows rows apart.
  C10_NOINLINE void pack(int64_t block, int64_t block_end, Weights& packed, const void* weights,
                         int64_t stride, int64_t gate_rows, const void* bias,
                         const AlignedArray<acc_t>& packed_bias) {
    const int64_t begin = block * gates_, end = block_end * gates_;
    packed.pack_rows(begin, end, stride, [&](int64_t vector, int64_t& count) {
      return static_cast<const scalar_t*>(weights) + first_of(vector, gate_rows, count) * stride;
    });
    for (int64_t vector = begin; vector < end && bias != nullptr; ++vector) {
      int64_t count;
      const int64_t first = first_of(vector, gate_stride_, count);
      load(static_cast<const scalar_t*>(bias) + first, count)
          .store(packed_bias.get() + vector * kLanes);
    }
  }

  // The first row of the weights for a vector of columns; `count` gets the number of rows.
  int64_t first_of(int64_t vector, int64_t gate_stride, int64_t& count) const {
    const int64_t unit = vector / gates_ * kLanes;
    count = std::min(kLanes, hidden_ - unit);
    return vector % gates_ * gate_stride + unit;
  }

  // Resets a row before a step.
  void reset_row(int64_t step, int64_t row, int64_t unit, int64_t units) {
    set_row(step, row, unit, units, row_of<scalar_t>(args_.reset_h, step, row),
            row_of<acc_t>(args_.reset_cells, step, row));
  }
  // Sets a row's state before a step to its h and cells, or to zeros if they are null.
  void set_row(int64_t step, int64_t row, int64_t unit, int64_t units, const scalar_t* new_h,
               const acc_t* cells) {
    states_.read(row, unit, units, new_h, cells);
    if constexpr (Weights::kProduct) {
      copy_row(element_of<scalar_t>(new_h, unit), units, h(step, row) + unit);
    }
  }

  // The number of steps whose input is multiplied together, from this one on.
  int64_t steps_from(int64_t step) const { return std::min(ahead_, args_.steps - step); }

  void take_input(int64_t step, int64_t row_begin, int64_t row_end, const Scratch& scratch) {
    row_t* x = scratch.x.get();
    for (int64_t s = step; s < step + steps_from(step); ++s) {
      for (int64_t row = row_begin; row < row_end; ++row, x += x_stride_) {
        copy_row(row_of<scalar_t>(args_.input, s, row), input_size_, x);
      }
    }
  }

  void run_block(int64_t step, int64_t row_begin, int64_t row_end, int64_t block, int64_t block_end,
                 const SequenceShare& share, const Scratch& scratch) {
    const int64_t vector = block * gates_, vector_end = block_end * gates_;
    const int64_t rows = row_end - row_begin;
    const auto of_block = [&](const AlignedArray<acc_t>& bias) {
      return bias != nullptr ? bias.get() + vector * kLanes : nullptr;
    };
    acc_t *sums = scratch.sums.get(), *inputs = scratch.inputs.get();
    if (has_input_) {
      if (ahead_ > 1) inputs += (block - share.block) * gates_ * kLanes;
      if (step % ahead_ == 0) {
        input_weights_.multiply(scratch.x.get(), x_stride_, steps_from(step) * rows, vector,
                                vector_end, of_block(input_bias_), inputs, inputs_stride_);
      }
      inputs += step % ahead_ * rows * inputs_stride_;
    }
    weights_.multiply(h(step, row_begin), h_stride_, rows, vector, vector_end, of_block(bias_),
                      sums, sums_stride_);
    const int64_t unit = block * kLanes, units = std::min(block_end * kLanes, hidden_) - unit;
    for (int64_t row = row_begin; row < row_end; ++row, sums += sums_stride_) {
      run_row(step, row, unit, units, inputs, sums);
      if (has_input_) inputs += inputs_stride_;
    }
  }

  void run_row(int64_t step, int64_t row, int64_t unit, int64_t units, const acc_t* inputs,
               const acc_t* sums) {
    if (Weights::kProduct && !has_input_ && step + 1 < args_.steps) {
      const scalar_t* next = row_of<scalar_t>(args_.gates, step + 1, row, unit);
      for (int g = 0; g < gates_; ++g) prefetch_row(next + g * gate_stride_, units);
    }
    scalar_t* output = row_of<scalar_t>(args_.output, step, row, unit);
    const bool holds = control_of(args_, step, row) == kHolds;
    if (holds) {
      std::fill_n(output, units, scalar_t(0));
    } else {
      cell_({.units = units,
             .gate_stride = gate_stride_,
             .parameter_stride = units_,
             .gates = row_of<scalar_t>(args_.gates, step, row, unit),
             .inputs = inputs,
             .sums = sums,
             .parameters = element_of<scalar_t>(args_.parameters, unit),
             .states = states_(0, row) + unit,
             .state_stride = states_.stride,
             .output = output,
             .saved_gates = row_of<scalar_t>(args_.saved_gates, step, row, unit),
             .saved_cells = row_of<acc_t>(args_.saved_cells, step, row, unit),
             .cell_stride = args_.batch_size * units_});
    }
    if constexpr (Weights::kProduct) {
      row_t* new_h = h(step + 1, row) + unit;
      holds ? copy_row(h(step, row) + unit, units, new_h) : copy_row(output, units, new_h);
    }
    if (step + 1 < args_.steps && control_of(args_, step + 1, row) == kResets) {
      reset_row(step + 1, row, unit, units);
    }
  }
};

}  // namespace

void sequence_cpu(const SequenceForwardArgs& args, const CpuCell& cell) {
  run_recurrences<ForwardSequence>(args, cell);
}

}  // namespace lltm_jit
