// Whole recurrent sequences in operations of torch, step by step.
#include "core/host/formula.h"

#include <vector>

#include "rnn/sequence/kernels.h"
#include "rnn/sequence/operators.h"
#include "rnn/sequence/padding/gates.h"
#include "rnn/sequence/recurrences.h"

namespace lltm_jit {
namespace {

using Tensors = std::vector<Tensor>;

// The inputs of a step, and the rows that are reset before it or hold.
struct Step {
  Tensors x, h, p, old;
  Tensor raw, deviation;  // the gates before they were normalised, and what they were divided by
  // As the step leaves the states whose one is normalised, and that one.
  Tensors left;
  Tensor normalised, state_deviation;
  Tensor old_h;  // as the weights are multiplied with it
  Tensor resets, holds;
  CellTensors pointers() { return {x.data(), h.data(), p.data(), old.data()}; }
};

Tensor masked(const Tensor& tensor, const Tensor& mask) {
  return mask.defined() ? tensor.masked_fill(mask, 0) : tensor;
}

// Numbers of [batch, units] or of all gates, as a layer norm has them, and what they were divided by.
std::pair<Tensor, Tensor> normalise(const Tensor& numbers, double epsilon) {
  const Tensor centred = numbers - numbers.mean(1, /*keepdim=*/true);
  const Tensor deviation = (centred.square().mean(1, /*keepdim=*/true) + epsilon).sqrt();
  return {centred.div(deviation), deviation};
}
// The gradient of what was normalised.
Tensor normalise_backward(const Tensor& grad, const Tensor& normalised, const Tensor& deviation) {
  const Tensor slope = (grad * normalised).mean(1, /*keepdim=*/true);
  return (grad - grad.mean(1, /*keepdim=*/true) - normalised * slope).div(deviation);
}

class Sequence {
 public:
  // sums: whether the hidden part is in `gates` already.
  Sequence(const SequenceInputs& in, const RecurrentCell& cell, bool sums = false)
      : in_(in),
        cell_(cell),
        sums_(sums),
        // Not size(), or a traced program would know all sizes.
        steps_(in.gates.sym_size(0).guard_int(__FILE__, __LINE__)),
        dtype_(in.gates.scalar_type()) {
    const auto batch_size = in.gates.sym_size(1), hidden_size = in.weight_hh.sym_size(1);
    const Tensor none = in.gates.new_zeros_symint({batch_size, hidden_size});
    const auto h = GivenStates::of_h(in), cells = GivenStates::of_cells(in);
    state_.push_back(running(h.first ? *h.first : none));
    resets_.push_back(h.resets ? running(*h.resets) : Tensor());
    for (int s = 1; s < cell.states; ++s) {
      state_.push_back(running(cells.first ? cells.first->select(0, s - 1) : none));
      resets_.push_back(cells.resets ? running(cells.resets->select(1, s - 1)) : Tensor());
    }
    if (in.parameters) {
      for (const Tensor& p : in.parameters->unbind(0)) parameters_.push_back(running(p));
    }
  }

  int64_t steps() const { return steps_; }
  const Tensors& state() const { return state_; }
  // The place in the arrays of the step that is computed as number `i`.
  int64_t place(int64_t i) const { return in_.reverse ? steps_ - 1 - i : i; }
  // Whether rows are reset to given states, of one for all steps.
  bool resets_to_given(int s) const { return resets_[s].defined(); }
  bool resets_to_one(int s) const { return is_one(resets_[s]); }

  // Computes the next step.
  Step next() {
    const int64_t t = place(done_++);
    Step step;
    if (in_.control) reset(step, t);
    step.old = state_;
    step.old_h = state_[0].to(dtype_);
    step.p = parameters_;
    make_gates(step, in_.gates.select(0, t));
    Tensors now(cell_.states);
    cell_.formula.step(step.pointers(), now.data());
    if (cell_.normalised_state >= 0) {
      step.left = now;
      std::tie(step.normalised, step.state_deviation) =
          normalise(now[cell_.normalised_state], cell_.epsilon);
      cell_.formula.finish(step.p.data(), step.normalised, now.data());
    }
    for (int s = 0; s < cell_.states; ++s) {
      state_[s] = in_.control ? step.old[s].where(step.holds, now[s]) : now[s];
    }
    return step;
  }

