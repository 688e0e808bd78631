#include "rnn/sequence/padding/gates.h"

#include <ATen/ops/constant_pad_nd_ops.h>

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
  if (!cell.ordinary() || equal(rows, cell.gates * hidden_size)) return hidden_size;
  const SymInt padded = padded_size(hidden_size);
  return equal(rows, cell.gates * padded) ? padded : hidden_size;
}

bool is_padded(const SequenceInputs& in, const RecurrentCell& cell) {
  return !equal(gate_size(in, cell), in.weight_hh.sym_size(-1));
}

Tensor resize(const Tensor& tensor, int64_t dim, const SymInt& size) {
  // From the last dimension back, the numbers of zeros in front and behind; fewer than none crop.
  std::vector<SymInt> zeros(2 * (tensor.dim() - dim));
  zeros.back() = size - tensor.sym_size(dim);
  return at::_ops::constant_pad_nd::call(tensor, zeros, 0);
}

Tensor resize_gates(const Tensor& tensor, int64_t dim, int64_t gates, const SymInt& from,
                    const SymInt& to) {
  return resize(tensor.unflatten_symint(dim, {gates, from}), dim + 1, to).flatten(dim, dim + 1);
}

ResizedGates::ResizedGates(const SequenceInputs& in, const RecurrentCell& cell)
    : count_(cell.gates), from_(gate_size(in, cell)), to_(in.weight_hh.sym_size(-1)) {
  if (!is_padded(in, cell)) to_ = padded_size(to_);
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

Tensor empty_padded_weights(const Tensor& like, c10::SymIntArrayRef sizes) {
  auto padded = sizes.vec();
  padded.back() = padded_size(sizes.back());
  const Tensor all = empty(padded, like);
  if (like.is_meta()) return all.narrow_symint(-1, 0, sizes.back());
  const auto strides = all.strides().vec();  // sets them without the dispatcher
  all.unsafeGetTensorImpl()->set_sizes_and_strides(C10_AS_INTARRAYREF_SLOW(sizes), strides);
  return all;
}

namespace {

// Rows in parts; strides are in elements.
struct Rows {
  int64_t parts, rows, columns, part_stride, row_stride, column_stride, first = 0;
};

Rows source_of(const RowsToCopy& copy) {
  const auto sizes = copy.from.sizes(), strides = copy.from.strides();
  const int64_t parts = copy.parts;
  if (parts == 0) return {sizes[0], sizes[1], sizes[2], strides[0], strides[1], strides[2]};
  const int64_t each = sizes[0] / parts;
  if (sizes.size() == 1) return {parts, 1, each, each * strides[0], 0, strides[0]};
  return {parts, each, sizes[1], each * strides[0], strides[0], strides[1]};
}

Rows target_of(const RowsToCopy& copy, int64_t parts) {
  const Tensor& to = copy.to;
  const bool vector = to.dim() == 1;
  const int64_t columns = vector ? to.size(0) / parts / copy.pieces : to.stride(-2);
  const int64_t rows = vector ? 1 : to.numel() / to.size(-1) / parts / copy.pieces;
  const int64_t all = rows * columns;
  return {parts, rows, columns, all, columns, 1, copy.piece * parts * all};
}

// Copies in torch operations.
void copy_rows(const RowsToCopy& copy, const Rows& from, const Rows& to) {
  const int64_t rows = std::min(from.rows, to.rows), columns = std::min(from.columns, to.columns);
  const auto part = [](const Tensor& tensor, const Rows& of, int64_t rows, int64_t columns) {
    return tensor.as_strided({of.parts, rows, columns},
                             {of.part_stride, of.row_stride, of.column_stride},
                             tensor.storage_offset() + of.first);
  };
  const Tensor common = part(copy.to, to, rows, columns);
  if (to.rows > rows || to.columns > columns) {
    part(copy.to, to, to.rows, to.columns).zero_();
  }
  if (copy.zero) {
    common.zero_();
  } else {
    const Tensor source = part(copy.from, from, rows, columns);
    common.copy_(copy.addend.defined() ? source + part(copy.addend, from, rows, columns) : source);
  }
}

}  // namespace

void copy_rows(const std::vector<RowsToCopy>& all) {
#ifdef LLTM_JIT_CUDA
  RowCopies of_gpu{};
  const auto launch = [&] {
    C10_CUDA_CHECK(launch_row_copies(of_gpu, c10::cuda::getCurrentCUDAStream()));
    of_gpu.count = 0;
  };
#endif
  for (const RowsToCopy& copy : all) {
    if (copy.to.numel() == 0) continue;
    const Rows from = source_of(copy), to = target_of(copy, from.parts);
#ifdef LLTM_JIT_CUDA
    if (copy.to.is_cuda() && copy.to.scalar_type() != at::kDouble) {
      of_gpu.type = floating_type(copy.to.scalar_type());
      of_gpu.copies[of_gpu.count++] = {
          .source = copy.zero ? nullptr : copy.from.const_data_ptr(),
          .addend = copy.addend.defined() ? copy.addend.const_data_ptr() : nullptr,
          .target =
              static_cast<char*>(copy.to.mutable_data_ptr()) + to.first * copy.to.element_size(),
          .parts = to.parts,
          .rows = to.rows,
          .columns = to.columns,
          .source_rows = std::min(from.rows, to.rows),
          .source_columns = std::min(from.columns, to.columns),
          .source_part_stride = from.part_stride,
          .source_row_stride = from.row_stride,
          .source_column_stride = from.column_stride,
          .part_stride = to.part_stride,
          .row_stride = to.row_stride,
      };
      if (of_gpu.count == RowCopies::kMost) launch();
      continue;
    }
#endif
    copy_rows(copy, from, to);
  }
#ifdef LLTM_JIT_CUDA
  if (of_gpu.count > 0) launch();
#endif
}

namespace {

bool has_dense_rows(const Tensor& tensor) { return tensor.stride(-1) == 1 || tensor.size(-1) <= 1; }

// Whether every row is aligned for accesses of kWholeAccess elements.
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
                   tensor.size(-1) % kWholeAccess > 0;  // a copy would not be better aligned
  return any || has_whole_rows(tensor) ? tensor : tensor.clone(at::MemoryFormat::Contiguous);
}

Tensor readable_weights(const Tensor& weight_hh, bool padded) {
  if (!padded) return readable(weight_hh);
  const int64_t hidden_size = weight_hh.size(-1), size = padded_size(hidden_size);
  const bool several = weight_hh.dim() == 3;
  const int64_t rows = weight_hh.numel() / hidden_size;
  const auto bytes = static_cast<size_t>(rows * size * weight_hh.element_size());
  // The layout of pad_gates. Other views may have other numbers behind their rows.
  const bool is_whole = weight_hh.stride(-2) == size && has_dense_rows(weight_hh) &&
                        (!several || weight_hh.stride(0) == weight_hh.size(1) * size) &&
                        weight_hh.storage_offset() == 0 && weight_hh.storage().nbytes() == bytes;
  if (is_whole && has_whole_rows(weight_hh)) return weight_hh;
  const Tensor copy = empty_padded_weights(weight_hh, weight_hh.sym_sizes());
  copy_rows({{.from = weight_hh, .to = copy, .parts = several ? 0 : 1}});
  return copy;
}

PaddedOutputs::PaddedOutputs(const SequenceBackwardInputs& in) {
  const int64_t steps = in.output.size(0), rows = in.output.size(1);
  const int64_t directions = in.in.bidirectional ? 2 : 1;
  const int64_t hidden_size = in.output.size(2) / directions, size = padded_size(hidden_size);
  std::vector<RowsToCopy> copies;
  const auto copy = [&](const Tensor& from, const Tensor& to, bool zero = false) {
    // Makes each direction's units a row.
    const auto apart = [&](const Tensor& tensor, int64_t units) {
      return directions > 1 ? tensor.reshape({-1, directions * rows, units}) : tensor;
    };
    copies.push_back({.from = apart(from, hidden_size), .to = apart(to, size), .zero = zero});
  };
  const bool starts_first = directions > 1 || !in.in.reverse;
  const bool starts_last = directions > 1 || in.in.reverse;
  const Tensor all =
      empty({starts_first + steps + starts_last, rows, directions * size}, in.output);
  output = all.narrow(0, starts_first, steps);
  copy(in.output, output);
  const GivenStates given = GivenStates::of_h(in.in);
  const Tensor old = given.first ? given.first->unsqueeze(0) : in.output.narrow(0, 0, 1);
  for (int64_t end = 0; end < 2; ++end) {
    if (!(end == 0 ? starts_first : starts_last)) continue;
    const Tensor before = all.narrow(0, end == 0 ? 0 : all.size(0) - 1, 1);
    copy(old, before, /*zero=*/!given.first);
    if (given.first) h.first = before.squeeze(0);
  }
  if (in.grad_output) {
    grad_output = empty({steps, rows, directions * size}, in.output);
    copy(*in.grad_output, *grad_output);
  }
  copy_rows(copies);
  if (given.resets) h.resets = resize(*given.resets, 2, size);
}

}  // namespace lltm_jit
