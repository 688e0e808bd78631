#include "rnn/sequence/recurrences.h"

#include "core/host/formula.h"
#include "rnn/sequence/padding/gates.h"

namespace lltm_jit {

Recurrences recurrences_of(const SequenceInputs& in) {
  const int64_t count =
      has_recurrences(in) ? in.weight_hh.sym_size(0).guard_int(__FILE__, __LINE__) : 1;
  const int64_t directions = in.bidirectional ? 2 : 1;
  return {directions, count / directions};
}

OneRecurrence::OneRecurrence(const SequenceInputs& in, const RecurrentCell& cell, int64_t index)
    : cell_(cell),
      all_(recurrences_of(in)),
      direction_(index / all_.heads),
      head_(index % all_.heads),
      first_unit_(index * in.weight_hh.sym_size(-1)),
      hidden_size_(in.weight_hh.sym_size(-1)),
      gate_size_(gate_size(in, cell)) {
  gates_ = of_gates(in.gates, 2);
  weight_hh_ = in.weight_hh.select(0, index);
  if (in.bias_hh) bias_hh_ = of_gates(*in.bias_hh, 0);
  if (in.parameters) parameters_ = of_units(*in.parameters);
  if (in.h_0) h_0_ = of_units(*in.h_0);
  if (in.c_0) c_0_ = of_units(*in.c_0);
  if (in.control) control_ = in.bidirectional ? in.control->select(0, direction_) : *in.control;
}

Tensor OneRecurrence::of_units(const Tensor& tensor) const {
  return tensor.narrow_symint(-1, first_unit_, hidden_size_);
}

Tensor OneRecurrence::of_gates(const Tensor& tensor, int64_t dim) const {
  return tensor.unflatten_symint(dim, {all_.directions, cell_.gates, all_.heads, gate_size_})
      .select(dim, direction_)
      .select(dim + 1, head_)
      .flatten(dim, dim + 1);
}

SequenceInputs OneRecurrence::inputs(const SequenceInputs& in) const {
  const bool reverse = in.reverse != (direction_ == 1);
  return {gates_,   weight_hh_, bias_hh_, parameters_, h_0_, c_0_,
          control_, reverse,    in.cell,  in.tf32,     false};
}

SequenceBackwardInputs OneRecurrence::inputs(const SequenceBackwardInputs& back) {
  const auto units_if = [&](const OptionalTensor& tensor) {
    return tensor ? OptionalTensor(of_units(*tensor)) : std::nullopt;
  };
  grad_output_ = units_if(back.grad_output);
  grad_h_n_ = units_if(back.grad_h_n);
  grad_c_n_ = units_if(back.grad_c_n);
  grad_saved_cells_ = units_if(back.grad_saved_cells);
  output_ = of_units(back.output);
  saved_gates_ = cell_.product ? of_gates(back.saved_gates, 2) : back.saved_gates;
  saved_cells_ = of_units(back.saved_cells);
  return {grad_output_, grad_h_n_,    grad_c_n_,        inputs(back.in),     output_,
          saved_gates_, saved_cells_, back.output_mask, back.gates_are_sums, grad_saved_cells_};
}

// --------------------------------------------------------------------------------------- results --

namespace {

class Joined {
 public:
  Joined(const Recurrences& all, const RecurrentCell& cell) : all_(all), gates_(cell.gates) {}

  // Tensor `index` of the results of each; undefined where those are.
  template <size_t index, typename Results>
  Tensor units(const std::vector<Results>& each) const {
    const auto tensors = of_each<index>(each);
    return tensors.empty() ? Tensor() : cat(tensors, -1);
  }
  template <size_t index, typename Results>
  Tensor weights(const std::vector<Results>& each) const {
    const auto tensors = of_each<index>(each);
    return tensors.empty() ? Tensor() : stacked(tensors);
  }
  template <size_t index, typename Results>
  Tensor gates(const std::vector<Results>& each, int64_t dim) const {
    const auto tensors = of_each<index>(each);
    std::vector<Tensor> directions;
    for (auto begin = tensors.begin(); begin != tensors.end(); begin += all_.heads) {
      std::vector<Tensor> heads;
      for (auto one = begin; one != begin + all_.heads; ++one) {
        heads.push_back(one->unflatten(dim, {gates_, -1}));
      }
      directions.push_back(cat(heads, dim + 1).flatten(dim, dim + 1));
    }
    return tensors.empty() ? Tensor() : cat(directions, dim);
  }

 private:
  template <size_t index, typename Results>
  static std::vector<Tensor> of_each(const std::vector<Results>& each) {
    std::vector<Tensor> tensors;
    for (const auto& results : each) {
      if (std::get<index>(results).defined()) tensors.push_back(std::get<index>(results));
    }
    return tensors;
  }

  const Recurrences& all_;
  int64_t gates_;
};

}  // namespace

SequenceAndSaved joined(const std::vector<SequenceAndSaved>& each, const Recurrences& all,
                        const RecurrentCell& cell) {
  const Joined of(all, cell);
  return {of.units<0>(each), of.units<1>(each), of.units<2>(each),
          cell.product ? of.gates<3>(each, 2) : std::get<3>(each[0]), of.units<4>(each)};
}

SequenceGradients joined(const std::vector<SequenceGradients>& each, const Recurrences& all,
                         const RecurrentCell& cell) {
  const Joined of(all, cell);
  return {of.gates<0>(each, 2), of.weights<1>(each), of.gates<2>(each, 0),
          of.units<3>(each),    of.units<4>(each),   of.units<5>(each)};
}

}  // namespace lltm_jit
