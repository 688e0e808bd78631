// LLTM cell on the CPU: the pointwise part, after ATen's GEMM in the forward pass and before it in the backward pass.
#include "rnn/cell_step/cpu/pointwise.h"

#include "core/launch/parallel.h"

namespace lltm_jit {
namespace {

// The fewest elements per thread: about ten microseconds of exp and tanh, several times as long as
// waking a thread takes.
constexpr int64_t kGrainElements = 4096;

template <typename scalar_t, typename cell_t>
void run_row(const LltmForwardArgs& args, int64_t row) {
  const auto* gates = static_cast<const scalar_t*>(args.gates) + row * 3 * args.hidden_size;
  lltm_forward_row<scalar_t, cell_t>(
      args, row, 0, args.hidden_size, args.save_gates ? args.gates : nullptr,
      [&](int gate, int64_t i, int64_t n) { return load(gates + gate * args.hidden_size + i, n); });
}

template <typename scalar_t, typename cell_t>
void run_row(const LltmBackwardArgs& args, int64_t row) {
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

// Runs every row, in parallel if there are enough elements.
template <typename Args>
void run_rows(const Args& args) {
  const int64_t grain = std::max<int64_t>(1, kGrainElements / args.hidden_size);
  dispatch_types(args, [&](auto scalar, auto cell) {
    at::parallel_for(0, args.batch_size, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        run_row<decltype(scalar), decltype(cell)>(args, row);
      }
    });
  });
}

}  // namespace

void lltm_forward_cpu(const LltmForwardArgs& args) { run_rows(args); }
void lltm_backward_cpu(const LltmBackwardArgs& args) { run_rows(args); }

}  // namespace lltm_jit
