// The pointwise part of a cell's steps on the CPU, generated from the cell's maths.
#pragma once

#include <algorithm>

#include "core/types/vectorized.h"
#include "rnn/sequence/cell.h"
#include "rnn/sequence/cpu/steps.h"

namespace lltm_jit {

// Note [Flattened]
// g++ judges the size of the cell's maths before it folds constants, and would call the maths as a function, with
// vectors in memory. In the backward step, for example, most partials of the dual numbers are known to be zero.
template <typename Cell, typename scalar_t>
[[gnu::flatten]] void cell_forward_row(const CellForwardRow& row) {
  using Traits = CellTraits<Cell>;
  using acc_t = opmath_t<scalar_t>;
  using Vec = at::vec::Vectorized<acc_t>;
  const auto* gates = static_cast<const scalar_t*>(row.gates);
  const auto* inputs = static_cast<const acc_t*>(row.acc_inputs);
  const auto* sums = static_cast<const acc_t*>(row.acc_sums);
  const auto* parameters = static_cast<const scalar_t*>(row.parameters);
  auto* states = static_cast<acc_t*>(row.acc_states);
  auto* output = static_cast<scalar_t*>(row.output);
  auto* saved_gates = static_cast<scalar_t*>(row.saved_gates);
  auto* saved_cells = static_cast<acc_t*>(row.acc_saved_cells);
  for (int64_t i = 0; i < row.units; i += Vec::size()) {
    const int64_t n = std::min<int64_t>(Vec::size(), row.units - i);
    CellStep<Cell, Vec> in;
    for (int g = 0; g < Traits::kGates; ++g) {
      const int64_t place = g * row.gate_stride + i;
      if constexpr (!Traits::kProduct) {
        in.x[g] = load(gates + place, n);
        continue;
      }
      const Vec hidden = Vec::loadu(sums);
      sums += Vec::size();
      if (gates != nullptr) {
        in.x[g] = load(gates + place, n);
      } else {
        in.x[g] = Vec::loadu(inputs);
        inputs += Vec::size();
      }
      if constexpr (Traits::kAddsGates) {
        in.x[g] = in.x[g] + hidden;
      } else {
        in.h[g] = hidden;
      }
      if (saved_gates != nullptr) {
        store(saved_gates + place, Traits::kAddsGates ? in.x[g] : hidden, n);
      }
    }
    for (int p = 0; p < Traits::kParameters; ++p) {
      in.p[p] = load(parameters + p * row.parameter_stride + i, n);
    }
    for (int s = 0; s < Traits::kStates; ++s) {
      in.old[s] = load(states + s * row.state_stride + i, n);
      if (s > 0 && saved_cells != nullptr) {
        store(saved_cells + (s - 1) * row.cell_stride + i, in.old[s], n);
      }
    }
    Vec now[Traits::kStates];
    run_step(in, now);
    store(output + i, now[0], n);
    for (int s = 0; s < Traits::kStates; ++s) store(states + s * row.state_stride + i, now[s], n);
  }
}

template <typename Cell, typename scalar_t>
[[gnu::flatten]] void cell_backward_row(const CellBackwardRow& row) {
  using Traits = CellTraits<Cell>;
  using acc_t = opmath_t<scalar_t>;
  using Vec = at::vec::Vectorized<acc_t>;
  const auto* grad_output = static_cast<const scalar_t*>(row.grad_output);
  const auto* grad_h = static_cast<const acc_t*>(row.acc_grad_h);
  auto* grad_states = static_cast<acc_t*>(row.acc_grad_states);
  const auto* gates = static_cast<const scalar_t*>(row.gates);
  const auto* saved_gates = static_cast<const scalar_t*>(row.saved_gates);
  const auto* parameters = static_cast<const scalar_t*>(row.parameters);
  const auto* old_h = static_cast<const scalar_t*>(row.old_h);
  const auto* saved_cells = static_cast<const acc_t*>(row.acc_saved_cells);
  auto* grad_gates = static_cast<scalar_t*>(row.grad_gates);
  auto* grad_hidden = static_cast<scalar_t*>(row.grad_hidden);
  auto* grad_parameters = static_cast<acc_t*>(row.acc_grad_parameters);
  for (int64_t i = 0; i < row.units; i += Vec::size()) {
    const int64_t n = std::min<int64_t>(Vec::size(), row.units - i);
    CellStep<Cell, Vec> in;
    for (int g = 0; g < Traits::kGates; ++g) {
      const int64_t place = g * row.gate_stride + i;
      if constexpr (Traits::kAddsGates) {
        in.x[g] = load(saved_gates + place, n);
      } else {
        in.x[g] = load(gates + place, n);
        in.h[g] = load(saved_gates + place, n);
      }
    }
    for (int p = 0; p < Traits::kParameters; ++p) {
      in.p[p] = load(parameters + p * row.parameter_stride + i, n);
    }
    in.old[0] = old_h != nullptr ? load(old_h + i, n) : Vec(acc_t(0));
    for (int s = 1; s < Traits::kStates; ++s) {
      in.old[s] = load(saved_cells + (s - 1) * row.cell_stride + i, n);
    }
    Vec grad_now[Traits::kStates];
    for (int s = 0; s < Traits::kStates; ++s) {
      grad_now[s] = load(grad_states + s * row.state_stride + i, n);
    }
    grad_now[0] = grad_now[0] + load(grad_h + i, n);
    if (grad_output != nullptr) grad_now[0] = grad_now[0] + load(grad_output + i, n);

    const CellStep<Cell, Vec> grads = CellDerivative<Cell, Vec>(in)(grad_now);
    for (int g = 0; g < Traits::kGates; ++g) {
      const int64_t place = g * row.gate_stride + i;
      store(grad_gates + place, grads.x[g], n);
      if constexpr (!Traits::kAddsGates) store(grad_hidden + place, grads.h[g], n);
    }
    for (int p = 0; p < Traits::kParameters; ++p) {
      acc_t* sum = grad_parameters + p * row.cell_stride + i;
      store(sum, load(sum, n) + grads.p[p], n);
    }
    for (int s = 0; s < Traits::kStates; ++s) {
      store(grad_states + s * row.state_stride + i, grads.old[s], n);
    }
  }
}

template <typename Cell>
const CpuCell& cpu_cell() {
  if constexpr (CellTraits<Cell>::kNormalises) {  // whose steps are the formula's
    static constexpr CpuCell none{};
    return none;
  }
  static constexpr CpuCell cell{
      {cell_forward_row<Cell, c10::Half>, cell_forward_row<Cell, c10::BFloat16>,
       cell_forward_row<Cell, float>, cell_forward_row<Cell, double>},
      {cell_backward_row<Cell, c10::Half>, cell_backward_row<Cell, c10::BFloat16>,
       cell_backward_row<Cell, float>, cell_backward_row<Cell, double>}};
  return cell;
}

}  // namespace lltm_jit
