// Gates with room for more than their units, Note [Padded gates] (kernels.h), and copies to and from them.
#pragma once

#include <utility>
#include <vector>

#include "rnn/sequence/operators.h"

namespace lltm_jit {

// A symbolic padded_size().
c10::SymInt padded_size(const c10::SymInt& size);

// The elements of a gate, of which hidden_size are units. The weights of a call show the number.
c10::SymInt gate_size(const SequenceInputs& in, const RecurrentCell& cell);
bool is_padded(const SequenceInputs& in, const RecurrentCell& cell);

// A copy with another size of a dimension: the first elements, and zeros behind them. resize_gates() does so for each
// of the gates in a dimension. In torch operations.
Tensor resize(const Tensor& tensor, int64_t dim, const c10::SymInt& size);
Tensor resize_gates(const Tensor& tensor, int64_t dim, int64_t gates, const c10::SymInt& from,
                    const c10::SymInt& to);

// A call's arguments with padded gates, or without the padding that they have. Its results get the caller's sizes again.
class ResizedGates {
 public:
  ResizedGates(const SequenceInputs& in, const RecurrentCell& cell);
  SequenceInputs in_place_of(const SequenceInputs& in) const;
  SequenceBackwardInputs in_place_of(const SequenceBackwardInputs& back);
  SequenceAndSaved resize_back(const SequenceAndSaved& results) const;
  SequenceGradients resize_back(const SequenceGradients& grads) const;

 private:
  Tensor back(const Tensor& tensor, int64_t dim) const;

  int64_t count_;
  c10::SymInt from_, to_;
  Tensor gates_, weight_hh_, saved_gates_;
  OptionalTensor bias_hh_;
};

// ------------------------------------------------------------------------------------ for kernels --

// Whether the kernels for such tensors support padded gates.
bool kernels_pad(const Tensor& like);

// Allocates weights of these sizes, of which the last is hidden_size, with room for padding behind each row.
Tensor empty_padded_weights(const Tensor& like, c10::SymIntArrayRef sizes);

// A copy of rows to a tensor that is dense except for the padding, which is written, too.
struct RowsToCopy {
  Tensor from, to;
  // The number of parts of the rows (or elements) of `from`; 0 if the first of its three dimensions is the parts.
  int64_t parts = 0;
  int64_t piece = 0, pieces = 1;  // of `to`, which several copies may fill
  Tensor addend{};                // added to `from`, with its layout
  bool zero = false;              // writes zeros in place of `from`
};
// Copies all, in one launch on a GPU.
void copy_rows(const std::vector<RowsToCopy>& all);

// The tensor in the form that kernels read: with dense rows, on a GPU aligned for whole accesses.
Tensor readable(const Tensor& tensor);
Tensor readable_weights(const Tensor& weight_hh, bool padded);

// The tensors that the backward pass of padded gates reads, padded with zeros. Kernels read the step before the first
// one in front of `output`, or behind it if the steps are reversed.
struct PaddedOutputs {
  Tensor output;
  GivenStates h{{}, 2};
  OptionalTensor grad_output;

  explicit PaddedOutputs(const SequenceBackwardInputs& in);
};

}  // namespace lltm_jit
