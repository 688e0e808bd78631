// Gates with room for more than their units, Note [Padded gates] (kernels.h), and the copies for them.
#pragma once

#include <utility>
#include <vector>

#include "rnn/sequence/operators.h"

namespace lltm_jit {

// As padded_size().
c10::SymInt padded_size(const c10::SymInt& size);

// The elements of a gate, of which hidden_size are units; the weights of a call tell.
c10::SymInt gate_size(const SequenceInputs& in, const RecurrentCell& cell);
bool is_padded(const SequenceInputs& in, const RecurrentCell& cell);

// A dimension of another size, with the first elements or zeros behind them; and the same for each of the gates in
// a dimension. In torch operations.
Tensor resize(const Tensor& tensor, int64_t dim, const c10::SymInt& size);
Tensor resize_gates(const Tensor& tensor, int64_t dim, int64_t gates, const c10::SymInt& from,
                    const c10::SymInt& to);

// A call's arguments with gates of another size, and its results with the caller's sizes.
class ResizedGates {
 public:
  ResizedGates(const SequenceInputs& in, const RecurrentCell& cell, const c10::SymInt& size);
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

// Whether the kernels for such tensors take padded gates.
bool kernels_pad(const Tensor& like);

// Of such sizes, the last of them hidden_size, with room for padding behind each row.
Tensor empty_padded_weights(const Tensor& like, c10::SymIntArrayRef sizes);

// A copy of rows to a tensor that is dense, but for such room, which is written, too.
struct RowsToCopy {
  Tensor from, to;
  // Of `from`: its rows, or a vector's elements, are divided into so many; 0 for the first of three dimensions.
  int64_t parts = 0;
  int64_t piece = 0, pieces = 1;  // of `to`, which may take several copies
  Tensor addend{};                // of the layout of `from`, and added to it
  bool zero = false;              // zeros take the place of what `from` has
  float others = 0;               // what is written where `from` has nothing
};
// In one launch on a GPU.
void copy_rows(const std::vector<RowsToCopy>& all);

// In the form that kernels read: with dense rows, on a GPU aligned for whole accesses.
Tensor readable(const Tensor& tensor);
Tensor readable_weights(const Tensor& weight_hh, bool padded);

// What the backward pass of padded gates reads. Rows are padded with ones, in grad_output and h.resets with zeros;
// h.first is a step before the first one.
struct PaddedOutputs {
  Tensor output;               // of each step
  std::vector<Tensor> before;  // and of the step before it, for each direction
  GivenStates h{{}, 2};
  OptionalTensor grad_output;

  explicit PaddedOutputs(const SequenceBackwardInputs& in);
};

}  // namespace lltm_jit
