#include "rnn/sequence/padding/operands.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "core/host/autocast.h"
#include "core/host/autograd.h"
#include "core/host/checks.h"
#include "core/host/formula.h"
#include "core/launch/device.h"
#include "rnn/sequence/padding/gates.h"

namespace lltm_jit {
namespace {

using c10::SymInt;

// The order of Operands; some may be undefined.
enum { kInput, kWeightIh, kWeightHh, kBiasIh, kBiasHh };
using Five = std::array<Tensor, 5>;

Operands as_tuple(const Five& all) { return {all[0], all[1], all[2], all[3], all[4]}; }

// The sizes to make: `size` elements per gate instead of `from`, and `features` likewise.
struct Sizes {
  int64_t gates;
  SymInt hidden_size, from, size, features;

  // Those of operands, padded or not.
  Sizes(const Five& all, int64_t gates, bool pads)
      : gates(gates),
        hidden_size(all[kWeightHh].sym_size(1)),
        from(hidden_size),
        size(pads ? padded_size(hidden_size) : hidden_size),
        features(pads ? padded_size(all[kWeightIh].sym_size(1)) : all[kWeightIh].sym_size(1)) {}
  // Those of padded operands' gradients.
  Sizes(int64_t gates, const SymInt& input_size, const SymInt& hidden_size)
      : gates(gates),
        hidden_size(hidden_size),
        from(padded_size(hidden_size)),
        size(hidden_size),
        features(input_size) {}
};

// In torch operations.
Five resized(Five all, const Sizes& to) {
  for (size_t i = kWeightIh; i < all.size(); ++i) {
    if (all[i].defined()) all[i] = resize_gates(all[i], 0, to.gates, to.from, to.size);
  }
  if (all[kInput].defined()) all[kInput] = resize(all[kInput], 2, to.features);
  if (all[kWeightIh].defined()) all[kWeightIh] = resize(all[kWeightIh], 1, to.features);
  return all;
}

// Allocates operands in the kernels' layout, which all devices share. `from` has the operands of one of the directions.
Five allocated(const Five& from, const Sizes& to, int64_t directions = 1) {
  const SymInt rows = to.gates * to.size;
  Five all;
  const auto& [input, weight_ih, weight_hh, bias_ih, bias_hh] = from;
  if (input.defined()) {
    all[kInput] = empty({input.sym_size(0), input.sym_size(1), to.features}, input);
  }
  if (weight_ih.defined()) all[kWeightIh] = empty({directions * rows, to.features}, weight_ih);
  if (weight_hh.defined()) {
    std::vector<SymInt> sizes{rows, to.hidden_size};
    if (directions > 1) sizes.insert(sizes.begin(), directions);
    const bool padded = rows.sym_ne(to.gates * to.hidden_size).guard_bool(__FILE__, __LINE__);
    all[kWeightHh] = padded ? empty_padded_weights(weight_hh, sizes) : empty(sizes, weight_hh);
  }
  if (bias_ih.defined()) all[kBiasIh] = empty({directions * rows}, bias_ih);
  if (bias_hh.defined()) all[kBiasHh] = empty({directions * rows}, bias_hh);
  return all;
}

// Copies the operands of one direction or several. Each has its own operands, but all share the first one's input.
Five copied(std::vector<Five> each, const Sizes& to, bool add_biases = false) {
  const auto directions = static_cast<int64_t>(each.size());
  std::vector<Tensor> addends(each.size());
  for (size_t d = 0; add_biases && d < each.size(); ++d) {  // gives all one layout
    addends[d] = std::exchange(each[d][kBiasIh], Tensor()).contiguous();
    each[d][kBiasHh] = each[d][kBiasHh].contiguous();
  }
  const Five results = allocated(each[0], to, directions);
  std::vector<RowsToCopy> copies;
  for (int64_t d = 0; d < directions; ++d) {
    for (size_t i = d == 0 ? kInput : kWeightIh; i < results.size(); ++i) {
      if (!results[i].defined()) continue;
      copies.push_back({.from = each[d][i], .to = results[i]});
      if (i == kInput) continue;
      copies.back().parts = to.gates;
      copies.back().piece = d, copies.back().pieces = directions;
      if (i == kBiasHh) copies.back().addend = addends[d];
    }
  }
  if (!copies.empty()) copy_rows(copies);
  return results;
}

void check(const Five& all, int64_t gates, bool add_biases) {
  const char* function = "pad_gates";
  const auto& [input, weight_ih, weight_hh, bias_ih, bias_hh] = all;
  const Argument like{function, "weight_hh", weight_hh};
  check_floating_point(like);
  check_rank(like, 2, "[gates*hidden_size, hidden_size]");
  check_rank({function, "weight_ih", weight_ih}, 2, "[gates*hidden_size, input_size]");
  const SymInt hidden_size = weight_hh.sym_size(1), features = weight_ih.sym_size(1);
  const SymInt rows = gates * hidden_size;
  const auto check = [&](const char* name, const Tensor& tensor, c10::SymIntArrayRef sizes,
                         const char* shape) {
    if (tensor.defined()) check_like({function, name, tensor}, like, sizes, shape);
  };
  check("weight_hh", weight_hh, {rows, hidden_size}, "[gates*hidden_size, hidden_size]");
  check("weight_ih", weight_ih, {rows, features}, "[gates*hidden_size, input_size]");
  check("bias_ih", bias_ih, {rows}, "[gates*hidden_size]");
  check("bias_hh", bias_hh, {rows}, "[gates*hidden_size]");
  TORCH_CHECK(!add_biases || (bias_ih.defined() && bias_hh.defined()), function,
              "(): expected both biases, which are to be added, but got one or none");
  if (!input.defined()) return;
  const char* shape = "[steps, batch_size, input_size]";
  check_rank({function, "input", input}, 3, shape);
  check("input", input, {input.sym_size(0), input.sym_size(1), features}, shape);
}

// A schema has no undefined results, so absent tensors become empty ones.
Operands all_defined(Five all, const Tensor& like) {
  for (Tensor& tensor : all) {
    if (!tensor.defined()) tensor = like.new_empty({0});
  }
  return as_tuple(all);
}

// The operands of a direction: weight_ih, weight_hh and, if any, bias_ih and bias_hh.
Five five(const OptionalTensor& input, at::ArrayRef<Tensor> own) {
  Five all{as_tensor(input), own[0], own[1]};
  if (own.size() >= 4) all[kBiasIh] = own[2], all[kBiasHh] = own[3];
  return all;
}

// The gradients of operands from those of their padded copies.
Five cropped(const Five& grads, const Sizes& to) {
  const auto given = std::find_if(grads.begin(), grads.end(), std::mem_fn(&Tensor::defined));
  if (given == grads.end()) return {};
  if (c10::GradMode::is_enabled() || !is_plain(grads)) return resized(grads, to);
  const KernelGuard guard(*given);
  return copied({grads}, to);
}

}  // namespace

Operands packed(const OptionalTensor& input, const std::vector<at::ArrayRef<Tensor>>& directions,
                int64_t gates, bool add_biases, bool pads) {
  std::vector<Five> each;
  for (const auto& own : directions) {
    for (size_t i = 0; !each.empty() && i < own.size(); ++i) {
      const Tensor& first = directions[0][i];
      TORCH_CHECK(own[i].sizes() == first.sizes() && own[i].device() == first.device() &&
                      own[i].scalar_type() == first.scalar_type(),
                  "expected the weights of both directions to be alike, but got ", first.sizes(),
                  " of ", first.scalar_type(), " on ", first.device(), " and ", own[i].sizes(),
                  " of ", own[i].scalar_type(), " on ", own[i].device());
    }
    each.push_back(five(input, own));
    check(each.back(), gates, add_biases);
  }
  const Sizes sizes(each[0], gates, pads);
  return as_tuple(copied(std::move(each), sizes, add_biases));
}

Operands packed_with_gradients(const OptionalTensor& input,
                               const std::vector<at::ArrayRef<Tensor>>& directions, int64_t gates,
                               bool add_biases, bool pads) {
  const auto& first = directions[0];
  const Operands results = [&] {
    const KernelGuard guard(first[1]);
    const Operands all = packed(input, directions, gates, add_biases, pads);
    const auto& [x, w_ih, w_hh, b_ih, b_hh] = all;
    return all_defined({x, w_ih, w_hh, b_ih, b_hh}, w_hh);
  }();
  // Of two directions, because an absent one costs nothing.
  std::array<Tensor, 9> all{as_tensor(input)};
  for (size_t d = 0; d < directions.size(); ++d) {
    std::copy(directions[d].begin(), directions[d].end(), &all[1 + 4 * d]);
  }
  if (!any_requires_grad(all)) return results;
  const auto count = static_cast<int64_t>(directions.size());
  const Sizes sizes(count * gates, first[0].size(1), first[1].size(1));
  const auto gradients = [=](const BackwardPass& pass) {
    Five grads;
    for (size_t i = 0; i < grads.size(); ++i) {
      const auto wanted = [&](size_t k) { return pass.wanted[k] || (k > 0 && pass.wanted[k + 4]); };
      if (wanted(i) || (add_biases && i == kBiasHh && wanted(kBiasIh))) grads[i] = pass.grads[i];
    }
    Tensor& of_hidden = grads[kWeightHh];
    if (of_hidden.defined() && count > 1) of_hidden = of_hidden.flatten(0, 1);
    if (pads) grads = cropped(grads, sizes);
    std::vector<Tensor> result(9);
    result[0] = grads[kInput];
    for (size_t i = kWeightIh; i < grads.size(); ++i) {
      if (!grads[i].defined()) continue;
      const int64_t rows = grads[i].size(0) / count;
      for (int64_t d = 0; d < count; ++d) result[i + 4 * d] = grads[i].narrow(0, d * rows, rows);
    }
    // The same tensor, because autograd would take two views of one memory for separate gradients.
    for (size_t d = 0; add_biases && d < 2; ++d) result[3 + 4 * d] = result[4 + 4 * d];
    return result;
  };
  const auto& [x, w_ih, w_hh, b_ih, b_hh] = results;
  record({"PackGatesBackward", gradients},
         {all[0], all[1], all[2], all[3], all[4], all[5], all[6], all[7], all[8]},
         {x, w_ih, w_hh, b_ih, b_hh});
  return results;
}

namespace {

struct PadInputs {
  const OptionalTensor& input;
  const Tensor &weight_ih, &weight_hh;
  const OptionalTensor &bias_ih, &bias_hh;
  int64_t gates;
  bool add_biases;
};

Operands formula(const PadInputs& in) {
  const std::array<Tensor, 4> own{in.weight_ih, in.weight_hh, as_tensor(in.bias_ih),
                                  as_tensor(in.bias_hh)};
  Five all = five(in.input, own);
  check(all, in.gates, in.add_biases);
  if (is_plain(all)) return packed_with_gradients(in.input, {own}, in.gates, in.add_biases, true);
  const NoAutocast guard;
  if (in.add_biases) all[kBiasHh] = all[kBiasHh] + std::exchange(all[kBiasIh], Tensor());
  all = resized(all, Sizes(all, in.gates, /*pads=*/true));
  // As kernels have them: of rows with room for padding.
  const SymInt units = in.weight_hh.sym_size(1);
  all[kWeightHh] = resize(all[kWeightHh], 1, padded_size(units)).narrow_symint(1, 0, units);
  return all_defined(all, in.weight_hh);
}

std::tuple<OptionalTensor, Tensor, Tensor, OptionalTensor, OptionalTensor, int64_t, bool> autocast(
    const PadInputs& in) {
  const Autocast cast(in.weight_hh);
  return {cast(in.input),   cast(in.weight_ih), cast(in.weight_hh), cast(in.bias_ih),
          cast(in.bias_hh), in.gates,           in.add_biases};
}

}  // namespace

Composite<Operands(const OptionalTensor&, const Tensor&, const Tensor&, const OptionalTensor&,
                   const OptionalTensor&, int64_t, bool)>
    ops::pad_gates{
        .name = "lltm_jit::pad_gates", .formula = flat<formula>, .autocast = flat<autocast>};

}  // namespace lltm_jit
