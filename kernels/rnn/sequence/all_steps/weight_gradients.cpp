#include "rnn/sequence/all_steps/weight_gradients.h"

#include "core/host/formula.h"
#include "core/launch/device.h"
#include "core/products/library.h"
#include "rnn/sequence/all_steps/products.h"
#include "rnn/sequence/all_steps/small/products.h"
#include "rnn/sequence/recurrences.h"

namespace lltm_jit {
namespace {

// The factors for the recurrences of one direction.
struct OfDirection {
  Tensor grads, output;  // [steps, batch, gates*units] and [steps, batch, units]
  OptionalTensor h_0, reset_h, control;
  bool reverse;

  // The h that rows are reset to before these steps; reset_h may have a single one for all steps.
  Tensor resets(int64_t from, int64_t steps) const {
    return reset_h->size(0) == 1 ? *reset_h : reset_h->narrow(0, from, steps);
  }
};

// The state's rows before each step but the first: the previous step's output. A skipped step
// leaves no output, but rows skip only before their first step and after their last one, where the
// state was h_0. Rows are zero for steps that are themselves skipped, or reset to zeros.
Tensor old_outputs(const OfDirection& of) {
  const int64_t others = of.output.size(0) - 1;
  const Tensor before = of.output.narrow(0, of.reverse ? 1 : 0, others);
  if (!of.control) return before;
  const auto control = [&](int64_t from) {
    return of.control->narrow(0, from, others).unsqueeze(2);
  };
  const Tensor skipped = control(of.reverse ? 1 : 0).ge(kHolds);
  const int64_t from = of.reverse ? 0 : 1;
  const Tensor old = (of.h_0 ? of.h_0->where(skipped, before) : before)
                         .masked_fill(control(from).to(at::kBool), 0);
  return of.reset_h ? of.resets(from, others).where(control(from).eq(kResets), old) : old;
}

Tensor grad_weight(const OfDirection& of, int64_t heads, bool tf32) {
  const auto product = [heads, tf32](const Tensor& grads, const Tensor& old) {
    return heads == 1 ? multiply_steps(grads.t(), old, tf32)
                      : multiply_heads(grads, old, heads, tf32);
  };
  const int64_t others = of.grads.size(0) - 1, first = of.reverse ? others : 0;
  const auto of_others = [&] {
    return product(of.grads.narrow(0, of.reverse ? 0 : 1, others).flatten(0, 1),
                   old_outputs(of).flatten(0, 1));
  };
  if (!of.h_0) return of_others();
  Tensor first_h = *of.h_0;
  if (of.control) {
    const Tensor control = of.control->select(0, first).unsqueeze(1);
    first_h = first_h.masked_fill(control.to(at::kBool), 0);
    if (of.reset_h) first_h = of.resets(first, 1).squeeze(0).where(control.eq(kResets), first_h);
  }
  const Tensor first_grads = of.grads.select(0, first);
  if (others == 0) return product(first_grads, first_h);
  Tensor result = of_others();
  if (heads > 1 || multiplies_as_floats(result)) return result.add_(product(first_grads, first_h));
  add_by_library(first_grads.t(), first_h, tf32, result);
  return result;
}

#ifdef LLTM_JIT_CUDA
// The arguments for all steps at once, if the states of successive steps are contiguous.
std::optional<SmallProductArgs> small_grad_weight(const OfDirection& of) {
  const int64_t rows = of.output.size(1), others = of.grads.size(0) - 1;
  const auto whole = [&](const Tensor& steps) {
    return steps.stride(2) == 1 && (others == 0 || steps.stride(0) == rows * steps.stride(1));
  };
  if (!whole(of.grads) || !whole(of.output)) return {};
  const int64_t depth = of.grads.size(0) * rows;
  // The offset of the step before. For the first step it lies in front of the output or behind it.
  const int64_t from = of.output.stride(1) * (of.reverse ? rows : -rows);
  SmallRows first{};
  if (of.h_0) {
    if (of.h_0->stride(1) != 1) return {};
    first = {of.h_0->const_data_ptr(), of.h_0->stride(0)};
  }
  first.begin = int(of.reverse ? depth - rows : 0), first.end = first.begin + int(rows);
  return small_product(of.grads.flatten(0, 1).t(), of.output.flatten(0, 1), first, from);
}
#endif

std::vector<OfDirection> directions_of(const Tensor& grad_hidden, const Tensor& output,
                                       const GivenStates& h, const SequenceInputs& in) {
  const int64_t count = recurrences_of(in).directions;
  std::vector<OfDirection> all;
  for (int64_t d = 0; d < count; ++d) {
    const auto part = [&](const Tensor& tensor) {
      const int64_t size = tensor.size(-1) / count;
      return tensor.narrow(-1, d * size, size);
    };
    const auto part_if = [&](const OptionalTensor& tensor) {
      return tensor ? OptionalTensor(part(*tensor)) : std::nullopt;
    };
    all.push_back({part(grad_hidden), part(output), part_if(h.first), part_if(h.resets),
                   in.control && in.bidirectional ? in.control->select(0, d) : in.control,
                   in.reverse != (d == 1)});
  }
  return all;
}

// Joins the gradients of all recurrences' weights, without padding.
Tensor together(const std::vector<Tensor>& each, const SequenceInputs& in) {
  const bool stacks = has_recurrences(in) && recurrences_of(in).heads == 1;
  const Tensor all = stacks ? stacked(each) : each.size() == 1 ? each[0] : cat(each, 0);
  return all.narrow(-1, 0, in.weight_hh.size(-1));
}

}  // namespace

Tensor grad_weight_hh(const Tensor& grad_hidden, const Tensor& output, const GivenStates& h,
                      const SequenceInputs& in) {
  std::vector<Tensor> each;
  for (const OfDirection& one : directions_of(grad_hidden, output, h, in)) {
    each.push_back(grad_weight(one, recurrences_of(in).heads, in.tf32));
  }
  return together(each, in);
}

Tensor small_grad_weight_hh(const Tensor& grad_hidden, const Tensor& output, const GivenStates& h,
                            const SequenceInputs& in, Tensor* bias) {
#ifdef LLTM_JIT_CUDA
  if (!output.is_cuda() || in.control || recurrences_of(in).heads > 1 ||
      output.size(0) * output.size(1) > kMostSmallDepth) {
    return {};
  }
  SmallProducts all{};
  for (const OfDirection& one : directions_of(grad_hidden, output, h, in)) {
    const auto product = small_grad_weight(one);
    if (!product) return {};
    all.each[all.count++] = *product;
  }
  const int64_t rows = all.each[0].rows, columns = all.each[0].columns;
  const Tensor results = has_recurrences(in) ? empty({all.count, rows, columns}, output)
                                             : empty({rows, columns}, output);
  if (bias) *bias = empty({all.count * rows}, output);
  for (int i = 0; i < all.count; ++i) {
    const auto place = [&](const Tensor& tensor, int64_t each) {
      return static_cast<char*>(tensor.mutable_data_ptr()) + i * each * tensor.element_size();
    };
    all.each[i].results = place(results, rows * columns);
    if (bias) all.each[i].sums = place(*bias, rows);
  }
  multiply_small(all);
  return results.narrow(-1, 0, in.weight_hh.size(-1));
#else
  return {};
#endif
}

// Multiplying by ones in a GPU's library takes half as long as sum(), which may need more memory
// than its terms. TF32 is off, because it would round the terms.
Tensor grad_bias(const Tensor& grad_hidden) {
  const Tensor rows = grad_hidden.flatten(0, 1);
  if (!rows.is_cuda()) return rows.sum(0);
  return product_of_library(rows.new_ones({1, rows.size(0)}), rows, /*tf32=*/false).squeeze(0);
}

Tensor empty_gradients(const Tensor& gates, at::Storage& last) {
  constexpr size_t kLeast = 1 << 20, kMost = 1 << 26;  // bytes
  if (last && last.use_count() == 1 && last.nbytes() == gates.nbytes() && gates.is_cpu()) {
    return empty({0}, gates).set_(last, 0, gates.sizes());
  }
  const Tensor result = empty(gates.sym_sizes(), gates);
  if (gates.is_cpu() && result.nbytes() >= kLeast && result.nbytes() <= kMost) {
    last = result.storage();
  }
  return result;
}

}  // namespace lltm_jit