 private:
  void reset(Step& step, int64_t t) {
    const Tensor control = in_.control->select(0, t).unsqueeze(1);
    step.resets = control.eq(kResets);  // a row that holds keeps its state
    step.holds = control.bitwise_and(kHolds).to(at::kBool);
    for (int s = 0; s < cell_.states; ++s) {
      const Tensor& given = resets_[s];
      state_[s] = given.defined()
                      ? given.select(0, is_one(given) ? 0 : t).where(step.resets, state_[s])
                      : state_[s].masked_fill(step.resets, 0);
    }
  }

  // From the input's part and the hidden part, biases included.
  void make_gates(Step& step, const Tensor& of_input) const {
    Tensor hidden, x = running(of_input);
    if (cell_.product) hidden = step.old_h.mm(in_.weight_hh.t());
    if (in_.bias_hh) hidden = hidden + *in_.bias_hh;
    if (!cell_.product) {
      x = masked(x, step.holds);
    } else if (sums_) {  // the hidden part counts for derivatives alone, and adds no inf - inf
      const Tensor zeros = (hidden - hidden.detach()).nan_to_num();
      x = masked(x, step.holds) + running(zeros);
    } else if (cell_.adds_gates) {
      x = x + running(hidden);
    }
    step.raw = cell_.adds_gates ? x : running(hidden);
    Tensor h = step.raw;
    if (cell_.normalises_gates) {
      std::tie(h, step.deviation) = normalise(step.raw, cell_.epsilon);
    }
    step.x = parts(cell_.adds_gates ? h : x);
    if (!cell_.adds_gates) step.h = parts(h);
  }

  Tensor running(const Tensor& tensor) const { return tensor.to(state_dtype(dtype_)); }
  Tensors parts(const Tensor& gates) const { return gates.chunk(cell_.gates, 1); }
  static bool is_one(const Tensor& resets) {
    return resets.sym_size(0).sym_eq(1).guard_bool(__FILE__, __LINE__);
  }

  const SequenceInputs& in_;
  const RecurrentCell& cell_;
  bool sums_;
  int64_t steps_, done_ = 0;
  at::ScalarType dtype_;
  Tensors state_, parameters_;
  Tensors resets_;  // of each state; undefined for zeros
};

// Cell states of a step or a sequence, [states-1, batch, hidden]; `like` is [batch, hidden].
Tensor cells_of(const Tensors& states, const Tensor& like) {
  if (states.size() > 1) return stacked(at::TensorList(states).slice(1));
  return like.new_empty_symint({0, like.sym_size(0), like.sym_size(1)});
}

// The gradients of the states as a step leaves them, from those after finish(), whose parameters' come along.
Tensors finish_backward(const RecurrentCell& cell, const Step& step, const Tensors& grad_now,
                        Tensors* of_parameters) {
  Tensor of_normalised;
  Tensors left(cell.states);
  cell.formula.finish_backward(step.p.data(), step.normalised, step.left.data(), grad_now.data(),
                               of_parameters->data(), &of_normalised, left.data());
  Tensor& of_state = left[cell.normalised_state];
  of_state = of_state + normalise_backward(of_normalised, step.normalised, step.state_deviation);
  return left;
}

// The backward pass. The forward pass is computed again, so that second derivatives see how the saved numbers were
// computed.
class Backward {
 public:
  Backward(const SequenceBackwardInputs& back, const RecurrentCell& cell)
      : back_(back), cell_(cell), sequence_(back.in, cell, back.gates_are_sums) {
    for (int64_t i = 0; i < sequence_.steps(); ++i) steps_.push_back(sequence_.next());
    const Tensor& like = steps_[0].old[0];
    zeros_ = like.new_zeros_symint(like.sym_sizes());
    grad_.push_back(back.grad_h_n ? running(*back.grad_h_n) : zeros_);
    for (int s = 1; s < cell.states; ++s) {
      grad_.push_back(back.grad_c_n ? running(back.grad_c_n->select(0, s - 1)) : zeros_);
    }
  }

