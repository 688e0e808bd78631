// The cells that sequences can be made of, by name: those of this family, and the users'.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

#include "core/host/tensor_value.h"
#include "rnn/sequence/cell.h"
#include "rnn/sequence/cpu/steps.h"
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
};

struct RecurrentCell {
  std::string name;
  int gates, states, parameters;
  bool adds_gates;
  CpuCell cpu;
  CellFormula formula;
  CudaCell cuda;
};

// A cell of this name that is there is replaced: its source was edited.
void add_cell(RecurrentCell cell);
// The cell that another library made, at an address that Python has of it.
void add_cell_at(int64_t address);
const RecurrentCell& find_cell(std::string_view name);

// ---------------------------------------------------------------------------- of a cell's type --

template <typename Cell>
struct FormulaOf {
  using Traits = CellTraits<Cell>;
  using Step = CellStep<Cell, TensorValue>;

  static Step wrapped(const CellTensors& in) {
    Step step;
    for (int g = 0; g < Traits::kGates; ++g) step.x[g] = in.x[g];
    for (int g = 0; !Traits::kAddsGates && g < Traits::kGates; ++g) step.h[g] = in.h[g];
    for (int i = 0; i < Traits::kParameters; ++i) step.p[i] = in.p[i];
    for (int s = 0; s < Traits::kStates; ++s) step.old[s] = in.old[s];
    return step;
  }

  static void step(const CellTensors& in, at::Tensor* now) {
    TensorValue values[Traits::kStates];
    run_step(wrapped(in), values);
    for (int s = 0; s < Traits::kStates; ++s) now[s] = whole(values[s], in);
  }

  static void step_backward(const CellTensors& in, const at::Tensor* grad_now,
                            const CellTensors& grads) {
    TensorValue given[Traits::kStates];
    for (int s = 0; s < Traits::kStates; ++s) given[s] = grad_now[s];
    const Step found = CellDerivative<Cell, TensorValue>(wrapped(in))(given);
    for (int g = 0; g < Traits::kGates; ++g) grads.x[g] = whole(found.x[g], in);
    for (int g = 0; !Traits::kAddsGates && g < Traits::kGates; ++g) {
      grads.h[g] = whole(found.h[g], in);
    }
    for (int i = 0; i < Traits::kParameters; ++i) grads.p[i] = whole(found.p[i], in);
    for (int s = 0; s < Traits::kStates; ++s) grads.old[s] = whole(found.old[s], in);
  }

 private:
  static at::Tensor whole(const TensorValue& value, const CellTensors& in) {
    return value.is_constant() ? in.x[0].new_full_symint(in.x[0].sym_sizes(), value.constant)
                               : value.tensor;
  }
};

template <typename Cell>
RecurrentCell recurrent_cell(std::string name, CudaCell cuda) {
  using Traits = CellTraits<Cell>;
  return {std::move(name),
          Traits::kGates,
          Traits::kStates,
          Traits::kParameters,
          Traits::kAddsGates,
          cpu_cell<Cell>(),
          {FormulaOf<Cell>::step, FormulaOf<Cell>::step_backward},
          std::move(cuda)};
}

}  // namespace lltm_jit
