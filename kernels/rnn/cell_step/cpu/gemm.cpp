// LLTM cell on the CPU with its own products: nothing is concatenated or transposed, and the
// pointwise part follows while the sums are in the cache. README.md says what this gains.
#include <memory>
#include <optional>
#include <vector>

#include "core/channel_sum/cpu.h"
#include "core/launch/parallel.h"
#include "rnn/cell_step/cpu/blocked_product.h"
#include "rnn/cell_step/cpu/forward_task.h"
#include "rnn/cell_step/cpu/limits.h"
#include "rnn/cell_step/cpu/pointwise.h"

namespace lltm_jit {
namespace {

// How many tasks are worth waking a thread: 2^16 multiply-adds take about a microsecond, and so
// does waking a thread.
int64_t grain_of(int64_t tasks, int64_t products) {
  constexpr int64_t kGrainProducts = 1 << 16;
  return std::max<int64_t>(1, kGrainProducts * tasks / std::max<int64_t>(1, products));
}

// Divides `count` into a few equal pieces per thread, in multiples of `unit`.
int64_t piece_of(int64_t count, int64_t unit) {
  constexpr int64_t kPieces = 3;
  return ceil_div(ceil_div(count, kPieces * at::get_num_threads()), unit) * unit;
}

// --------------------------------------------------------------------------------------- forward --

// The pointwise part of a task.
template <typename scalar_t, typename cell_t>
void activate(const LltmCellArgs& args, const ForwardTask<scalar_t>& task) {
  const auto* bias = static_cast<const scalar_t*>(args.bias);
  for (int64_t row = 0; row < task.rows; ++row) {
    lltm_forward_row<scalar_t, cell_t>(
        args, task.row + row, task.unit, task.units, args.gates,
        [&](int gate, int64_t i, int64_t n) {
          const auto sum = load(&task.sums[row][gate][i], n);
          if (bias == nullptr) return sum;
          return sum + load(bias + gate * args.hidden_size + task.unit + i, n);
        });
  }
}

// The pointwise part is a parameter, because it alone depends on the cell's type.
template <typename scalar_t>
void run_cell(const LltmCellArgs& args,
              void (*pointwise)(const LltmCellArgs&, const ForwardTask<scalar_t>&)) {
  using Task = ForwardTask<scalar_t>;
  const int64_t batch = args.batch_size;
  const int64_t unit_blocks = ceil_div(args.hidden_size, Task::kUnits);
  std::optional<typename Task::State> state;
  using Bounds = LltmCpuBounds;
  int64_t rows = std::min(batch, Bounds::kDotTaskRows);
  if (batch >= Bounds::kFewestRowsForPanels) {
    state.emplace(typename Task::State{
        {static_cast<const scalar_t*>(args.old_h), args.old_h_stride, batch, args.hidden_size},
        {static_cast<const scalar_t*>(args.input), args.input_stride, batch, args.input_size}});
    rows = std::clamp(piece_of(batch * unit_blocks, 8) / unit_blocks / 8 * 8,
                      Bounds::kFewestTaskRows, Bounds::kTaskRows);
  }
  const int64_t row_blocks = ceil_div(batch, rows), tasks = row_blocks * unit_blocks;
  const int64_t products = batch * kGates * args.hidden_size * (args.hidden_size + args.input_size);
  for_each_task(tasks, grain_of(tasks, products), [&](int64_t index) {
    // Neighbouring tasks share rows of the weights, which are most of the memory that is read.
    Task task(args, index % row_blocks * rows, rows, index / row_blocks * Task::kUnits);
    task.multiply(state ? &*state : nullptr);
    pointwise(args, task);
  });
}

// -------------------------------------------------------------------------------------- backward --

// Note [Deep products]
// The weights' gradient is a sum over the batch. If the batch is large and the gradient small,
// there are more threads than tiles. Then every kSplitDepth rows of the batch give a gradient of
// their own, in the arithmetic type, and these gradients are added in order.
template <typename scalar_t>
class BackwardProducts : LltmCpuBounds {
 public:
  explicit BackwardProducts(const LltmProductsArgs& args) : args_(args) {
    add_state(args.grad_old_h, 0, args.hidden_size);
    add_state(args.grad_input, args.hidden_size, args.input_size);
    if (args.grad_weights == nullptr) return;
    if (args.batch_size > kSplitDepth && gates_ * columns_ <= kLargestSplit) {
      splits_ = ceil_div(args.batch_size, kSplitDepth);
      split_sums_.reset(new acc_t[splits_ * gates_ * columns_]);
    }
    // Parts go from the top down, so that a thread writes contiguous memory.
    const int64_t rows = std::clamp<int64_t>(piece_of(gates_, 8), 32, 512);
    for (int64_t row = 0; row < gates_; row += rows) {
      add_weights(args.old_h, args.old_h_stride, 0, args.hidden_size, row, rows);
      add_weights(args.input, args.input_stride, args.hidden_size, args.input_size, row, rows);
    }
  }

