// LLTM cell on the CPU: the pointwise part, after ATen's GEMM in the forward pass and before it in the backward pass.
#include "rnn/cell_step/cpu/pointwise.h"

#include "core/launch/parallel.h"

namespace lltm_jit {
namespace {

// The fewest elements per thread: about ten microseconds of exp and tanh, several times as long as
// waking a thread takes.
constexpr int64_t kGrainElements = 4096;

template <typename scalar_t, typename cell_t>
void forward_row(const LltmForwardArgs& args, int64_t row) {
  const int64_t hidden = args.hidden_size;
  auto* gates = static_cast<scalar_t*>(args.gates) + row * 3 * hidden;
  CellRow<scalar_t, cell_t> cell{};
  cell.old_cell = static_cast<const cell_t*>(args.old_cell) + row * hidden;
  cell.new_h = static_cast<scalar_t*>(args.new_h) + row * hidden;
  cell.new_cell = static_cast<cell_t*>(args.new_cell) + row * hidden;
  if (args.save_gates) {
    cell.input_gate = gates;
    cell.output_gate = gates + hidden;
    cell.candidate_cell = gates + 2 * hidden;
  }
  lltm_forward_row(cell, hidden, [&](int gate, int64_t i, int64_t n) {
    return load(gates + gate * hidden + i, n);
  });
}

template <typename scalar_t, typename cell_t>
void backward_row(const LltmBackwardArgs& args, int64_t row) {
  using Vec = at::vec::Vectorized<opmath_t<scalar_t>>;
  const int64_t hidden = args.hidden_size;
  const auto* gates = static_cast<const scalar_t*>(args.gates) + row * 3 * hidden;
  const auto* new_cell = static_cast<const cell_t*>(args.new_cell) + row * hidden;
  const auto* grad_h = static_cast<const scalar_t*>(args.grad_h) + row * hidden;
  const auto* grad_cell = static_cast<const cell_t*>(args.grad_cell) + row * hidden;
  auto* grad_pre = static_cast<scalar_t*>(args.grad_pre) + row * 3 * hidden;
  auto* grad_old_cell = static_cast<cell_t*>(args.grad_old_cell) + row * hidden;
  const Vec zero(0);
  for (int64_t i = 0; i < hidden; i += Vec::size()) {
    const int64_t n = std::min<int64_t>(Vec::size(), hidden - i);
    const auto grad = lltm_backward<Vec>(
        {load(gates + i, n), load(gates + hidden + i, n), load(gates + 2 * hidden + i, n)},
        load(new_cell + i, n), args.grad_h ? load(grad_h + i, n) : zero,
        args.grad_cell ? load(grad_cell + i, n) : zero);
    store(grad_pre + i, grad.pre.input_gate, n);
    store(grad_pre + hidden + i, grad.pre.output_gate, n);
    store(grad_pre + 2 * hidden + i, grad.pre.candidate_cell, n);
    if (args.grad_old_cell) store(grad_old_cell + i, grad.old_cell, n);
  }
}

// Calls function(row) for every row, in parallel if there are enough elements.
template <typename Function>
void for_each_row(int64_t rows, int64_t row_elements, const Function& function) {
  const int64_t grain = std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, row_elements));
  at::parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) function(row);
  });
}

}  // namespace

void lltm_forward_cpu(const LltmForwardArgs& args) {
  dispatch_types(args, [&](auto scalar, auto cell) {
    for_each_row(args.batch_size, args.hidden_size,
                 [&](int64_t row) { forward_row<decltype(scalar), decltype(cell)>(args, row); });
  });
}

void lltm_backward_cpu(const LltmBackwardArgs& args) {
  dispatch_types(args, [&](auto scalar, auto cell) {
    for_each_row(args.batch_size, args.hidden_size,
                 [&](int64_t row) { backward_row<decltype(scalar), decltype(cell)>(args, row); });
  });
}

}  // namespace lltm_jit
