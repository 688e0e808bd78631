// Contract between the host code of whole recurrent sequences (calls/) and its kernels. No torch
// header: every pointer is raw, every array row-major, and dense unless stated otherwise.
//
// A gates array holds, step by step and row by row, the cell's gates one after the other, each of hidden_size
// elements, or padded to more. The output, and the factor of the weights, has the element type `type`. The state
// runs in `state_type`, the arithmetic type of `type`, in which cell states (all states but the output) are also
// stored.
//
// Note [Padded gates]
// The kernels of a GPU that run a whole sequence read and write four neighbouring units at once, and the library's
// products are slow if rows are not aligned (in 16 bits, to eight elements). So each gate has room for padded_size()
// units, in gates and saved gates, their gradients, biases and weights. This is so whenever the caller wants it, and if
// hidden_size is no multiple of four, unless there is only one step. A layer's operands are padded in one launch
// (padding/operands.h), before the products over all steps. The other arrays have the user's sizes, except for the
// copies of outputs and their gradients that the backward pass reads. For units that do not exist, weights and their
// columns are zero, and so are the gradients of gates. Gates and the cell's results may be anything there: the output
// of such a unit counts as zero.
//
// Note [Recurrences]
// Recurrences that depend on nothing of each other run in one call: the heads of a layer, each with its block of the
// recurrent weights, and its two directions. Each has hidden_size units, and weights of its own: first the weights of
// the heads of one direction, then those of the other direction, which computes the steps in the opposite order. A row of
//   a state or a parameter has the units of all recurrences, in this order;
//   gates or a bias has each direction's gates, one after the other, each with the units of all heads.
// Below, `units` are the units of all recurrences, and gates*units are as many numbers for each gate.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/launch/api.h"
#include "core/math/scalar.h"

namespace lltm_jit {

// What a step does to a row, besides computing it.
enum SequenceControl : uint8_t {
  kResets = 1,  // before the step the state is set to zero, or to a state that the call gives
  // The step is not computed: the output is zero, the state stays. This is allowed only before the first computed step
  // of a row, or after the last one.
  kHolds = 2,
};

// How persistent kernels are compiled for such bytes.
enum SequenceControls : int {
  kNoControls,
  kZeroResets,
  kGivenResets,  // rows are reset to given states
};

// What a forward pass saves of each step.
enum SequenceSaves : int {
  kSavesNothing,
  kSavesAll,    // for a backward pass: gates, and cell states
  kSavesCells,  // cell states alone, which the caller wants
};

// An array of steps and rows with any strides, in elements; a step's may be negative, for sequences that run
// backwards. The rows themselves are dense. Two directions share the array: the second one begins with the last of
// these steps.
template <typename Data>
struct StridedArray {
  Data* data;  // of the first step that is computed; or null
  int64_t step_stride, row_stride;

  template <typename T>
  LLTM_JIT_HOST_DEVICE auto* as() const {
    return static_cast<std::conditional_t<std::is_const_v<Data>, const T, T>*>(data);
  }
};
using SequenceArray = StridedArray<const void>;
using MutableSequenceArray = StridedArray<void>;

constexpr int64_t kWholeAccess = 4, kLine = 8;  // elements; of half, 16 bytes are a line
// The size that units, or a row, are padded to.
LLTM_JIT_HOST_DEVICE constexpr int64_t padded_size(int64_t size) {
  return (size + kLine - 1) / kLine * kLine;
}

struct SequenceSizes {
  int64_t steps, batch_size, hidden_size;  // all positive
  int gates, states, parameters;           // of the cell
  bool adds_gates;
  ElementType type, state_type;
  // Whether a GPU may round the factors of products of floats to the precision of TF32.
  bool tf32 = false;
  int directions = 1, heads = 1;  // Note [Recurrences]
  bool padded = false;            // Note [Padded gates], on a GPU
  bool normalises = false;        // whether the cell needs sums over the units of a row
  // Note [Layers side by side] (side_by_side/layers.h): how many layers a row of the arrays has, if the directions
  // are some of these layers. None of them then reverses the steps.
  int layers = 0;

  // Elements of a gate.
  LLTM_JIT_HOST_DEVICE int64_t gate_size() const {
    return padded ? padded_size(hidden_size) : hidden_size;
  }