  void run() {
    const int64_t sums = args_.grad_bias != nullptr ? ceil_div(gates_, kSumColumns) : 0;
    const int64_t states = sums + static_cast<int64_t>(parts_.size());
    const int64_t tasks = states + static_cast<int64_t>(split_parts_.size());
    for_each_task(tasks, grain_of(tasks, products_), [&](int64_t task) {
      if (task < sums) {
        sum_bias(task * kSumColumns);
      } else if (task < states) {
        multiply(parts_[task - sums]);
      } else {
        multiply(split_parts_[task - states]);
      }
    });
    if (splits_ > 0) {
      const int64_t rows_at_once = std::max<int64_t>(1, 4096 / columns_), size = gates_ * columns_;
      at::parallel_for(0, gates_, rows_at_once, [&](int64_t begin, int64_t end) {
        sum_rows(split_sums_.get() + begin * columns_, size, splits_, (end - begin) * columns_,
                 static_cast<scalar_t*>(args_.grad_weights) + begin * columns_);
      });
    }
  }

 private:
  using acc_t = opmath_t<scalar_t>;
  static constexpr int64_t kSumColumns =
      4 * RegisterTile<acc_t>::kLanes;  // of the bias's gradient per task

  const LltmProductsArgs& args_;
  const int64_t gates_ = kGates * args_.hidden_size;
  const int64_t columns_ = args_.hidden_size + args_.input_size;
  const scalar_t* grad_pre_ = static_cast<const scalar_t*>(args_.grad_pre);
  const WideRows<scalar_t> wide_grad_{grad_pre_, gates_, args_.batch_size, gates_};
  int64_t products_ = 0;
  std::vector<Product<scalar_t>> parts_;
  std::vector<Product<scalar_t, acc_t>> split_parts_;
  int64_t splits_ = 0;
  std::unique_ptr<acc_t[]> split_sums_;  // [splits, 3*hidden_size, hidden_size+input_size]

  // The gradient of h or x, in panels. For a single row, longer rows of the weights are read faster.
  void add_state(void* grad, int64_t first_column, int64_t size) {
    if (grad == nullptr) return;
    const Product<scalar_t> product{.a = wide_grad_.data,
                                    .a_row_stride = wide_grad_.stride,
                                    .a_depth_stride = 1,
                                    .b = static_cast<const scalar_t*>(args_.weights) + first_column,
                                    .b_stride = args_.weights_stride,
                                    .c = static_cast<scalar_t*>(grad),
                                    .c_stride = size,
                                    .rows = args_.batch_size,
                                    .columns = size,
                                    .depth = gates_};
    constexpr int64_t kRows = 512, kOneRowColumns = 128;
    for (int64_t width, column = 0; column < size; column += width) {
      width = args_.batch_size == 1 ? kOneRowColumns : panel_columns<acc_t>(size - column);
      for (int64_t row = 0; row < args_.batch_size; row += kRows) {
        parts_.push_back(product.part(row, kRows, column, width));
      }
    }
    products_ += args_.batch_size * size * gates_;
  }

  // Some rows of the weights' gradient, in the columns of h or of x.
  void add_weights(const void* state, int64_t stride, int64_t first_column, int64_t size,
                   int64_t row, int64_t rows) {
    const auto append = [&](auto& parts, auto* target, int64_t first, int64_t depth) {
      const typename std::decay_t<decltype(parts)>::value_type product{
          .a = wide_grad_.data + first * wide_grad_.stride,
          .a_row_stride = 1,
          .a_depth_stride = wide_grad_.stride,
          .b = static_cast<const scalar_t*>(state) + first * stride,
          .b_stride = stride,
          .c = target + first_column,
          .c_stride = columns_,
          .rows = gates_,
          .columns = size,
          .depth = depth};
      parts.push_back(product.part(row, rows, 0, size));
    };
    for (int64_t split = 0; split < splits_; ++split) {
      const int64_t first = split * kSplitDepth;
      append(split_parts_, split_sums_.get() + split * gates_ * columns_, first,
             std::min(kSplitDepth, args_.batch_size - first));
    }
    if (splits_ == 0) {
      append(parts_, static_cast<scalar_t*>(args_.grad_weights), 0, args_.batch_size);
    }
    products_ += std::min(rows, gates_ - row) * size * args_.batch_size;
  }

  // Sums kSumColumns columns of grad_pre for the bias's gradient.
  void sum_bias(int64_t first) {
    sum_rows(grad_pre_ + first, gates_, args_.batch_size, std::min(kSumColumns, gates_ - first),
             static_cast<scalar_t*>(args_.grad_bias) + first);
  }
};

}  // namespace

void lltm_cell_cpu(const LltmCellArgs& args) {
  dispatch_types(args, [&](auto scalar, auto cell) {
    run_cell<decltype(scalar)>(args, activate<decltype(scalar), decltype(cell)>);
  });
}

void lltm_products_cpu(const LltmProductsArgs& args) {
  dispatch_floating(args.type,
                    [&](auto scalar) { BackwardProducts<decltype(scalar)>(args).run(); });
}

}  // namespace lltm_jit
