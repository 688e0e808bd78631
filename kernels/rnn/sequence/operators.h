// The operators of whole recurrent sequences, and what these files use of each other. lltm_jit/ops/rnn/sequence.py
// explains the arguments.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/host/checks.h"
#include "core/host/operator.h"
#include "rnn/sequence/kernels.h"
#include "rnn/sequence/recurrent_cell.h"

namespace lltm_jit {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

using SequenceResults = std::tuple<Tensor, Tensor, Tensor>;  // output, h_n, c_n
// And the cell states that each step begins with, by themselves
using SequenceStates = std::tuple<Tensor, Tensor, Tensor, Tensor>;
// or behind the gates that the backward pass needs, too.
using SequenceAndSaved = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;
template <typename Results>
Results results_of(const SequenceAndSaved& all) {
  const auto& [output, h_n, c_n, saved_gates, saved_cells] = all;
  if constexpr (std::is_same_v<Results, SequenceResults>) {
    return {output, h_n, c_n};
  } else if constexpr (std::is_same_v<Results, SequenceStates>) {
    return {output, h_n, c_n, saved_cells};
  } else {
    return all;
  }
}
// Gradients in the order of SequenceInputs, and which of them are wanted.
using SequenceGradients = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;
using SequenceMask = std::array<bool, 6>;

struct SequenceInputs {
  const Tensor &gates, &weight_hh;
  const OptionalTensor &bias_hh, &parameters, &h_0, &c_0, &control;
  bool reverse;
  std::string_view cell;
  bool tf32;           // SequenceSizes::tf32
  bool bidirectional;  // Note [Recurrences]
};

// h_0 or c_0 of a call. Behind the state before the first step, it may have the states that resets set, one for all
// steps or one for each.
struct GivenStates {
  OptionalTensor first, resets;