  SequenceGradients run() {
    for (int64_t i = sequence_.steps() - 1; i >= 0; --i) derive(steps_[i], sequence_.place(i));
    const SequenceInputs& in = back_.in;
    const auto& mask = back_.output_mask;
    SequenceGradients grads;
    auto& [of_gates, of_weights, of_bias, of_parameters, of_h_0, of_c_0] = grads;
    const Tensor hidden = stacked(grad_hidden_);
    if (mask[0]) of_gates = stacked(grad_gates_);
    if (mask[1] && !cell_.product) {
      of_weights = in.weight_hh.new_zeros_symint(in.weight_hh.sym_sizes());
    } else if (mask[1]) {
      of_weights = hidden.flatten(0, 1).t().mm(stacked(old_h_).flatten(0, 1));
    }
    if (mask[2]) of_bias = hidden.flatten(0, 1).sum(0);
    if (mask[3]) of_parameters = stacked(grad_parameters_).to(dtype_);
    if (mask[4]) {
      const auto of_step = [&](int64_t t) { return grad_resets_[0][t]; };
      of_h_0 = with_resets(grad_[0], of_step, 0).to(dtype_);
    }
    if (mask[5]) {
      const auto of_step = [&](int64_t t) {
        Tensors of_cells;
        for (const Tensors& each : grad_resets_) of_cells.push_back(each[t]);
        return cells_of(of_cells, grad_[0]);
      };
      of_c_0 = with_resets(cells_of(grad_, grad_[0]), of_step, 1).to(in.c_0->scalar_type());
    }
    return grads;
  }

 private:
  Tensor running(const Tensor& tensor) const { return tensor.to(state_dtype(dtype_)); }

  // From the gradients of the states after a step to those before it.
  void derive(Step& step, int64_t t) {
    Tensors grad_now = grad_;
    if (back_.grad_output) grad_now[0] = grad_[0] + running(back_.grad_output->select(0, t));
    Tensors x(cell_.gates), h(cell_.gates), p(cell_.parameters), old(cell_.states);
    Tensors of_finish(cell_.parameters);
    const bool finishes = cell_.normalised_state >= 0;
    if (finishes) grad_now = finish_backward(cell_, step, grad_now, &of_finish);
    cell_.formula.step_backward(step.pointers(), grad_now.data(),
                                {x.data(), h.data(), p.data(), old.data()});
    for (int k = 0; k < cell_.parameters; ++k) {
      const Tensor part = masked(finishes ? p[k] + of_finish[k] : p[k], step.holds).sum(0);
      grad_parameters_[k] = grad_parameters_[k].defined() ? grad_parameters_[k] + part : part;
    }
    keep_gradients_of_gates(step, t, x, h);
    if (cell_.product) old[0] = old[0] + running(grad_hidden_[t].mm(back_.in.weight_hh));
    for (int s = 1; back_.grad_saved_cells && s < cell_.states; ++s) {
      old[s] = old[s] + running(back_.grad_saved_cells->select(0, t).select(0, s - 1));
    }
    pass_on(step, t, old);
    old_h_[t] = masked(step.old_h, step.holds);
  }

