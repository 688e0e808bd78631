// LLTM cell on the CPU with products of its own: nothing is concatenated or transposed, and the
// pointwise part follows while the sums are in the cache. See README.md for what it gains.
#include <memory>
#include <optional>
#include <vector>

#include "core/channel_sum/cpu.h"
#include "core/launch/parallel.h"
#include "core/products/panels.h"
#include "rnn/cell_step/cpu/dot_tile.h"
#include "rnn/cell_step/cpu/limits.h"
#include "rnn/cell_step/cpu/pointwise.h"

namespace lltm_jit {
namespace {

constexpr int kGates = 3;

// How many tasks make a thread worth waking: 2^16 multiply-adds are about a microsecond, which is
// what waking one costs.
int64_t grain_of(int64_t tasks, int64_t products) {
  constexpr int64_t kGrainProducts = 1 << 16;
  return std::max<int64_t>(1, kGrainProducts * tasks / std::max<int64_t>(1, products));
}

// `count` divided into a few equal pieces for each thread, in multiples of `unit`.
int64_t piece_of(int64_t count, int64_t unit) {
  constexpr int64_t kPieces = 3;
  return ceil_div(ceil_div(count, kPieces * at::get_num_threads()), unit) * unit;
}

// --------------------------------------------------------------------------------------- forward --

// One task: the cell for some rows and some hidden units.
template <typename scalar_t>
class ForwardTask : LltmCpuBounds {
 public:
  using acc_t = opmath_t<scalar_t>;
  using Shape = RegisterTile<acc_t>;
  // As many as fill the columns of a panel with the gates of each.
  static constexpr int64_t kUnits = Shape::kLanes;
  using Sums = acc_t[kGates][kUnits];

  // What panels are multiplied with; few rows do without.
  struct State {
    WideRows<scalar_t> old_h, input;
  };

  ForwardTask(const LltmCellArgs& args, int64_t row, int64_t rows, int64_t unit)
      : row(row),
        rows(std::min(rows, args.batch_size - row)),
        unit(unit),
        units(std::min(kUnits, args.hidden_size - unit)),
        args_(args) {}

  const int64_t row, rows, unit, units;
  alignas(64) Sums sums[kTaskRows];  // the pre-activations, without the bias

  void multiply(const State* state) {
    if (state == nullptr) {
      for (int64_t u = 0; u < units; u += kTileUnits) multiply_dots(u);
    } else {
      add_panels(state->old_h, args_.hidden_size, 0);
      add_panels(state->input, args_.input_size, args_.hidden_size);
    }
  }

 private:
  using Vec = typename Shape::Vec;
  static_assert(Shape::kPanel == kGates * kUnits);
  static constexpr int kTileUnits = Shape::kDotColumns / kGates;
  static_assert(kUnits % kTileUnits == 0);

  const LltmCellArgs& args_;

  const scalar_t* weights_of(int64_t u) const {
    return static_cast<const scalar_t*>(args_.weights) + (unit + u) * args_.weights_stride;
  }

  // ------------------------------------------------------------------------------- few rows --

  // The three gates of kTileUnits units for all rows, a piece of [h, x] after the other.
  void multiply_dots(int64_t u) {
    // Of tiles whose rows are longer than kDotDepth: the sums so far, lane by lane.
    alignas(64) acc_t partial[kDotTaskRows * Shape::kDotColumns * Shape::kLanes];
    const int64_t columns = args_.hidden_size + args_.input_size;
    for (int64_t begin = 0; begin < columns; begin += kDotDepth) {
      const int64_t end = std::min(columns, begin + kDotDepth);
      for (int64_t r = 0; r < rows;) {
        if (rows - r >= Shape::kDotRows) {
          r += multiply_tile<Shape::kDotRows>(r, u, begin, end, partial);
        } else if (rows - r >= 2) {
          r += multiply_tile<2>(r, u, begin, end, partial);
        } else {
          r += multiply_tile<1>(r, u, begin, end, partial);
        }
      }
    }
  }

