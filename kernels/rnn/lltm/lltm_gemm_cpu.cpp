// LLTM cell on the CPU with products of its own: nothing is concatenated or transposed, and the
// pointwise part follows while the sums are in the cache. See README.md for what it gains.
#include <vector>

#include "core/cpu/parallel.h"
#include "core/cpu/tile_gemm.h"
#include "rnn/lltm/lltm_pointwise_cpu.h"

namespace lltm_jit {
namespace {

// Multiply-adds for each thread at least: about a microsecond, which is what waking one costs.
constexpr int64_t kGrainProducts = 1 << 16;

// Calls function(task) for every task, in parallel when there is enough to do.
template <typename Function>
void for_each_task(int64_t tasks, int64_t products, const Function& function) {
  const int64_t grain =
      std::max<int64_t>(1, kGrainProducts * tasks / std::max<int64_t>(1, products));
  at::parallel_for(0, tasks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) function(task);
  });
}

// --------------------------------------------------------------------------------------- forward --

// One task: the cell for some rows and some hidden units.
constexpr int64_t kTaskRows = 64, kTaskUnits = 16;

// Columns of [h, x] at a time: the rows that a tile reads then stay in the first-level cache.
constexpr int64_t kTaskColumns = 1024;

template <typename scalar_t, typename cell_t>
class ForwardTask {
 public:
  ForwardTask(const LltmCellArgs& args, int64_t row, int64_t unit)
      : args_(args),
        row_(row),
        rows_(std::min(kTaskRows, args.batch_size - row)),
        unit_(unit),
        units_(std::min(kTaskUnits, args.hidden_size - unit)) {}

  void run() {
    for (int64_t unit = 0; unit < units_;) {
      if (units_ - unit >= kTileUnits) {
        multiply<kTileUnits>(unit);
        unit += kTileUnits;
      } else {
        multiply<1>(unit);
        unit += 1;
      }
    }
    for (int64_t row = 0; row < rows_; ++row) activate(row);
  }

 private:
  using acc_t = opmath_t<scalar_t>;
  using Shape = TileShape<acc_t>;
  static constexpr int kGates = 3;
  static constexpr int kTileUnits = Shape::kDotColumns / kGates;

  const LltmCellArgs& args_;
  int64_t row_, rows_, unit_, units_;
  alignas(64) acc_t sums_[kGates][kTaskRows][kTaskUnits];
  // Of tiles whose rows are longer than kTaskColumns: the sums so far, lane by lane.
  alignas(64) acc_t partial_[kTaskRows * Shape::kDotColumns * Shape::kLanes];

  // The three gates of kUnits units for all rows, a piece of [h, x] after the other.
  template <int kUnits>
  void multiply(int64_t unit) {
    const int64_t columns = args_.hidden_size + args_.input_size;
    for (int64_t begin = 0; begin < columns; begin += kTaskColumns) {
      const int64_t end = std::min(columns, begin + kTaskColumns);
      for (int64_t row = 0; row < rows_;) {
        const int64_t left = rows_ - row;
        if (left >= Shape::kDotRows) {
          row += multiply_tile<Shape::kDotRows, kUnits>(row, unit, begin, end);
        } else if (left >= 2) {
          row += multiply_tile<2, kUnits>(row, unit, begin, end);
        } else {
          row += multiply_tile<1, kUnits>(row, unit, begin, end);
        }
      }
    }
  }

  template <int kRows, int kUnits>
  int multiply_tile(int64_t row, int64_t unit, int64_t begin, int64_t end) {
    constexpr int kColumns = kGates * kUnits;
    const int64_t hidden = args_.hidden_size;
    const auto* weights =
        static_cast<const scalar_t*>(args_.weights) + (unit_ + unit) * args_.weights_stride;
    int64_t offsets[kColumns];
    for (int gate = 0; gate < kGates; ++gate) {
      for (int u = 0; u < kUnits; ++u) {
        offsets[gate * kUnits + u] = (gate * hidden + u) * args_.weights_stride;
      }
    }
    const auto piece = [&](const void* rows, int64_t stride, int64_t from, int64_t to,
                           int64_t first_column) -> DotPiece<scalar_t> {
      return {static_cast<const scalar_t*>(rows) + (row_ + row) * stride + from, stride,
              weights + first_column + from, std::max<int64_t>(0, to - from)};
    };
    const bool last = end == hidden + args_.input_size;
    acc_t sums[ceil_div(kRows * kColumns, Shape::kLanes) * Shape::kLanes];
    dot_tile<scalar_t, kRows, kColumns>(
        {piece(args_.old_h, args_.old_h_stride, std::min(begin, hidden), std::min(end, hidden), 0),
         piece(args_.input, args_.input_stride, std::max<int64_t>(begin - hidden, 0),
               std::max<int64_t>(end - hidden, 0), hidden)},
        offsets, begin == 0, last, partial_ + row * Shape::kDotColumns * Shape::kLanes, sums);
    if (!last) return kRows;
    for (int r = 0; r < kRows; ++r) {
      for (int gate = 0; gate < kGates; ++gate) {
        for (int u = 0; u < kUnits; ++u) {
          sums_[gate][row + r][unit + u] = sums[r * kColumns + gate * kUnits + u];
        }
      }
    }
    return kRows;
  }