  void keep_gradients_of_gates(const Step& step, int64_t t, const Tensors& x, const Tensors& h) {
    Tensor hidden = cat(cell_.adds_gates ? x : h, 1);
    if (cell_.normalises_gates) {
      const Tensor normalised = cat(cell_.adds_gates ? step.x : step.h, 1);
      hidden = normalise_backward(hidden, normalised, step.deviation);
    }
    grad_hidden_[t] = masked(hidden, step.holds).to(dtype_);
    grad_gates_[t] = cell_.adds_gates ? grad_hidden_[t] : masked(cat(x, 1), step.holds).to(dtype_);
  }

  // To the step before, or where rows are reset, to the given state.
  void pass_on(const Step& step, int64_t t, const Tensors& old) {
    for (int s = 0; s < cell_.states; ++s) {
      if (sequence_.resets_to_given(s)) {
        grad_resets_[s][t] =
            back_.in.control ? old[s].masked_fill(step.resets.logical_not(), 0) : zeros_;
      }
      grad_[s] = back_.in.control ? grad_[s].where(step.holds, old[s].masked_fill(step.resets, 0))
                                  : old[s];
    }
  }

  // Behind the gradient of the state before the first step, those of the states that rows are reset to.
  template <typename OfStep>
  Tensor with_resets(const Tensor& first, const OfStep& of_step, int s) const {
    if (!sequence_.resets_to_given(s)) return first;
    Tensors each;
    for (int64_t t = 0; t < sequence_.steps(); ++t) each.push_back(of_step(t));
    const Tensor all = stacked(each);
    return cat({first.unsqueeze(0), sequence_.resets_to_one(s) ? all.sum(0, true) : all}, 0);
  }

  const SequenceBackwardInputs& back_;
  const RecurrentCell& cell_;
  const at::ScalarType dtype_ = back_.in.gates.scalar_type();
  Sequence sequence_;
  std::vector<Step> steps_;
  Tensor zeros_;
  Tensors grad_;  // of each state
  Tensors grad_gates_ = Tensors(sequence_.steps()), grad_hidden_ = grad_gates_,
          old_h_ = grad_gates_;  // of each step
  std::vector<Tensors> grad_resets_ = std::vector<Tensors>(cell_.states, grad_gates_);
  Tensors grad_parameters_ = Tensors(cell_.parameters);
};

}  // namespace

SequenceAndSaved sequence_forward_formula(const SequenceInputs& in) {
  const RecurrentCell& cell = check_sequence(in);
  const NoAutocast guard;
  if (has_recurrences(in)) return in_turn(in, cell, sequence_forward_formula);
  if (is_padded(in, cell)) {
    const ResizedGates dense(in, cell);
    return dense.resize_back(sequence_forward_formula(dense.in_place_of(in)));
  }
  const auto dtype = in.gates.scalar_type();
  Sequence sequence(in, cell);
  Tensors output(sequence.steps()), gates(sequence.steps()), cells(sequence.steps());
  for (int64_t i = 0; i < sequence.steps(); ++i) {
    const Step step = sequence.next();
    const int64_t t = sequence.place(i);
    output[t] = masked(sequence.state()[0], step.holds).to(dtype);
    gates[t] = step.raw.to(dtype);
    cells[t] = cells_of(step.old, step.old[0]);
  }
  const Tensor c_n = cells_of(sequence.state(), sequence.state()[0]);
  return {stacked(output), sequence.state()[0].to(dtype),
          c_n.to(in.c_0 ? in.c_0->scalar_type() : dtype),
          cell.product ? stacked(gates) : in.gates.new_empty_symint(saved_gates_sizes(in, cell)),
          stacked(cells)};
}

SequenceGradients sequence_backward_formula(const SequenceBackwardInputs& back) {
  const RecurrentCell& cell = check_sequence_backward(back);
  const NoAutocast guard;
  if (has_recurrences(back.in)) return in_turn(back, cell, sequence_backward_formula);
  if (is_padded(back.in, cell)) {
    ResizedGates dense(back.in, cell);
    return dense.resize_back(sequence_backward_formula(dense.in_place_of(back)));
  }
  return Backward(back, cell).run();
}

}  // namespace lltm_jit