  // dim: the dimensions of one state.
  GivenStates(const OptionalTensor& states, int64_t dim) : first(states) {
    if (!states || states->dim() == dim) return;
    first = states->select(0, 0);
    resets = states->narrow_symint(0, 1, states->sym_size(0) - 1);
  }
  static GivenStates of_h(const SequenceInputs& in) { return {in.h_0, 2}; }
  static GivenStates of_cells(const SequenceInputs& in) { return {in.c_0, 3}; }
};

struct SequenceBackwardInputs {
  const OptionalTensor &grad_output, &grad_h_n, &grad_c_n;
  SequenceInputs in;
  const Tensor &output, &saved_gates, &saved_cells;
  SequenceMask output_mask;
  bool gates_are_sums;  // those of the input's and the hidden part
  const OptionalTensor& grad_saved_cells;
};

template <typename Result>
using OfSequence = Result(const Tensor& gates, const Tensor& weight_hh,
                          const OptionalTensor& bias_hh, const OptionalTensor& parameters,
                          const OptionalTensor& h_0, const OptionalTensor& c_0,
                          const OptionalTensor& control, bool reverse, std::string_view cell,
                          bool tf32, bool bidirectional);
using OfSequenceBackward = SequenceGradients(
    const OptionalTensor& grad_output, const OptionalTensor& grad_h_n,
    const OptionalTensor& grad_c_n, const Tensor& gates, const Tensor& weight_hh,
    const OptionalTensor& bias_hh, const OptionalTensor& parameters, const OptionalTensor& h_0,
    const OptionalTensor& c_0, const OptionalTensor& control, bool reverse, std::string_view cell,
    bool tf32, bool bidirectional, const Tensor& output, const Tensor& saved_gates,
    const Tensor& saved_cells, SequenceMask output_mask, bool gates_are_sums,
    const OptionalTensor& grad_saved_cells);

namespace ops {
extern Operator<OfSequence<SequenceResults>> recurrent_sequence;
extern Operator<OfSequence<SequenceStates>> recurrent_sequence_states;
extern Operator<OfSequence<SequenceAndSaved>> recurrent_sequence_forward;
extern Operator<OfSequenceBackward> recurrent_sequence_backward;
}  // namespace ops

// Lets find_cell() know this family's own cells; in calls/cells.cpp, as
void add_own_cells();
// what a layer must know of each cell: name, gates, states, parameters, and whether it adds its gates, has a product,
// normalises its gates, and normalises anything.
using CellFacts = std::tuple<std::string, int64_t, int64_t, int64_t, bool, bool, bool, bool>;
std::vector<CellFacts> own_cells();

// The kernels that Python compiles for calls on a GPU, as load_declared() of lltm_jit/jit/variants.py takes them:
// for a cell; a dtype by torch's name, or "tf32"; steps, batch and hidden size, directions and heads; whether gates
// are padded, there is a backward pass, and there are control bytes; and a GPU as sequence_gpu() describes it.
using PlannedVariant = std::tuple<std::string, std::string,
                                  std::vector<std::tuple<std::string, std::string>>, std::string>;
std::vector<PlannedVariant> planned_variants(std::string_view cell, std::string_view dtype,
                                             int64_t steps, int64_t batch_size, int64_t hidden_size,
                                             int64_t directions, int64_t heads, bool padded,
                                             bool training, bool controls,
                                             at::ArrayRef<int64_t> gpu);

// Whether both directions of a layer run in one call, over a sequence from its two ends: on a CPU if there are many rows;
// on a GPU if one persistent kernel does, also in the backward pass, if there is one.
bool directions_together(const Tensor& input, int64_t hidden_size, int64_t heads,
                         std::string_view cell, bool padded, bool training, bool tf32);

// The steps of each part of layers side by side, or 0 if that is no faster: Note [Layers side by side]
// (side_by_side/layers.h). dtype and gpu as above.
int64_t layers_part(std::string_view cell, std::string_view dtype, int64_t steps,
                    int64_t batch_size, int64_t hidden_size, int64_t layers, bool training,
                    at::ArrayRef<int64_t> gpu);

// The checks of arguments that the functions below begin with. They return the cell.
const RecurrentCell& check_sequence(const SequenceInputs& in);
const RecurrentCell& check_sequence_backward(const SequenceBackwardInputs& in);
// The saved gates of a cell without a product are its gates, which are not saved again.
std::vector<c10::SymInt> saved_gates_sizes(const SequenceInputs& in, const RecurrentCell& cell);

// The type of the state between steps: the arithmetic type of the elements.
inline at::ScalarType state_dtype(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

// Those of one recurrence.
inline SequenceSizes sizes_of(const RecurrentCell& cell, ElementType type, bool tf32, int64_t steps,
                              int64_t batch_size, int64_t hidden_size) {
  return {.steps = steps,
          .batch_size = batch_size,
          .hidden_size = hidden_size,
          .gates = cell.gates,
          .states = cell.states,
          .parameters = cell.parameters,
          .adds_gates = cell.adds_gates,
          .type = type,
          .state_type = type == ElementType::Double ? type : ElementType::Float,
          .tf32 = tf32 && type == ElementType::Float,
          .normalises = cell.normalises()};
}

// A layer's arguments, besides those of a sequence.
struct LayerCall {
  OptionalTensor input{}, weight_ih{};  // on a CPU: the factors of the gates' product
  OptionalTensor bias_ih{};             // not in the gates yet
  Tensor output{};                      // where to write that of one direction
  // Last states, [all, batch, hidden_size], of which to write those of the call's directions, from `first` on.
  Tensor h_n{}, c_n{};
  int64_t first = 0;
};

// The implementations for CPU, CUDA and meta tensors, in calls/.
SequenceAndSaved sequence_forward(const SequenceInputs& in, SequenceSaves saves,
                                  const LayerCall& call = {});
SequenceGradients sequence_backward_kernel(const SequenceBackwardInputs& in);

// The operators input_gates and recurrent_sequence in one call; in calls/layer.cpp. If nothing is differentiated or
// transformed, a CPU computes a few steps at a time: the gates of all steps are never in memory.
SequenceResults recurrent_layer(const Tensor& input, const Tensor& weight_ih,
                                const OptionalTensor& bias_ih, const Tensor& weight_hh,
                                const OptionalTensor& bias_hh, const OptionalTensor& parameters,
                                const OptionalTensor& h_0, const OptionalTensor& c_0,
                                const OptionalTensor& control, bool reverse, std::string_view cell,
                                bool tf32, bool bidirectional);

// All layers of a stack, each on the output of the one before. `weights` has, for each layer and each direction of it,
// weight_ih, weight_hh and, if there are any, bias_ih, bias_hh and parameters. Each of the states has those of all, in
// this order; without states all are zeros. `pads` is for a GPU: Note [Padded gates] (kernels.h). `part`: that of Note
// [Layers side by side] (side_by_side/layers.h), or 0 for one layer after the other, instead of what is
// quicker. Returns the output and the last states.
std::vector<Tensor> recurrent_layers(const Tensor& input, at::ArrayRef<Tensor> weights,
                                     int64_t layers, int64_t directions,
                                     at::ArrayRef<Tensor> states, std::string_view cell, bool pads,
                                     bool tf32, std::optional<int64_t> part);

// The formula in operations of torch, in calls/formula.cpp. It is differentiable any number of times.
SequenceAndSaved sequence_forward_formula(const SequenceInputs& in);
SequenceGradients sequence_backward_formula(const SequenceBackwardInputs& in);

}  // namespace lltm_jit