  void activate(int64_t row) {
    const int64_t hidden = args_.hidden_size;
    const int64_t place = (row_ + row) * hidden + unit_;
    CellRow<scalar_t, cell_t> cell{};
    cell.old_cell = static_cast<const cell_t*>(args_.old_cell) + place;
    cell.new_h = static_cast<scalar_t*>(args_.new_h) + place;
    cell.new_cell = static_cast<cell_t*>(args_.new_cell) + place;
    if (args_.gates != nullptr) {
      cell.input_gate =
          static_cast<scalar_t*>(args_.gates) + (row_ + row) * kGates * hidden + unit_;
      cell.output_gate = cell.input_gate + hidden;
      cell.candidate_cell = cell.output_gate + hidden;
    }
    const auto* bias = static_cast<const scalar_t*>(args_.bias);
    lltm_forward_row(cell, units_, [&](int gate, int64_t i, int64_t n) {
      const auto sum = load(&sums_[gate][row][i], n);
      return bias != nullptr ? sum + load(bias + gate * hidden + unit_ + i, n) : sum;
    });
  }
};

// -------------------------------------------------------------------------------------- backward --

// Rows of a product in one task.
constexpr int64_t kProductRows = 512;

// The panels of all the wanted products: equal tasks, since both kinds have the same operations.
template <typename scalar_t>
std::vector<Panel<scalar_t>> panels(const LltmProductsArgs& args) {
  const int64_t hidden = args.hidden_size, gates = 3 * hidden;
  const int64_t columns = hidden + args.input_size;
  const auto* grad_pre = static_cast<const scalar_t*>(args.grad_pre);
  std::vector<Panel<scalar_t>> result;
  const auto append = [&](Panel<scalar_t> product) {
    const int64_t all_columns = product.columns, all_rows = product.rows;
    constexpr int64_t kPanel = TileShape<opmath_t<scalar_t>>::kPanel;
    for (int64_t column = 0; column < all_columns; column += kPanel) {
      for (int64_t row = 0; row < all_rows; row += kProductRows) {
        Panel<scalar_t> panel = product;
        panel.a += row * product.a_row_stride;
        panel.b += column;
        panel.c += row * product.c_stride + column;
        panel.rows = std::min(kProductRows, all_rows - row);
        panel.columns = std::min(kPanel, all_columns - column);
        result.push_back(panel);
      }
    }
  };
  const auto of_state = [&](void* grad, int64_t first_column, int64_t size) {
    if (grad == nullptr) return;
    append({grad_pre, gates, 1, static_cast<const scalar_t*>(args.weights) + first_column,
            args.weights_stride, static_cast<scalar_t*>(grad), size, args.batch_size, size, gates});
  };
  const auto of_weights = [&](const void* state, int64_t stride, int64_t first_column,
                              int64_t size) {
    if (args.grad_weights == nullptr) return;
    append({grad_pre, 1, gates, static_cast<const scalar_t*>(state), stride,
            static_cast<scalar_t*>(args.grad_weights) + first_column, columns, gates, size,
            args.batch_size});
  };
  of_state(args.grad_old_h, 0, hidden);
  of_state(args.grad_input, hidden, args.input_size);
  of_weights(args.old_h, args.old_h_stride, 0, hidden);
  of_weights(args.input, args.input_stride, hidden, args.input_size);
  return result;
}

// The sums over the batch of grad_pre's columns.
template <typename scalar_t>
void sum_rows(const LltmProductsArgs& args) {
  using Vec = at::vec::Vectorized<opmath_t<scalar_t>>;
  const int64_t gates = 3 * args.hidden_size;
  for (int64_t i = 0; i < gates; i += Vec::size()) {
    const int64_t n = std::min<int64_t>(Vec::size(), gates - i);
    const auto* column = static_cast<const scalar_t*>(args.grad_pre) + i;
    Vec sum(0);
    for (int64_t first = 0; first < args.batch_size; first += kPanelDepth) {
      Vec block(0);
      const int64_t last = std::min(args.batch_size, first + kPanelDepth);
      for (int64_t row = first; row < last; ++row) block = block + load(column + row * gates, n);
      sum = sum + block;
    }
    store(static_cast<scalar_t*>(args.grad_bias) + i, sum, n);
  }
}

template <typename scalar_t>
void products(const LltmProductsArgs& args) {
  const auto tasks = panels<scalar_t>(args);
  const int64_t count = tasks.size() + (args.grad_bias != nullptr ? 1 : 0);
  int64_t products = 0;
  for (const auto& panel : tasks) products += panel.rows * panel.columns * panel.depth;
  for_each_task(count, products, [&](int64_t task) {
    if (task < static_cast<int64_t>(tasks.size())) {
      multiply_panel(tasks[task]);
    } else {
      sum_rows<scalar_t>(args);
    }
  });
}

}  // namespace

void lltm_cell_cpu(const LltmCellArgs& args) {
  dispatch_types(args, [&](auto scalar, auto cell) {
    const int64_t row_blocks = ceil_div(args.batch_size, kTaskRows);
    const int64_t tasks = row_blocks * ceil_div(args.hidden_size, kTaskUnits);
    const int64_t products =
        args.batch_size * 3 * args.hidden_size * (args.hidden_size + args.input_size);
    for_each_task(tasks, products, [&](int64_t task) {
      // Neighbouring tasks share their rows of weights, which are most of what is read.
      ForwardTask<decltype(scalar), decltype(cell)>(args, task % row_blocks * kTaskRows,
                                                    task / row_blocks * kTaskUnits)
          .run();
    });
  });
}

void lltm_products_cpu(const LltmProductsArgs& args) {
  switch (args.type) {
    case ElementType::Half:
      return products<c10::Half>(args);
    case ElementType::BFloat16:
      return products<c10::BFloat16>(args);
    case ElementType::Float:
      return products<float>(args);
    default:
      return products<double>(args);
  }
}

}  // namespace lltm_jit