  LLTM_JIT_HOST_DEVICE int recurrences() const { return directions * heads; }
  // Whether they lie beside other recurrences in the arrays.
  LLTM_JIT_HOST_DEVICE bool several() const { return layers > 0 || recurrences() > 1; }
  LLTM_JIT_HOST_DEVICE int64_t units() const {
    return (layers > 0 ? layers : recurrences()) * hidden_size;
  }
  // From a gate of a row to the next one.
  LLTM_JIT_HOST_DEVICE int64_t gate_stride() const { return heads * gate_size(); }
};

// The steps of a sequence, one after the other.
struct SequenceForwardArgs : SequenceSizes {
  SequenceArray gates;  // [steps, batch, gates*units]: the input's part, biases included
  const void* weights;  // [recurrences, gates*hidden, hidden]; if padded, columns too
  int64_t weights_stride, recurrence_stride;  // of a row of them, and of a recurrence's
  const void* bias;                           // [gates*units], of the hidden part; or null
  const void* parameters;                     // [parameters, units]; or null
  const void* old_h;                          // [batch, units]; or null for zeros
  const void* old_cells;  // [states-1, batch, units] of state_type; or null for zeros
  // The states that a reset before a step sets: [steps, batch, units], and [steps, states-1, batch, units] of
  // state_type, in rows of `units`; or null for zeros. With a step_stride of 0, all steps have the same states.
  SequenceArray reset_h, reset_cells;
  const uint8_t* control;  // [directions, steps, batch], SequenceControl; or null
  int64_t control_step_stride,
      control_direction_stride;  // the first is signed, as that of the gates
  MutableSequenceArray output;   // [steps, batch, units] written
  void* new_h;                   // [batch, units] written
  void* new_cells;               // [states-1, batch, units] written; null for one state
  bool narrow_cells;             // whether they are of `type`, on a GPU, or of state_type
  // Whether new_h and new_cells have the first direction's units, [batch, heads*hidden], before the other's.
  bool states_apart;
  // Null unless saves() needs them. For each step the gates' sums, or, if the cell does not add its gates, the
  // hidden part alone, bias included; and the cell states that the step began with.
  MutableSequenceArray saved_gates;  // [steps, batch, gates*units]
  MutableSequenceArray
      saved_cells;  // [steps, states-1, batch, units] of state_type; row_stride units
  void* workspace;  // of SequencePlan::workspace bytes, on a GPU
  // The bias of the input's part, if `gates` do not include it; or null. On a GPU its sum with `bias` is rounded to `type`.
  const void* input_bias;  // [gates*hidden]
  // On a CPU, or null: the factors of `gates`, which then has no data.
  SequenceArray input;        // [steps, batch, input_size]
  const void* input_weights;  // [gates*hidden, input_size], rows input_weights_stride apart
  int64_t input_size, input_weights_stride;
  int64_t first_row;  // of a launch, Note [Many rows]

  SequenceSaves saves() const {
    return saved_gates.data ? kSavesAll : saved_cells.data ? kSavesCells : kSavesNothing;
  }
};

// The steps from the last to the first. All arrays begin with the step that was computed first, and have
// the strides of the forward pass.
struct SequenceBackwardArgs : SequenceSizes {
  SequenceArray grad_output;   // [steps, batch, units]; or null for zeros
  const void* grad_new_h;      // [batch, units]; or null
  const void* grad_new_cells;  // [states-1, batch, units] of state_type; or null
  SequenceArray gates;         // where the cell does not add its gates
  SequenceArray output;  // if padded, so are its units, and the step before the first one is old_h
  SequenceArray saved_gates, saved_cells;
  const void* weights;
  int64_t weights_stride, recurrence_stride;
  const void* parameters;
  const void* old_h;                   // or null for zeros
  SequenceArray reset_h, reset_cells;  // as forward
  const uint8_t* control;
  int64_t control_step_stride, control_direction_stride;
  MutableSequenceArray grad_gates;   // [steps, batch, gates*units] written: of the input's part
  MutableSequenceArray grad_hidden;  // likewise of the hidden part; null if the cell adds its gates
  void* grad_old_h;                  // [batch, units] written; or null
  void* grad_old_cells;              // [states-1, batch, units] of state_type, written; or null
  // As reset_h and reset_cells, but both of state_type: gradients are added to zeros. Null if they are not wanted; the
  // gradient of reset_h is wanted only together with grad_old_h.
  MutableSequenceArray grad_reset_h, grad_reset_cells;
  void* grad_parameters;  // [parameters, batch, units] of state_type, written: sums of all steps
  void* workspace;        // of SequencePlan::workspace bytes, on a GPU
  SequenceArray grad_saved_cells;  // as saved_cells; or null
  int64_t first_row;               // of a launch, Note [Many rows]
};

// Of either pass.
template <typename Args>
SequenceControls controls_of(const Args& args) {
  if (!args.control) return kNoControls;
  return args.reset_h.data || args.reset_cells.data ? kGivenResets : kZeroResets;
}

}  // namespace lltm_jit
