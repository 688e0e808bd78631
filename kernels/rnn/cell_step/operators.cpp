// LLTM cell: argument checks, the formula in operations of torch, derivatives, autocast. The maths
// is in maths.h, the CPU's and CUDA's code in kernels.cpp.
#include "rnn/cell_step/operators.h"

#include "core/host/autocast.h"
#include "core/host/autograd.h"
#include "core/host/checks.h"
#include "core/host/formula.h"

namespace lltm_jit {

// -------------------------------------------------------------------------------------- checks --

// Note [Dtype of the cell]
// The cell is an unbounded running sum, so a cell with 16-bit inputs may be kept in float32. Then
// old_cell, new_cell and its gradient are float32.
void check_cell(const char* function, const CellInputs& in) {
  const Argument input{function, "input", in.input}, weights{function, "weights", in.weights};
  const Argument old_h{function, "old_h", in.old_h}, old_cell{function, "old_cell", in.old_cell};

  check_floating_point(input);
  for (const auto* each : {&weights, &old_h}) check_same_dtype(*each, input);
  check_state_dtype(old_cell, input);
  for (const auto* each : {&weights, &old_h, &old_cell}) check_same_device(*each, input);

  check_rank(input, 2, "[batch_size, input_size]");
  check_rank(old_h, 2, "[batch_size, hidden_size]");
  const auto batch_size = in.input.sym_size(0), input_size = in.input.sym_size(1);
  const auto hidden_size = in.old_h.sym_size(1);
  check_shape(old_h, {batch_size, hidden_size}, "[batch_size, hidden_size]");
  check_shape(old_cell, {batch_size, hidden_size}, "[batch_size, hidden_size]");
  check_shape(weights, {3 * hidden_size, hidden_size + input_size},
              "[3*hidden_size, hidden_size+input_size]");
  if (!in.bias) return;
  const Argument bias{function, "bias", *in.bias};
  check_same_dtype(bias, input);
  check_same_device(bias, input);
  if (in.bias->dim() == 2) {
    check_shape(bias, {1, 3 * hidden_size}, "[1, 3*hidden_size]");
  } else {
    check_shape(bias, {3 * hidden_size}, "[3*hidden_size]");
  }
}

void check_backward(const BackwardInputs& in) {
  const char* function = "lltm_cell_backward";
  check_cell(function, in.cell);
  const Argument old_h{function, "old_h", in.cell.old_h};
  const Argument old_cell{function, "old_cell", in.cell.old_cell};
  const auto batch_size = in.cell.old_h.sym_size(0), hidden_size = in.cell.old_h.sym_size(1);
  const auto check = [&](const char* name, const Tensor& tensor, const Argument& model,
                         const c10::SymInt& columns, const char* shape) {
    check_like({function, name, tensor}, model, {batch_size, columns}, shape);
  };
  const char* of_state = "[batch_size, hidden_size]";
  if (in.grad_h) check("grad_h", *in.grad_h, old_h, hidden_size, of_state);
  if (in.grad_cell) check("grad_cell", *in.grad_cell, old_cell, hidden_size, of_state);
  check("new_cell", in.new_cell, old_cell, hidden_size, of_state);
  check("gates", in.gates, old_h, 3 * hidden_size, "[batch_size, 3*hidden_size]");
  TORCH_CHECK(in.cell.bias || !in.output_mask[2], function,
              "(): output_mask asks for the gradient of bias, but bias is None");
}

// -------------------------------------------------------------------------------------- formula --

// Formulas in operations of torch: for every device, vmap, forward-mode differentiation, and
// derivatives of the backward pass. They can be differentiated any number of times.

namespace {

struct Gates {
  Tensor input_gate, output_gate, candidate_cell;
};

Tensor zeros_like(const Tensor& tensor) { return tensor.new_zeros_symint(tensor.sym_sizes()); }

Tensor pre_activations(const Tensor& X, const CellInputs& in) {
  return in.bias ? in.bias->addmm(X, in.weights.t()) : X.mm(in.weights.t());
}

Gates activate(const Tensor& pre, at::ScalarType dtype) {
  const auto parts = pre.chunk(3, 1);
  return {parts[0].sigmoid().to(dtype), parts[1].sigmoid().to(dtype), elu(parts[2]).to(dtype)};
}

struct PointwiseGradients {
  Tensor pre, old_cell;
};

PointwiseGradients pointwise_backward(const Gates& gates, const Tensor& new_cell,
                                      const Tensor& grad_h, const Tensor& grad_cell) {
  const auto& [i, o, c] = gates;
  const Tensor t = new_cell.tanh();
  const Tensor cell = grad_cell + o * (1 - t * t) * grad_h;
  // c > 0 exactly where the candidate's pre-activation is: see elu_derivative.
  const Tensor d_elu = c.clamp_max(0) + 1;
  return {cat({c * cell * (1 - i) * i, t * grad_h * (1 - o) * o, i * cell * d_elu}, 1), cell};
}

StateAndGates cell_forward_formula(const CellInputs& in) {
  check_cell("lltm_cell", in);
  const NoAutocast guard;
  const auto dtype = in.input.scalar_type();
  const Tensor pre = pre_activations(cat({in.old_h, in.input}, 1), in);
  const auto [i, o, c] = activate(pre, in.old_cell.scalar_type());
  const Tensor new_cell = in.old_cell + i * c;
  return {(o * new_cell.tanh()).to(dtype), new_cell, cat({i, o, c}, 1).to(dtype)};
}

// Note [Second derivatives]
// new_cell and gates are functions of the inputs. A derivative of the gradients must include these
// functions, so new_cell and gates are computed again from the inputs.
Gradients cell_backward_formula(const BackwardInputs& in) {
  check_backward(in);
  const NoAutocast guard;
  const auto& [input, weights, bias, old_h, old_cell] = in.cell;
  const Tensor X = cat({old_h, input}, 1);
  const Gates gates = activate(pre_activations(X, in.cell), old_cell.scalar_type());
  const Tensor new_cell = old_cell + gates.input_gate * gates.candidate_cell;
  const auto [d_pre_cell, d_old_cell] =
      pointwise_backward(gates, new_cell, in.grad_h ? *in.grad_h : zeros_like(old_h),
                         in.grad_cell ? *in.grad_cell : zeros_like(old_cell));
  const Tensor d_pre = d_pre_cell.to(input.scalar_type());
  const auto hidden_size = old_h.sym_size(1);
  const auto& mask = in.output_mask;
  Gradients grads;
  auto& [d_input, d_weights, d_bias, d_old_h, d_cell] = grads;
  if (mask[0] || mask[3]) {
    const Tensor d_X = d_pre.mm(weights);
    if (mask[0]) d_input = d_X.slice_symint(1, hidden_size);
    if (mask[3]) d_old_h = d_X.slice_symint(1, 0, hidden_size);
  }
  if (mask[1]) d_weights = d_pre.t().mm(X);
  if (mask[2]) d_bias = d_pre.sum(0, /*keepdim=*/bias->dim() == 2);
  if (mask[4]) d_cell = d_old_cell;
  return grads;
}

// The PyTorch extension tutorial's functions, with its order of arguments and results.
std::vector<Tensor> tutorial_forward(const CellInputs& in) {
  check_cell("lltm_forward", in);
  const NoAutocast guard;
  const Tensor X = cat({in.old_h, in.input}, 1);
  const Tensor gate_weights = pre_activations(X, in);
  const auto [i, o, c] = activate(gate_weights, gate_weights.scalar_type());
  const Tensor new_cell = in.old_cell + i * c;
  return {(o * new_cell.tanh()).to(in.input.scalar_type()), new_cell, i, o, c, X, gate_weights};
}

// The inputs of the tutorial's lltm_backward.
struct TutorialBackwardInputs {
  const Tensor &grad_h, &grad_cell;
  const Tensor &new_cell, &input_gate, &output_gate, &candidate_cell, &X, &gate_weights, &weights;
};

void check_tutorial_backward(const TutorialBackwardInputs& in) {
  const char* function = "lltm_backward";
  const Argument X{function, "X", in.X}, new_cell{function, "new_cell", in.new_cell};
  check_floating_point(X);
  check_rank(X, 2, "[batch_size, hidden_size+input_size]");
  check_rank(new_cell, 2, "[batch_size, hidden_size]");
  check_state_dtype(new_cell, X);
  const auto batch_size = in.X.sym_size(0), hidden_size = in.new_cell.sym_size(1);
  const auto check = [&](const char* name, const Tensor& tensor, const Argument& model,
                         c10::SymIntArrayRef sizes, const char* shape) {
    check_like({function, name, tensor}, model, sizes, shape);
    check_same_device({function, name, tensor}, X);
  };
  const auto check_state = [&](const char* name, const Tensor& tensor, const Argument& model) {
    check(name, tensor, model, {batch_size, hidden_size}, "[batch_size, hidden_size]");
  };
  check_state("new_cell", in.new_cell, new_cell);
  check_state("grad_h", in.grad_h, X);
  check_state("grad_cell", in.grad_cell, new_cell);
  check_state("input_gate", in.input_gate, X);
  check_state("output_gate", in.output_gate, X);
  check_state("candidate_cell", in.candidate_cell, X);
  check("gate_weights", in.gate_weights, X, {batch_size, 3 * hidden_size},
        "[batch_size, 3*hidden_size]");
  check("weights", in.weights, X, {3 * hidden_size, in.X.sym_size(1)},
        "[3*hidden_size, hidden_size+input_size]");
}

std::vector<Tensor> tutorial_backward(const TutorialBackwardInputs& in) {
  check_tutorial_backward(in);
  const NoAutocast guard;
  const auto [d_pre_cell, d_old_cell] = pointwise_backward(
      {in.input_gate, in.output_gate, in.candidate_cell}, in.new_cell, in.grad_h, in.grad_cell);
  const Tensor d_pre = d_pre_cell.to(in.X.scalar_type());
  const Tensor d_X = d_pre.mm(in.weights);
  const auto hidden_size = in.grad_h.sym_size(1);
  // The tutorial's signature has gate_weights, too, but the gates give all that it could.
  return {d_X.slice_symint(1, 0, hidden_size), d_X.slice_symint(1, hidden_size), d_pre.t().mm(in.X),
          d_pre.sum(0, /*keepdim=*/true), d_old_cell};
}

State cell_formula(const CellInputs& in) {
  auto [new_h, new_cell, gates] = cell_forward_formula(in);
  return {new_h, new_cell};
}

// Refuses the same arguments as the cell, for the reference in Python.
void only_check_cell(const CellInputs& in) { check_cell("lltm_cell", in); }

// -------------------------------------------------------------------------------------- autograd --

std::vector<Tensor> gradients(const BackwardPass& pass) {
  OutputMask mask;
  for (size_t i = 0; i < mask.size(); ++i) mask[i] = pass.wanted[i];
  const auto& saved = pass.saved;  // input, weights, bias, old_h, old_cell, gates, new_cell
  auto [grad_input, grad_weights, grad_bias, grad_old_h, grad_old_cell] = ops::lltm_cell_backward(
      as_optional(pass.grads[0]), as_optional(pass.grads[1]), saved[0], saved[1],
      as_optional(saved[2]), saved[3], saved[4], saved[6], saved[5], mask);
  return {grad_input, grad_weights, grad_bias, grad_old_h, grad_old_cell};
}

State cell_autograd(const CellInputs& in) {
  const auto& [input, weights, bias, old_h, old_cell] = in;
  if (any_forward_grad(input, weights, bias, old_h, old_cell)) return cell_formula(in);
  if (!any_requires_grad(input, weights, bias, old_h, old_cell)) {
    return below_autograd(ops::lltm_cell, input, weights, bias, old_h, old_cell);
  }
  auto [new_h, new_cell, gates] =
      below_autograd(ops::lltm_cell_forward, input, weights, bias, old_h, old_cell);
  const Tensor& bias_or_none = as_tensor(bias);
  record({"LltmCellBackward", gradients}, {input, weights, bias_or_none, old_h, old_cell},
         {new_h, new_cell},
         /*saved=*/{input, weights, bias_or_none, old_h, old_cell, gates},
         /*saved_outputs=*/{new_cell});
  return {new_h, new_cell};
}

// -------------------------------------------------------------------------------------- autocast --

// Casts as autocast casts addmm; a float32 cell stays float32: see Note [Dtype of the cell].
std::tuple<Tensor, Tensor, OptionalTensor, Tensor, Tensor> autocast_cell(const CellInputs& in) {
  const auto& [input, weights, bias, old_h, old_cell] = in;
  const Autocast cast(input);
  return {cast(input), cast(weights), bias ? OptionalTensor(cast(*bias)) : bias, cast(old_h),
          old_cell.scalar_type() == at::kFloat ? old_cell : cast(old_cell)};
}

}  // namespace

// ------------------------------------------------------------------------------------- operators --

Operator<OfCell<State>> ops::lltm_cell{
    .name = "lltm_jit::lltm_cell",
    .kernel = flat<cell_kernel>,
    .formula = flat<cell_formula>,
    .autograd = flat<cell_autograd>,
    .autocast = flat<autocast_cell>,
};

Operator<OfCell<StateAndGates>> ops::lltm_cell_forward{
    .name = "lltm_jit::lltm_cell_forward",
    .kernel = flat<forward_kernel>,
    .formula = flat<cell_forward_formula>,
    // torch.func reaches this with inputs that need a gradient at an outer level, where the inner
    // level's forward pass is itself differentiated.
    .autograd = ByFormula<ops::lltm_cell_forward>::autograd,
};

Operator<OfBackward> ops::lltm_cell_backward{
    .name = "lltm_jit::lltm_cell_backward",
    .kernel = flat<backward_kernel>,
    .formula = flat<cell_backward_formula>,
    .autograd = ByFormula<ops::lltm_cell_backward>::autograd,
};

Composite<OfCell<State>> ops::lltm_cell_aten{
    .name = "lltm_jit::lltm_cell_aten",
    .formula = flat<cell_formula>,
    .autocast = flat<autocast_cell>,
};

Composite<OfCell<void>> ops::lltm_cell_check{
    .name = "lltm_jit::lltm_cell_check",
    .formula = flat<only_check_cell>,
    .autocast = flat<autocast_cell>,
};

Composite<OfCell<std::vector<Tensor>>> ops::lltm_forward{
    .name = "lltm_jit::lltm_forward",
    .formula = flat<tutorial_forward>,
};

Composite<OfTutorialBackward> ops::lltm_backward{
    .name = "lltm_jit::lltm_backward",
    .formula = flat<tutorial_backward>,
};

}  // namespace lltm_jit