  template <int kRows>
  int multiply_tile(int64_t r, int64_t u, int64_t begin, int64_t end, acc_t* partial) {
    const int64_t hidden = args_.hidden_size;
    const scalar_t* weights = weights_of(u);
    int64_t offsets[Shape::kDotColumns];
    for (int gate = 0; gate < kGates; ++gate) {
      for (int64_t i = 0; i < kTileUnits; ++i) {
        const int64_t next = std::min(i, units - 1 - u);  // units beyond the last are ignored
        offsets[gate * kTileUnits + i] = (gate * hidden + next) * args_.weights_stride;
      }
    }
    const auto piece = [&](const void* state, int64_t stride, int64_t from, int64_t to,
                           int64_t first_column) -> DotPiece<scalar_t> {
      return {static_cast<const scalar_t*>(state) + (row + r) * stride + from, stride,
              weights + first_column + from, std::max<int64_t>(0, to - from)};
    };
    const bool last = end == hidden + args_.input_size;
    acc_t target[ceil_div(kRows * Shape::kDotColumns, Shape::kLanes) * Shape::kLanes];
    dot_tile<scalar_t, kRows, Shape::kDotColumns>(
        {piece(args_.old_h, args_.old_h_stride, std::min(begin, hidden), std::min(end, hidden), 0),
         piece(args_.input, args_.input_stride, std::max<int64_t>(begin - hidden, 0),
               std::max<int64_t>(end - hidden, 0), hidden)},
        offsets, begin == 0, last, partial + r * Shape::kDotColumns * Shape::kLanes, target);
    if (!last) return kRows;
    for (int k = 0; k < kRows; ++k) {
      for (int gate = 0; gate < kGates; ++gate) {
        std::copy_n(target + (k * kGates + gate) * kTileUnits, kTileUnits, &sums[r + k][gate][u]);
      }
    }
    return kRows;
  }

  // ------------------------------------------------------------------------------ many rows --

  // Adds rows of `depth` times the columns of the weights from `first_column` on.
  C10_NOINLINE void add_panels(const WideRows<scalar_t>& state, int64_t depth,
                               int64_t first_column) {
    alignas(64) acc_t panel[kBlockDepth * Shape::kPanel];
    for (int64_t begin = 0; begin < depth; begin += kBlockDepth) {
      Tile<acc_t> tile{};
      tile.a = state.data + row * state.stride + begin;
      tile.a_row_stride = state.stride;
      tile.a_depth_stride = 1;
      tile.b = panel;
      tile.c = sums[0][0];
      tile.sums = first_column + begin == 0 ? nullptr : tile.c;
      tile.b_stride = tile.c_stride = tile.sums_stride = tile.columns = Shape::kPanel;
      tile.depth = std::min(kBlockDepth, depth - begin);
      transpose_weights(first_column + begin, tile.depth, panel);
      multiply_rows(tile, rows);
    }
  }

  // The weights of all gates for some columns: panel[column][gate][unit].
  C10_NOINLINE void transpose_weights(int64_t first_column, int64_t columns, acc_t* panel) const {
    for (int gate = 0; gate < kGates; ++gate) {
      const scalar_t* weights =
          weights_of(0) + gate * args_.hidden_size * args_.weights_stride + first_column;
      for (int64_t column = 0; column < columns; column += Shape::kLanes) {
        const int64_t n = std::min<int64_t>(Shape::kLanes, columns - column);
        Vec block[Shape::kLanes];
        for (int64_t u = 0; u < kUnits; ++u) {
          const int64_t next = std::min(u, units - 1);  // units beyond the last are ignored
          block[u] = load(weights + next * args_.weights_stride + column, n);
        }
        transpose(block);
        acc_t* target = panel + column * Shape::kPanel + gate * kUnits;
        for (int k = 0; k < Shape::kLanes; ++k) block[k].store(target + k * Shape::kPanel);
      }
    }
  }
};

// The pointwise part of a task.
template <typename scalar_t, typename cell_t>
void activate(const LltmCellArgs& args, const ForwardTask<scalar_t>& task) {
  const int64_t hidden = args.hidden_size;
  const auto* bias = static_cast<const scalar_t*>(args.bias);
  for (int64_t row = 0; row < task.rows; ++row) {
    const int64_t place = (task.row + row) * hidden + task.unit;
    CellRow<scalar_t, cell_t> cell{};
    cell.old_cell = static_cast<const cell_t*>(args.old_cell) + place;
    cell.new_h = static_cast<scalar_t*>(args.new_h) + place;
    cell.new_cell = static_cast<cell_t*>(args.new_cell) + place;
    if (args.gates != nullptr) {
      cell.input_gate =
          static_cast<scalar_t*>(args.gates) + (task.row + row) * kGates * hidden + task.unit;
      cell.output_gate = cell.input_gate + hidden;
      cell.candidate_cell = cell.output_gate + hidden;
    }
    lltm_forward_row(cell, task.units, [&](int gate, int64_t i, int64_t n) {
      const auto sum = load(&task.sums[row][gate][i], n);
      return bias != nullptr ? sum + load(bias + gate * hidden + task.unit + i, n) : sum;
    });
  }
}

// The pointwise part is handed over, since it alone depends on the cell's type.
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
    // Neighbouring tasks share their rows of weights, which are most of what is read.
    Task task(args, index % row_blocks * rows, rows, index / row_blocks * Task::kUnits);
    task.multiply(state ? &*state : nullptr);
    pointwise(args, task);
  });
}

