// Whole recurrent sequences: the cells by name, checks of arguments, derivatives, autocast. What runs on CPU
// and CUDA is in forward.cpp and backward.cpp, the formula in formula.cpp.
#include "rnn/sequence/operators.h"

#include <deque>
#include <mutex>

#include "core/host/autocast.h"
#include "core/host/autograd.h"
#include "rnn/sequence/padding/gates.h"
#include "rnn/sequence/recurrences.h"

namespace lltm_jit {

// ---------------------------------------------------------------------------------------- cells --

namespace {

// Cells are never destroyed, because calls may still run on one that was replaced.
struct Cells {
  std::mutex mutex;
  std::deque<RecurrentCell> cells;
};

Cells& known() {
  static auto* cells = new Cells();
  return *cells;
}

}  // namespace

void add_cell(RecurrentCell cell) {
  const std::lock_guard<std::mutex> lock(known().mutex);
  known().cells.push_front(std::move(cell));
}

void add_cell_at(int64_t address) { add_cell(*reinterpret_cast<const RecurrentCell*>(address)); }

const RecurrentCell& find_cell(std::string_view name) {
  const std::lock_guard<std::mutex> lock(known().mutex);
  for (const RecurrentCell& cell : known().cells) {
    if (cell.name == name) return cell;
  }
  TORCH_CHECK_VALUE(false, "recurrent_sequence(): expected the name of a cell, but got '", name,
                    "'");
}

// --------------------------------------------------------------------------------------- checks --

namespace {

constexpr const char* kFunction = "recurrent_sequence";

// cells: whether the tensor is one of cell states. Nothing is checked of one that is absent.
void check_tensor(const char* function, const char* name, const OptionalTensor& tensor,
                  const Argument& gates, c10::SymIntArrayRef sizes, const char* shape,
                  bool cells = false) {
  if (!tensor) return;
  const Argument arg{function, name, *tensor};
  (cells ? check_state_dtype : check_same_dtype)(arg, gates);
  check_same_device(arg, gates);
  check_shape(arg, sizes, shape);
}

// How many recurrences there are, which the weights' dimensions tell.
void check_weights(const SequenceInputs& in, const Argument& gates) {
  const Argument weight_hh{kFunction, "weight_hh", in.weight_hh};
  check_same_dtype(weight_hh, gates);
  check_same_device(weight_hh, gates);
  check_rank(gates, 3, "[steps, batch_size, gates*hidden_size]");
  const bool several = has_recurrences(in);
  TORCH_CHECK(several || !in.bidirectional, kFunction,
              "(): expected weight_hh to have 3 dimensions [recurrences, gates*hidden_size, "
              "hidden_size] for two directions, but got shape ",
              in.weight_hh.sym_sizes());
  if (!several) check_rank(weight_hh, 2, "[gates*hidden_size, hidden_size]");
  const Recurrences all = recurrences_of(in);
  TORCH_CHECK(all.count() > 0 && (!several || in.weight_hh.sym_size(0) == all.count()), kFunction,
              "(): expected weight_hh of ", all.directions == 1 ? "one head" : "two directions",
              " or more, the same heads in each direction, but got shape ",
              in.weight_hh.sym_sizes());
}

// What some cells lack.
void check_presence(const SequenceInputs& in, const RecurrentCell& cell) {
  TORCH_CHECK((cell.product && !cell.normalises_gates) || !in.bias_hh, kFunction,
              "(): expected bias_hh to be None, as ", cell.name,
              cell.product ? " normalises its gates" : " has no product", ", but got a tensor");
  TORCH_CHECK(bool(in.parameters) == (cell.parameters > 0), kFunction, "(): expected ",
              cell.parameters > 0 ? "parameters" : "no parameters", " for ", cell.name,
              ", but got ", in.parameters ? "a tensor" : "None");
  TORCH_CHECK(!in.c_0 || cell.states > 1, kFunction, "(): expected c_0 to be None, as ", cell.name,
              " has one state, but got a tensor");
}

// sizes: those of one state. With resets, the dimension of the given states stands in front.
void check_states(const char* name, const OptionalTensor& states, const Argument& gates,
                  std::vector<c10::SymInt> sizes, const char* shape, const char* with_resets,
                  bool cells) {
  const bool resets = states && states->dim() == int64_t(sizes.size()) + 1;
  if (resets) {
    const bool one = states->sym_size(0).sym_eq(2).guard_bool(__FILE__, __LINE__);
    sizes.insert(sizes.begin(), one ? c10::SymInt(2) : 1 + gates.tensor.sym_size(0));
  }
  check_tensor(kFunction, name, states, gates, sizes, resets ? with_resets : shape, cells);
}

void check_control(const SequenceInputs& in, const Argument& gates) {
  const Argument control{kFunction, "control", *in.control};
  check_dense(control);
  TORCH_CHECK(in.control->scalar_type() == at::kByte, kFunction,
              "(): expected control to have dtype Byte, but got ", in.control->scalar_type());
  check_same_device(control, gates);
  const auto steps = in.gates.sym_size(0), batch_size = in.gates.sym_size(1);
  if (in.bidirectional) {
    check_shape(control, {2, steps, batch_size}, "[directions, steps, batch_size]");
  } else {
    check_shape(control, {steps, batch_size}, "[steps, batch_size]");
  }
}

}  // namespace

const RecurrentCell& check_sequence(const SequenceInputs& in) {
  const RecurrentCell& cell = find_cell(in.cell);
  const Argument gates{kFunction, "gates", in.gates};
  check_floating_point(gates);
  check_weights(in, gates);
  const int64_t count = recurrences_of(in).count();
  const auto steps = in.gates.sym_size(0), batch_size = in.gates.sym_size(1);
  const auto units = in.weight_hh.sym_size(-1), of_one = cell.gates * gate_size(in, cell);
  const auto rows = count * of_one, hidden_size = count * units;
  TORCH_CHECK(steps.sym_gt(0).expect_true(__FILE__, __LINE__), kFunction,
              "(): expected at least one step, but got gates of shape ", in.gates.sym_sizes());
  check_shape(gates, {steps, batch_size, rows}, "[steps, batch_size, gates*hidden_size]");
  const Argument weight_hh{kFunction, "weight_hh", in.weight_hh};
  const auto products = cell.product ? of_one : 0;
  if (has_recurrences(in)) {
    check_shape(weight_hh, {count, products, units},
                cell.product ? "[recurrences, gates*hidden_size, hidden_size]"
                             : "[recurrences, 0, hidden_size], as the cell has no product");
  } else {
    check_shape(weight_hh, {products, units},
                cell.product ? "[gates*hidden_size, hidden_size]"
                             : "[0, hidden_size], as the cell has no product");
  }
  check_presence(in, cell);
  check_tensor(kFunction, "bias_hh", in.bias_hh, gates, {rows}, "[gates*hidden_size]");
  check_tensor(kFunction, "parameters", in.parameters, gates, {cell.parameters, hidden_size},
               "[parameters, hidden_size]");
  check_states("h_0", in.h_0, gates, {batch_size, hidden_size}, "[batch_size, hidden_size]",
               "[1 + resets, batch_size, hidden_size]", /*cells=*/false);
  check_states("c_0", in.c_0, gates, {cell.states - 1, batch_size, hidden_size},
               "[states-1, batch_size, hidden_size]",
               "[1 + resets, states-1, batch_size, hidden_size]", /*cells=*/true);
  if (in.control) check_control(in, gates);
  return cell;
}

std::vector<c10::SymInt> saved_gates_sizes(const SequenceInputs& in, const RecurrentCell& cell) {
  if (cell.product) return in.gates.sym_sizes().vec();
  return {0, 0, 0};
}

const RecurrentCell& check_sequence_backward(const SequenceBackwardInputs& in) {
  const RecurrentCell& cell = check_sequence(in.in);
  const char* function = "recurrent_sequence_backward";
  TORCH_CHECK(cell.adds_gates || !in.gates_are_sums, function,
              "(): expected gates_are_sums to be false for ", cell.name,
              ", which does not add its gates");
  const Argument gates{function, "gates", in.in.gates};
  const auto steps = in.in.gates.sym_size(0), batch_size = in.in.gates.sym_size(1);
  const auto hidden_size = recurrences_of(in.in).count() * in.in.weight_hh.sym_size(-1);
  const auto check = [&](const char* name, const OptionalTensor& tensor, c10::SymIntArrayRef sizes,
                         const char* shape, bool cells = false) {
    check_tensor(function, name, tensor, gates, sizes, shape, cells);
  };
  const char *of_output = "[steps, batch_size, hidden_size]",
             *of_cells = "[steps, states-1, batch_size, hidden_size]";
  check("output", in.output, {steps, batch_size, hidden_size}, of_output);
  check("saved_gates", in.saved_gates, saved_gates_sizes(in.in, cell),
        cell.product ? "[steps, batch_size, gates*hidden_size]" : "[0, 0, 0]");
  check("saved_cells", in.saved_cells, {steps, cell.states - 1, batch_size, hidden_size}, of_cells,
        /*cells=*/true);
  check("grad_output", in.grad_output, {steps, batch_size, hidden_size}, of_output);
  check("grad_h_n", in.grad_h_n, {batch_size, hidden_size}, "[batch_size, hidden_size]");
  check("grad_c_n", in.grad_c_n, {cell.states - 1, batch_size, hidden_size},
        "[states-1, batch_size, hidden_size]", /*cells=*/true);
  check("grad_saved_cells", in.grad_saved_cells, in.saved_cells.sym_sizes(), of_cells,
        /*cells=*/true);
  return cell;
}

// ------------------------------------------------------------------------------------- autograd --

namespace {

template <typename Results>
constexpr bool kHasStates = std::is_same_v<Results, SequenceStates>;

std::vector<Tensor> gradients(const BackwardPass& pass, const std::string& cell, bool reverse,
                              bool tf32, bool bidirectional) {
  SequenceMask mask;
  for (size_t i = 0; i < mask.size(); ++i) mask[i] = pass.wanted[i];
  const auto& saved = pass.saved;
  const auto optional = [&](size_t i) { return as_optional(saved[i]); };
  const bool sums = !saved[0].defined();
  const Tensor input_gates = !sums                         ? saved[0]
                             : c10::GradMode::is_enabled() ? pass.in_place_of_input(0, saved[7])
                                                           : saved[7];
  const OptionalTensor of_cells = pass.grads.size() > 3 ? as_optional(pass.grads[3]) : std::nullopt;
  auto [gates, weight_hh, bias_hh, parameters, h_0, c_0] = ops::recurrent_sequence_backward(
      as_optional(pass.grads[0]), as_optional(pass.grads[1]), as_optional(pass.grads[2]),
      input_gates, saved[1], optional(2), optional(3), optional(4), optional(5), optional(6),
      reverse, cell, tf32, bidirectional, saved[9], saved[7], saved[8], mask, sums, of_cells);
  return {gates, weight_hh, bias_hh, parameters, h_0, c_0};
}

template <typename Results>
Results sequence_kernel(const SequenceInputs& in) {
  constexpr auto kSaves = std::is_same_v<Results, SequenceResults> ? kSavesNothing
                          : kHasStates<Results>                    ? kSavesCells
                                                                   : kSavesAll;
  return results_of<Results>(sequence_forward(in, kSaves));
}

template <typename Results>
Results sequence_formula(const SequenceInputs& in) {
  return results_of<Results>(sequence_forward_formula(in));
}

template <auto& op, typename Results>
Results sequence_autograd(const SequenceInputs& in) {
  const auto& [gates, weight_hh, bias_hh, parameters, h_0, c_0, control, reverse, cell, tf32,
               bidirectional] = in;
  if (any_forward_grad(gates, weight_hh, bias_hh, parameters, h_0, c_0)) {
    return sequence_formula<Results>(in);
  }
  if (!any_requires_grad(gates, weight_hh, bias_hh, parameters, h_0, c_0)) {
    return below_autograd(op, gates, weight_hh, bias_hh, parameters, h_0, c_0, control, reverse,
                          cell, tf32, bidirectional);
  }
  auto [output, h_n, c_n, saved_gates, saved_cells] =
      below_autograd(ops::recurrent_sequence_forward, gates, weight_hh, bias_hh, parameters, h_0,
                     c_0, control, reverse, cell, tf32, bidirectional);
  const auto derivative = [name = std::string(cell), reverse = reverse, tf32 = tf32,
                           bidirectional = bidirectional](const BackwardPass& pass) {
    return gradients(pass, name, reverse, tf32, bidirectional);
  };
  const Tensor& bias = as_tensor(bias_hh);
  const Tensor &learnt = as_tensor(parameters), &h = as_tensor(h_0), &c = as_tensor(c_0);
  // If gates are added, their sums are enough: so the input's part is not kept. Under torch.func the sums may have
  // a history in an outer transform, the hidden part's. Without a hidden part there are no sums.
  const bool transformed = saved_gates.key_set().has(c10::DispatchKey::FuncTorchGradWrapper);
  const RecurrentCell& known = find_cell(cell);
  const bool enough = known.adds_gates && known.product && !transformed;
  const Tensor kept = enough ? Tensor() : gates;
  const Derivative node{"RecurrentSequenceBackward", derivative};
  const Tensor& marks = as_tensor(control);
  if constexpr (kHasStates<Results>) {
    record(node, {gates, weight_hh, bias, learnt, h, c}, {output, h_n, c_n, saved_cells},
           /*saved=*/{kept, weight_hh, bias, learnt, h, c, marks, saved_gates},
           /*saved_outputs=*/{saved_cells, output});
    return {output, h_n, c_n, saved_cells};
  } else {
    record(node, {gates, weight_hh, bias, learnt, h, c}, {output, h_n, c_n},
           /*saved=*/{kept, weight_hh, bias, learnt, h, c, marks, saved_gates, saved_cells},
           /*saved_outputs=*/{output});
    return {output, h_n, c_n};
  }
}

// ------------------------------------------------------------------------------------- autocast --

// Float cell states stay float.
std::tuple<Tensor, Tensor, OptionalTensor, OptionalTensor, OptionalTensor, OptionalTensor,
           OptionalTensor, bool, std::string_view, bool, bool>
autocast_sequence(const SequenceInputs& in) {
  const Autocast cast(in.gates);
  const bool keep = in.c_0 && in.c_0->scalar_type() == at::kFloat;
  return {cast(in.gates),   cast(in.weight_hh),
          cast(in.bias_hh), cast(in.parameters),
          cast(in.h_0),     keep ? in.c_0 : cast(in.c_0),
          in.control,       in.reverse,
          in.cell,          in.tf32,
          in.bidirectional};
}

}  // namespace

// ------------------------------------------------------------------------------------- operators --

Operator<OfSequence<SequenceResults>> ops::recurrent_sequence{
    .name = "lltm_jit::recurrent_sequence",
    .kernel = flat<sequence_kernel<SequenceResults>>,
    .formula = flat<sequence_formula<SequenceResults>>,
    .autograd = flat<sequence_autograd<ops::recurrent_sequence, SequenceResults>>,
    .autocast = flat<autocast_sequence>,
};

Operator<OfSequence<SequenceStates>> ops::recurrent_sequence_states{
    .name = "lltm_jit::recurrent_sequence_states",
    .kernel = flat<sequence_kernel<SequenceStates>>,
    .formula = flat<sequence_formula<SequenceStates>>,
    .autograd = flat<sequence_autograd<ops::recurrent_sequence_states, SequenceStates>>,
    .autocast = flat<autocast_sequence>,
};

Operator<OfSequence<SequenceAndSaved>> ops::recurrent_sequence_forward{
    .name = "lltm_jit::recurrent_sequence_forward",
    .kernel = flat<sequence_kernel<SequenceAndSaved>>,
    .formula = flat<sequence_forward_formula>,
    .autograd = ByFormula<ops::recurrent_sequence_forward>::autograd,
};

Operator<OfSequenceBackward> ops::recurrent_sequence_backward{
    .name = "lltm_jit::recurrent_sequence_backward",
    .kernel = flat<sequence_backward_kernel>,
    .formula = flat<sequence_backward_formula>,
    .autograd = ByFormula<ops::recurrent_sequence_backward>::autograd,
};

}  // namespace lltm_jit
