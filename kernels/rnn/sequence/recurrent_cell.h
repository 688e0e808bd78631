// The cells that sequences can use, by name: this family's and the users'.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

#include "core/host/tensor_value.h"
#include "rnn/sequence/cell.h"
#include "rnn/sequence/cpu/steps.h"
#include "rnn/sequence/normalised/finish.h"
#include "rnn/sequence/plan/run.h"

namespace lltm_jit {

// A step in operations of torch, on arrays of tensors of [batch, hidden] as CellStep has them; those of the
// gradients are undefined where they are zero.
struct CellTensors {
  at::Tensor *x, *h, *p, *old;
};
struct CellFormula {
  void (*step)(const CellTensors& in, at::Tensor* now);
  void (*step_backward)(const CellTensors& in, const at::Tensor* grad_now,
                        const CellTensors& grads);
  // Where a state is normalised, else null: finish(), which changes `now`; and its derivative.
  void (*finish)(const at::Tensor* p, const at::Tensor& normalised, at::Tensor* now);
  void (*finish_backward)(const at::Tensor* p, const at::Tensor& normalised, const at::Tensor* now,
                          const at::Tensor* grad_now, at::Tensor* grad_p,
                          at::Tensor* grad_normalised, at::Tensor* grad_left);
};

struct RecurrentCell {
  std::string name;
  int gates, states, parameters;
  bool adds_gates, product, linear, normalises_gates;
  int normalised_state;  // or -1
  double epsilon;
  CpuCell cpu;
  CellFormula formula;
  CudaCell cuda;

  bool normalises() const { return normalises_gates || normalised_state >= 0; }
  // Whether its steps need nothing but products, and numbers of one unit.
  bool ordinary() const { return product && !normalises(); }
};

// Replaces a cell of this name: its source was edited.
void add_cell(RecurrentCell cell);
// A cell that another library made, by its address.
void add_cell_at(int64_t address);
const RecurrentCell& find_cell(std::string_view name);

// ---------------------------------------------------------------------------- of a cell's type --

// Each cell's formula calls these for each of its arrays. They are not inlined, like TensorValue's functions.
inline C10_NOINLINE void take(const at::Tensor* tensors, int count, TensorValue* values) {
  for (int i = 0; i < count; ++i) values[i] = tensors[i];
}
// Constants become tensors like the given one.
inline C10_NOINLINE void give(const TensorValue* values, int count, const at::Tensor& like,
                              at::Tensor* tensors) {
  for (int i = 0; i < count; ++i) {
    tensors[i] = values[i].is_constant()
                     ? like.new_full_symint(like.sym_sizes(), values[i].constant)
                     : values[i].tensor;
  }
}

template <typename Cell>
struct FormulaOf {
  using Traits = CellTraits<Cell>;
  using Step = CellStep<Cell, TensorValue>;
  static constexpr int kHidden = Traits::kAddsGates ? 0 : Traits::kGates;  // of CellStep's h

  static Step wrapped(const CellTensors& in) {
    Step step;
    take(in.x, Traits::kGates, step.x);
    take(in.h, kHidden, step.h);
    take(in.p, Traits::kParameters, step.p);
    take(in.old, Traits::kStates, step.old);
    return step;
  }

  static void step(const CellTensors& in, at::Tensor* now) {
    TensorValue values[Traits::kStates];
    run_step(wrapped(in), values);
    give(values, Traits::kStates, in.x[0], now);
  }

  static void step_backward(const CellTensors& in, const at::Tensor* grad_now,
                            const CellTensors& grads) {
    TensorValue given[Traits::kStates];
    take(grad_now, Traits::kStates, given);
    const Step found = CellDerivative<Cell, TensorValue>(wrapped(in))(given);
    give(found.x, Traits::kGates, in.x[0], grads.x);
    give(found.h, kHidden, in.x[0], grads.h);
    give(found.p, Traits::kParameters, in.x[0], grads.p);
    give(found.old, Traits::kStates, in.x[0], grads.old);
  }
};

template <typename Cell>
struct FinishFormulaOf {
  using Traits = CellTraits<Cell>;

  static void finish(const at::Tensor* p, const at::Tensor& normalised, at::Tensor* now) {
    TensorValue parameters[Traits::kParametersRoom], values[Traits::kStates];
    take(p, Traits::kParameters, parameters);
    take(now, Traits::kStates, values);
    finish_step<Cell>(parameters, TensorValue(normalised), values);
    give(values, Traits::kStates, normalised, now);
  }

  static void backward(const at::Tensor* p, const at::Tensor& normalised, const at::Tensor* now,
                       const at::Tensor* grad_now, at::Tensor* grad_p, at::Tensor* grad_normalised,
                       at::Tensor* grad_left) {
    TensorValue parameters[Traits::kParametersRoom], values[Traits::kStates],
        given[Traits::kStates];
    take(p, Traits::kParameters, parameters);
    take(now, Traits::kStates, values);
    take(grad_now, Traits::kStates, given);
    const FinishGradients<Cell, TensorValue> found(parameters, TensorValue(normalised), values,
                                                   given);
    give(found.p, Traits::kParameters, normalised, grad_p);
    give(&found.normalised, 1, normalised, grad_normalised);
    give(found.now, Traits::kStates, normalised, grad_left);
  }
};

template <typename Cell>
CellFormula formula_of() {
  CellFormula formula{FormulaOf<Cell>::step, FormulaOf<Cell>::step_backward, nullptr, nullptr};
  if constexpr (CellTraits<Cell>::kNormalisedState >= 0) {
    formula.finish = FinishFormulaOf<Cell>::finish;
    formula.finish_backward = FinishFormulaOf<Cell>::backward;
  }
  return formula;
}

template <typename Cell>
RecurrentCell recurrent_cell(std::string name, CudaCell cuda) {
  using Traits = CellTraits<Cell>;
  return {std::move(name),          Traits::kGates,   Traits::kStates,  Traits::kParameters,
          Traits::kAddsGates,       Traits::kProduct, Traits::kLinear,  Traits::kNormalisesGates,
          Traits::kNormalisedState, Traits::kEpsilon, cpu_cell<Cell>(), formula_of<Cell>(),
          std::move(cuda)};
}

}  // namespace lltm_jit
