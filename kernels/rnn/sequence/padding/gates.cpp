#include "rnn/sequence/padding/gates.h"

#include <algorithm>

#include "core/host/checks.h"
#include "core/host/formula.h"
#include "core/launch/device.h"
#include "rnn/sequence/padding/copies.h"

namespace lltm_jit {
namespace {

using c10::SymInt;

bool equal(const SymInt& a, const SymInt& b) { return a.sym_eq(b).guard_bool(__FILE__, __LINE__); }

}  // namespace

SymInt padded_size(const SymInt& size) { return (size + kLine - 1) / kLine * kLine; }

SymInt gate_size(const SequenceInputs& in, const RecurrentCell& cell) {
  const SymInt hidden_size = in.weight_hh.sym_size(-1), rows = in.weight_hh.sym_size(-2);
  if (equal(rows, cell.gates * hidden_size)) return hidden_size;
  const SymInt padded = padded_size(hidden_size);
  return equal(rows, cell.gates * padded) ? padded : hidden_size;
}

bool is_padded(const SequenceInputs& in, const RecurrentCell& cell) {
  return !equal(gate_size(in, cell), in.weight_hh.sym_size(-1));
}

Tensor resize(const Tensor& tensor, int64_t dim, const SymInt& size) {
  const SymInt has = tensor.sym_size(dim);
  if (equal(has, size)) return tensor;
  if (has.sym_gt(size).guard_bool(__FILE__, __LINE__)) {
    return tensor.narrow_symint(dim, 0, size);
  }
  auto missing = tensor.sym_sizes().vec();
  missing[dim] = size - has;
  return cat({tensor, tensor.new_zeros_symint(missing)}, dim);
}

Tensor resize_gates(const Tensor& tensor, int64_t dim, int64_t gates, const SymInt& from,
                    const SymInt& to) {
  if (equal(from, to)) return tensor;
  return resize(tensor.unflatten_symint(dim, {gates, from}), dim + 1, to).flatten(dim, dim + 1);
}

ResizedGates::ResizedGates(const SequenceInputs& in, const RecurrentCell& cell, const SymInt& size)
    : count_(cell.gates), from_(gate_size(in, cell)), to_(size) {
  gates_ = resize_gates(in.gates, 2, count_, from_, to_);
  weight_hh_ = resize_gates(in.weight_hh, 0, count_, from_, to_);
  if (in.bias_hh) bias_hh_ = resize_gates(*in.bias_hh, 0, count_, from_, to_);
}

SequenceInputs ResizedGates::in_place_of(const SequenceInputs& in) const {
  return {gates_,     weight_hh_, bias_hh_, in.parameters, in.h_0,          in.c_0,
          in.control, in.reverse, in.cell,  in.tf32,       in.bidirectional};
}

SequenceBackwardInputs ResizedGates::in_place_of(const SequenceBackwardInputs& back) {
  saved_gates_ = resize_gates(back.saved_gates, 2, count_, from_, to_);
  return {back.grad_output,    back.grad_h_n,        back.grad_c_n,    in_place_of(back.in),
          back.output,         saved_gates_,         back.saved_cells, back.output_mask,
          back.gates_are_sums, back.grad_saved_cells};
}

Tensor ResizedGates::back(const Tensor& tensor, int64_t dim) const {
  return tensor.defined() ? resize_gates(tensor, dim, count_, to_, from_).contiguous() : tensor;
}

SequenceAndSaved ResizedGates::resize_back(const SequenceAndSaved& results) const {
  const auto& [output, h_n, c_n, saved_gates, saved_cells] = results;
  return {output, h_n, c_n, back(saved_gates, 2), saved_cells};
}

SequenceGradients ResizedGates::resize_back(const SequenceGradients& grads) const {
  const auto& [gates, weight_hh, bias_hh, parameters, h_0, c_0] = grads;
  return {back(gates, 2), back(weight_hh, 0), back(bias_hh, 0), parameters, h_0, c_0};
}

// ------------------------------------------------------------------------------------ for kernels --

bool kernels_pad(const Tensor& like) { return like.is_cuda() && like.scalar_type() != at::kDouble; }

Tensor empty_padded_weights(const Tensor& like, const SymInt& rows, const SymInt& hidden_size) {
  return empty({rows, padded_size(hidden_size)}, like).narrow_symint(1, 0, hidden_size);
}

Tensor with_padding(const Tensor& weights) {
  return weights.as_strided({weights.size(0), padded_size(weights.size(1))}, weights.strides());
}

void copy_rows(const std::vector<RowsToCopy>& all) {
#ifdef LLTM_JIT_CUDA
  RowCopies of_gpu{};
  const auto launch = [&] {
    C10_CUDA_CHECK(launch_row_copies(of_gpu, c10::cuda::getCurrentCUDAStream()));
    of_gpu.count = 0;
  };
#endif
  for (const auto& [from, to, addend, zero, others] : all) {
    const int64_t rows = std::min(from.size(1), to.size(1));
    const int64_t columns = std::min(from.size(2), to.size(2));
#ifdef LLTM_JIT_CUDA
    if (to.is_cuda() && to.scalar_type() != at::kDouble) {
      of_gpu.type = floating_type(to.scalar_type());
      of_gpu.copies[of_gpu.count++] = {
          .source = zero ? nullptr : from.const_data_ptr(),
          .addend = addend.defined() ? addend.const_data_ptr() : nullptr,
          .target = to.mutable_data_ptr(),
          .parts = to.size(0),
          .rows = to.size(1),
          .columns = to.size(2),
          .source_rows = rows,
          .source_columns = columns,
          .source_part_stride = from.stride(0),
          .source_row_stride = from.stride(1),
          .source_column_stride = from.stride(2),
          .part_stride = to.stride(0),
          .row_stride = to.stride(1),
          .others = others,
      };
      if (of_gpu.count == RowCopies::kMost) launch();
      continue;
    }
#endif
    const auto common = [&](const Tensor& t) { return t.narrow(1, 0, rows).narrow(2, 0, columns); };
    if (to.size(1) > rows || to.size(2) > columns) to.fill_(others);
    if (zero) {
      common(to).zero_();
    } else {
      common(to).copy_(common(addend.defined() ? from + addend : from));
    }
  }
#ifdef LLTM_JIT_CUDA
  if (of_gpu.count > 0) launch();
#endif
}

namespace {

bool has_dense_rows(const Tensor& tensor) { return tensor.stride(-1) == 1 || tensor.size(-1) <= 1; }

// Whether every row is aligned for whole accesses.
bool has_whole_rows(const Tensor& tensor) {
  const auto bytes = static_cast<uintptr_t>(kWholeAccess * tensor.element_size());
  bool whole = reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % bytes == 0;
  for (int64_t i = 0; i + 1 < tensor.dim(); ++i) {
    whole = whole && (tensor.size(i) == 1 || tensor.stride(i) % kWholeAccess == 0);
  }
  return whole;
}

}  // namespace

Tensor readable(const Tensor& tensor) {
  if (!has_dense_rows(tensor)) return tensor.contiguous();
  const bool any = !tensor.is_cuda() || tensor.scalar_type() == at::kDouble ||
                   tensor.size(-1) % kWholeAccess > 0;  // a copy would be no better aligned
  return any || has_whole_rows(tensor) ? tensor : tensor.clone(at::MemoryFormat::Contiguous);
}

Tensor readable_weights(const Tensor& weight_hh, bool padded) {
  if (!padded) return readable(weight_hh);
  const int64_t rows = weight_hh.size(0), hidden_size = weight_hh.size(1);
  const int64_t size = padded_size(hidden_size);
  const auto bytes = static_cast<size_t>(rows * size * weight_hh.element_size());
  // As pad_gates makes them. Other views may have numbers behind their rows.
  const bool is_whole = weight_hh.stride(0) == size && has_dense_rows(weight_hh) &&
                        weight_hh.storage_offset() == 0 && weight_hh.storage().nbytes() == bytes;
  if (is_whole && has_whole_rows(weight_hh)) return weight_hh;
  const Tensor copy = empty_padded_weights(weight_hh, rows, hidden_size);
  copy_rows({{.from = weight_hh.unsqueeze(0), .to = with_padding(copy).unsqueeze(0)}});
  return copy;
}

PaddedOutputs::PaddedOutputs(const SequenceBackwardInputs& in) {
  const int64_t steps = in.output.size(0), rows = in.output.size(1);
  const int64_t size = padded_size(in.output.size(2));
  const bool reverse = in.in.reverse;
  const Tensor all = empty({steps + 1, rows, size}, in.output);
  output = all.narrow(0, reverse ? 0 : 1, steps);
  before = all.narrow(0, reverse ? 1 : 0, steps);
  const Tensor first = all.narrow(0, reverse ? steps : 0, 1);
  std::vector<RowsToCopy> copies{{.from = in.output, .to = output, .others = 1}};
  if (in.in.h_0) {
    h_0 = first.squeeze(0);
    copies.push_back({.from = in.in.h_0->unsqueeze(0), .to = first, .others = 1});
  } else {
    copies.push_back({.from = in.output.narrow(0, 0, 1), .to = first, .zero = true, .others = 1});
  }
  if (in.grad_output) {
    grad_output = empty({steps, rows, size}, in.output);
    copies.push_back({.from = *in.grad_output, .to = *grad_output});
  }
  copy_rows(copies);
}

}  // namespace lltm_jit