// -------------------------------------------------------------------------------------- backward --

// Note [Deep products]
// The weights' gradient is a sum over the batch. Where the batch is large and the gradient small there
// are more threads than tiles; then each kSplitDepth rows of the batch give a gradient of their own,
// in the arithmetic type, and these are summed in order.
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
    // From the top, so that what is written lies together.
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
      const int64_t rows_at_once = std::max<int64_t>(1, 4096 / columns_);
      at::parallel_for(0, gates_, rows_at_once, [&](int64_t begin, int64_t end) {
        sum_splits(begin * columns_, end * columns_);
      });
    }
  }

 private:
  using acc_t = opmath_t<scalar_t>;
  using Vec = at::vec::Vectorized<acc_t>;
  static constexpr int64_t kSumColumns = 4 * Vec::size();  // of the bias's gradient, in one task

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

  // The gradient of h or x, in panels; one row reads the weights best in longer rows.
  void add_state(void* grad, int64_t first_column, int64_t size) {
    if (grad == nullptr) return;
    Product<scalar_t> product{};
    product.a = wide_grad_.data;
    product.a_row_stride = wide_grad_.stride;
    product.a_depth_stride = 1;
    product.b = static_cast<const scalar_t*>(args_.weights) + first_column;
    product.b_stride = args_.weights_stride;
    product.c = static_cast<scalar_t*>(grad);
    product.c_stride = size;
    product.rows = args_.batch_size;
    product.columns = size;
    product.depth = gates_;
    constexpr int64_t kRows = 512, kOneRowColumns = 128;
    for (int64_t width, column = 0; column < size; column += width) {
      width = args_.batch_size == 1 ? kOneRowColumns : panel_columns<acc_t>(size - column);
      for (int64_t row = 0; row < args_.batch_size; row += kRows) {
        parts_.push_back(product.part(row, kRows, column, width));
      }
    }
    products_ += args_.batch_size * size * gates_;
  }

  // Some rows of the weights' gradient, from h or x.
  void add_weights(const void* state, int64_t stride, int64_t first_column, int64_t size,
                   int64_t row, int64_t rows) {
    const auto append = [&](auto& parts, auto* target, int64_t first, int64_t depth) {
      typename std::decay_t<decltype(parts)>::value_type product{};
      product.a = wide_grad_.data + first * wide_grad_.stride;
      product.a_row_stride = 1;
      product.a_depth_stride = wide_grad_.stride;
      product.b = static_cast<const scalar_t*>(state) + first * stride;
      product.b_stride = stride;
      product.c = target + first_column;
      product.c_stride = columns_;
      product.rows = gates_;
      product.columns = size;
      product.depth = depth;
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

  // The bias's gradient for kSumColumns of grad_pre's columns.
  void sum_bias(int64_t first) {
    sum_rows(grad_pre_ + first, gates_, args_.batch_size, std::min(kSumColumns, gates_ - first),
             static_cast<scalar_t*>(args_.grad_bias) + first);
  }

  // Elements [begin, end) of the weights' gradient.
  void sum_splits(int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += Vec::size()) {
      const int64_t n = std::min<int64_t>(Vec::size(), end - i);
      Vec sum(0);
      for (int64_t split = 0; split < splits_; ++split) {
        sum = sum + load(&split_sums_[split * gates_ * columns_ + i], n);
      }
      store(static_cast<scalar_t*>(args_.grad_weights) + i, sum, n);
    }
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
