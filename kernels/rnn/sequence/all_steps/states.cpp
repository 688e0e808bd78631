#include "rnn/sequence/all_steps/states.h"

#include "core/host/autograd.h"
#include "core/host/checks.h"
#include "core/host/formula.h"
#include "core/launch/device.h"

namespace lltm_jit {
namespace {

void check_states(const Tensor& output, const Tensor& c_n, const Tensor& saved_cells) {
  const char* function = "stack_states";
  check_floating_point({function, "output", output});
  check_rank({function, "output", output}, 3, "[steps, batch_size, hidden_size]");
  check_rank({function, "c_n", c_n}, 3, "[states-1, batch_size, hidden_size]");
  const auto steps = output.sym_size(0), rows = output.sym_size(1), units = output.sym_size(2);
  const auto cells = c_n.sym_size(0);
  check_shape({function, "c_n", c_n}, {cells, rows, units}, "[states-1, batch_size, hidden_size]");
  check_shape({function, "saved_cells", saved_cells}, {steps, cells, rows, units},
              "[steps, states-1, batch_size, hidden_size]");
  check_same_device({function, "c_n", c_n}, {function, "output", output});
  check_same_device({function, "saved_cells", saved_cells}, {function, "output", output});
}

// Reads and writes each element once.
Tensor states_kernel(const Tensor& output, const Tensor& c_n, const Tensor& saved_cells) {
  check_states(output, c_n, saved_cells);
  const KernelGuard guard(output);
  const Tensor all = empty(
      {output.sym_size(0), c_n.sym_size(0) + 1, output.sym_size(1), output.sym_size(2)}, output);
  if (all.is_meta() || all.size(0) == 0) return all;
  const int64_t last = all.size(0) - 1;
  const Tensor cells = all.narrow(1, 1, c_n.size(0));
  all.select(1, 0).copy_(output);
  cells.narrow(0, 0, last).copy_(saved_cells.narrow(0, 1, last));
  cells.select(0, last).copy_(c_n);
  return all;
}

Tensor states_formula(const Tensor& output, const Tensor& c_n, const Tensor& saved_cells) {
  check_states(output, c_n, saved_cells);
  const NoAutocast guard;
  const auto dtype = output.scalar_type();
  const Tensor before = saved_cells.narrow_symint(0, 1, saved_cells.sym_size(0) - 1);
  const Tensor cells = cat({before.to(dtype), c_n.to(dtype).unsqueeze(0)}, 0);
  return cat({output.unsqueeze(1), cells}, 1);
}

Tensor states_autograd(const Tensor& output, const Tensor& c_n, const Tensor& saved_cells) {
  if (any_forward_grad(output, c_n, saved_cells)) {
    return states_formula(output, c_n, saved_cells);
  }
  const Tensor all = below_autograd(ops::stack_states, output, c_n, saved_cells);
  if (!any_requires_grad(output, c_n, saved_cells)) return all;
  const auto gradients = [last = c_n.scalar_type(),
                          saved = saved_cells.scalar_type()](const BackwardPass& pass) {
    const Tensor& grad = pass.grads[0];
    const Tensor cells = grad.narrow_symint(1, 1, grad.sym_size(1) - 1);
    const auto others = cells.sym_size(0) - 1;
    const Tensor after = cells.narrow_symint(0, 0, others);
    auto none = cells.sym_sizes().vec();
    none[0] = 1;
    return std::vector<Tensor>{
        pass.wanted[0] ? grad.select(1, 0) : Tensor(),
        pass.wanted[1] ? cells.select_symint(0, others).to(last) : Tensor(),
        pass.wanted[2] ? cat({cells.new_zeros_symint(none), after}, 0).to(saved) : Tensor()};
  };
  record({"StackStatesBackward", gradients}, {output, c_n, saved_cells}, {all});
  return all;
}

}  // namespace

Operator<Tensor(const Tensor&, const Tensor&, const Tensor&)> ops::stack_states{
    .name = "lltm_jit::stack_states",
    .kernel = states_kernel,
    .formula = states_formula,
    .autograd = states_autograd,
};

}  // namespace lltm_jit
