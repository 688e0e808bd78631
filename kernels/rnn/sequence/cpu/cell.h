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
[[gnu::flatten]] void cell_forward_row(const CellForwardRow<scalar_t>& of_step) {
  using Traits = CellTraits<Cell>;
  using Vec = at::vec::Vectorized<opmath_t<scalar_t>>;
  const auto row = of_step;  // else each store would reload its pointers
  const auto *inputs = row.inputs, *sums = row.sums;
  for (int64_t i = 0; i < row.units; i += Vec::size()) {
    const int64_t n = std::min<int64_t>(Vec::size(), row.units - i);
    CellStep<Cell, Vec> in;
    for (int g = 0; g < Traits::kGates; ++g) {
      const int64_t place = g * row.gate_stride + i;
      if constexpr (!Traits::kProduct) {
        in.x[g] = load(row.gates + place, n);
        continue;
      }
      const Vec hidden = Vec::loadu(sums);
      sums += Vec::size();
      if (row.gates != nullptr) {
        in.x[g] = load(row.gates + place, n);
      } else {
        in.x[g] = Vec::loadu(inputs);
        inputs += Vec::size();
      }
      if constexpr (Traits::kAddsGates) {
        in.x[g] = in.x[g] + hidden;
      } else {
        in.h[g] = hidden;
      }
      if (row.saved_gates != nullptr) {
        store(row.saved_gates + place, Traits::kAddsGates ? in.x[g] : hidden, n);
      }
    }
    for (int p = 0; p < Traits::kParameters; ++p) {
      in.p[p] = load(row.parameters + p * row.parameter_stride + i, n);
    }
    for (int s = 0; s < Traits::kStates; ++s) {
      in.old[s] = load(row.states + s * row.state_stride + i, n);
      if (s > 0 && row.saved_cells != nullptr) {
        store(row.saved_cells + (s - 1) * row.cell_stride + i, in.old[s], n);
      }
    }
    Vec now[Traits::kStates];
    run_step(in, now);
    store(row.output + i, now[0], n);
    for (int s = 0; s < Traits::kStates; ++s)
      store(row.states + s * row.state_stride + i, now[s], n);
  }
}

template <typename Cell, typename scalar_t>
[[gnu::flatten]] void cell_backward_row(const CellBackwardRow<scalar_t>& of_step) {
  using Traits = CellTraits<Cell>;
  using acc_t = opmath_t<scalar_t>;
  using Vec = at::vec::Vectorized<acc_t>;
  const auto row = of_step;
  for (int64_t i = 0; i < row.units; i += Vec::size()) {
    const int64_t n = std::min<int64_t>(Vec::size(), row.units - i);
    CellStep<Cell, Vec> in;
    for (int g = 0; g < Traits::kGates; ++g) {
      const int64_t place = g * row.gate_stride + i;
      if constexpr (Traits::kAddsGates) {
        in.x[g] = load(row.saved_gates + place, n);
      } else {
        in.x[g] = load(row.gates + place, n);
        in.h[g] = load(row.saved_gates + place, n);
      }
    }
    for (int p = 0; p < Traits::kParameters; ++p) {
      in.p[p] = load(row.parameters + p * row.parameter_stride + i, n);
    }
    in.old[0] = row.old_h != nullptr ? load(row.old_h + i, n) : Vec(acc_t(0));
    for (int s = 1; s < Traits::kStates; ++s) {
      in.old[s] = load(row.saved_cells + (s - 1) * row.cell_stride + i, n);
    }
    Vec grad_now[Traits::kStates];
    for (int s = 0; s < Traits::kStates; ++s) {
      grad_now[s] = load(row.grad_states + s * row.state_stride + i, n);
    }
    grad_now[0] = grad_now[0] + load(row.grad_h + i, n);
    if (row.grad_output != nullptr) grad_now[0] = grad_now[0] + load(row.grad_output + i, n);

    const CellStep<Cell, Vec> grads = CellDerivative<Cell, Vec>(in)(grad_now);
    for (int g = 0; g < Traits::kGates; ++g) {
      const int64_t place = g * row.gate_stride + i;
      store(row.grad_gates + place, grads.x[g], n);
      if constexpr (!Traits::kAddsGates) store(row.grad_hidden + place, grads.h[g], n);
    }
    for (int p = 0; p < Traits::kParameters; ++p) {
      acc_t* sum = row.grad_parameters + p * row.cell_stride + i;
      store(sum, load(sum, n) + grads.p[p], n);
    }
    for (int s = 0; s < Traits::kStates; ++s) {
      store(row.grad_states + s * row.state_stride + i, grads.old[s], n);
    }
  }
}

template <typename Cell, typename scalar_t>
constexpr CpuSteps<scalar_t> cpu_steps() {
  if constexpr (CellTraits<Cell>::kNormalises) {
    return {};
  } else {
    return {cell_forward_row<Cell, scalar_t>, cell_backward_row<Cell, scalar_t>};
  }
}

template <typename Cell>
CpuCell cpu_cell() {
  return {cpu_steps<Cell, c10::Half>(), cpu_steps<Cell, c10::BFloat16>(), cpu_steps<Cell, float>(),
          cpu_steps<Cell, double>(), CellTraits<Cell>::kProduct};
}

}  // namespace lltm_jit
