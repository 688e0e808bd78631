// The parts of a call's tensors that belong to each of several recurrences: Note [Recurrences] (kernels.h).
#pragma once

#include <vector>

#include "rnn/sequence/operators.h"

namespace lltm_jit {

struct Recurrences {
  int64_t directions, heads;
  int64_t count() const { return directions * heads; }
};

// Weights of two dimensions belong to a single recurrence.
inline bool has_recurrences(const SequenceInputs& in) { return in.weight_hh.dim() == 3; }
Recurrences recurrences_of(const SequenceInputs& in);

// The inputs of one recurrence, as for a call of its own; in torch operations.
class OneRecurrence {
 public:
  OneRecurrence(const SequenceInputs& in, const RecurrentCell& cell, int64_t index);
  SequenceInputs inputs(const SequenceInputs& in) const;
  SequenceBackwardInputs inputs(const SequenceBackwardInputs& back);

 private:
  Tensor of_units(const Tensor& tensor) const;
  Tensor of_gates(const Tensor& tensor, int64_t dim) const;

  const RecurrentCell& cell_;
  Recurrences all_;
  int64_t direction_, head_;
  c10::SymInt first_unit_, hidden_size_, gate_size_;
  Tensor gates_, weight_hh_, output_, saved_gates_, saved_cells_;
  OptionalTensor bias_hh_, parameters_, h_0_, c_0_, control_;
  OptionalTensor grad_output_, grad_h_n_, grad_c_n_, grad_saved_cells_;
};

// The call's results, put together from each recurrence's.
SequenceAndSaved joined(const std::vector<SequenceAndSaved>& each, const Recurrences& all,
                        const RecurrentCell& cell);
SequenceGradients joined(const std::vector<SequenceGradients>& each, const Recurrences& all,
                         const RecurrentCell& cell);

// Runs them one after the other, by `run` of one call: SequenceInputs or SequenceBackwardInputs.
inline const SequenceInputs& call_of(const SequenceInputs& in) { return in; }
inline const SequenceInputs& call_of(const SequenceBackwardInputs& back) { return back.in; }
template <typename Inputs, typename Function>
auto in_turn(const Inputs& in, const RecurrentCell& cell, const Function& run) {
  const Recurrences all = recurrences_of(call_of(in));
  std::vector<decltype(run(in))> each;
  for (int64_t i = 0; i < all.count(); ++i) {
    OneRecurrence one(call_of(in), cell, i);
    each.push_back(run(one.inputs(in)));
  }
  return joined(each, all, cell);
}

}  // namespace lltm_jit
