#include "rnn/sequence/padding/operands.h"

#include <algorithm>
#include <array>
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

struct PadInputs {
  const OptionalTensor& input;
  const Tensor &weight_ih, &weight_hh;
  const OptionalTensor &bias_ih, &bias_hh;
  int64_t gates;
  bool add_biases;
};
struct PadGradients {
  const OptionalTensor &input, &weight_ih, &weight_hh, &bias_ih, &bias_hh;
  int64_t gates, input_size, hidden_size;
};

// The order of Operands; some may be undefined.
enum { kInput, kWeightIh, kWeightHh, kBiasIh, kBiasHh };
using Five = std::array<Tensor, 5>;

template <typename Arguments>
Five five(const Arguments& in) {
  return {as_tensor(in.input), as_tensor(in.weight_ih), as_tensor(in.weight_hh),
          as_tensor(in.bias_ih), as_tensor(in.bias_hh)};
}
Operands as_tuple(const Five& all) { return {all[0], all[1], all[2], all[3], all[4]}; }

// The sizes to make: `size` elements per gate instead of `from`, and `features` likewise.
struct Sizes {
  int64_t gates;
  SymInt hidden_size, from, size, features;

  Sizes(const Five& in, int64_t gates, bool pads = true)
      : gates(gates),
        hidden_size(in[kWeightHh].sym_size(1)),
        from(hidden_size),
        size(pads ? padded_size(hidden_size) : hidden_size),
        features(pads ? padded_size(in[kWeightIh].sym_size(1)) : in[kWeightIh].sym_size(1)) {}
  explicit Sizes(const PadGradients& in)
      : gates(in.gates),
        hidden_size(in.hidden_size),
        from(padded_size(hidden_size)),
        size(hidden_size),
        features(in.input_size) {}
};

Five resized(Five all, const Sizes& to) {
  for (size_t i = kWeightIh; i < all.size(); ++i) {
    if (all[i].defined()) all[i] = resize_gates(all[i], 0, to.gates, to.from, to.size);
  }
  if (all[kInput].defined()) all[kInput] = resize(all[kInput], 2, to.features);
  if (all[kWeightIh].defined()) all[kWeightIh] = resize(all[kWeightIh], 1, to.features);
  for (Tensor& tensor : all) {  // may still be an argument, or a view of one
    if (tensor.defined()) tensor = tensor.clone();
  }
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
      if (!results[i].defined() || results[i].is_meta()) continue;
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

void check(const Five& in, int64_t gates, bool add_biases) {
  const char* function = "pad_gates";
  const auto& [input, weight_ih, weight_hh, bias_ih, bias_hh] = in;
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

Operands kernel(const PadInputs& in) {
  const Five all = five(in);
  check(all, in.gates, in.add_biases);
  const KernelGuard guard(in.weight_hh);
  return all_defined(copied({all}, {all, in.gates}, in.add_biases), in.weight_hh);
}

Operands formula(const PadInputs& in) {
  Five all = five(in);
  check(all, in.gates, in.add_biases);
  const NoAutocast guard;
  if (in.add_biases) all[kBiasHh] = all[kBiasHh] + std::exchange(all[kBiasIh], Tensor());
  return all_defined(resized(all, {all, in.gates}), in.weight_hh);
}

Operands backward_kernel(const PadGradients& grads) {
  const Five all = five(grads);
  for (const Tensor& grad : all) {
    if (!grad.defined()) continue;
    const KernelGuard guard(grad);
    return as_tuple(copied({all}, Sizes(grads)));
  }
  return {};
}

Operands backward_formula(const PadGradients& grads) {
  const NoAutocast guard;
  return as_tuple(resized(five(grads), Sizes(grads)));
}

// Puts a node between the operands of one direction or both, which share an input, and the results of packing them.
void record_packing(const std::vector<Five>& each, int64_t gates, bool adds, bool pads,
                    const Operands& results) {
  std::vector<std::reference_wrapper<const Tensor>> inputs{each[0][kInput]};
  for (const Five& own : each) inputs.insert(inputs.end(), own.begin() + kWeightIh, own.end());
  const auto columns = [&](size_t i) {
    return each[0][i].sym_size(1).guard_int(__FILE__, __LINE__);
  };
  const auto gradients = [gates, adds, pads, directions = static_cast<int64_t>(each.size()),
                          input_size = columns(kWeightIh),
                          hidden_size = columns(kWeightHh)](const BackwardPass& pass) {
    const auto wanted = [&](size_t i) {
      return pass.wanted[i] || (directions > 1 && i > kInput && pass.wanted[i + kBiasHh]);
    };
    std::array<OptionalTensor, 5> grads;
    for (size_t i = 0; i < grads.size(); ++i) {
      const bool of_sum = adds && i == kBiasHh && wanted(kBiasIh);
      if (wanted(i) || of_sum) grads[i] = as_optional(pass.grads[i]);
    }
    auto& [x, w_ih, w_hh, b_ih, b_hh] = grads;
    if (directions > 1 && w_hh) w_hh = w_hh->flatten(0, 1);
    Five all{as_tensor(x), as_tensor(w_ih), as_tensor(w_hh), as_tensor(b_ih), as_tensor(b_hh)};
    if (pads) {
      const auto [to_x, to_w_ih, to_w_hh, to_b_ih, to_b_hh] = ops::pad_gates_backward(
          x, w_ih, w_hh, b_ih, b_hh, directions * gates, input_size, hidden_size);
      all = {to_x, to_w_ih, to_w_hh, to_b_ih, to_b_hh};
    }
    std::vector<Tensor> result{all[kInput]};
    for (int64_t d = 0; d < directions; ++d) {
      for (size_t i = kWeightIh; i < all.size(); ++i) {
        const bool divides = directions > 1 && all[i].defined();
        const int64_t rows = divides ? all[i].size(0) / directions : 0;
        result.push_back(divides ? all[i].narrow(0, d * rows, rows) : all[i]);
      }
      // The same tensor, because autograd would take two views of one memory for separate gradients.
      if (adds) result[result.size() - 2] = result.back();
    }
    return result;
  };
  const auto& [x, w_ih, w_hh, b_ih, b_hh] = results;
  record({"PadGatesBackward", gradients}, inputs, {x, w_ih, w_hh, b_ih, b_hh});
}

Operands autograd(const PadInputs& in) {
  const auto& [input, weight_ih, weight_hh, bias_ih, bias_hh, gates, add_biases] = in;
  if (any_forward_grad(input, weight_ih, weight_hh, bias_ih, bias_hh)) return formula(in);
  const Operands results = below_autograd(ops::pad_gates, input, weight_ih, weight_hh, bias_ih,
                                          bias_hh, gates, add_biases);
  if (any_requires_grad(input, weight_ih, weight_hh, bias_ih, bias_hh)) {
    record_packing({five(in)}, gates, add_biases, /*pads=*/true, results);
  }
  return results;
}

std::tuple<OptionalTensor, Tensor, Tensor, OptionalTensor, OptionalTensor, int64_t, bool> autocast(
    const PadInputs& in) {
  const Autocast cast(in.weight_hh);
  return {cast(in.input),   cast(in.weight_ih), cast(in.weight_hh), cast(in.bias_ih),
          cast(in.bias_hh), in.gates,           in.add_biases};
}

std::vector<Five> checked(const OptionalTensor& input,
                          const std::vector<at::ArrayRef<Tensor>>& directions, int64_t gates,
                          bool add_biases) {
  std::vector<Five> each;
  for (const auto& own : directions) {
    Five& all = each.emplace_back(Five{as_tensor(input)});
    std::copy(own.begin(), own.end(), all.begin() + kWeightIh);
    check(all, gates, add_biases);
    for (size_t i = 0; i < own.size(); ++i) {
      const Tensor& first = directions[0][i];
      TORCH_CHECK(own[i].sizes() == first.sizes() && own[i].device() == first.device() &&
                      own[i].scalar_type() == first.scalar_type(),
                  "expected the weights of both directions to be alike, but got ", first.sizes(),
                  " of ", first.scalar_type(), " on ", first.device(), " and ", own[i].sizes(),
                  " of ", own[i].scalar_type(), " on ", own[i].device());
    }
  }
  return each;
}

}  // namespace

Operands packed(const OptionalTensor& input, const std::vector<at::ArrayRef<Tensor>>& directions,
                int64_t gates, bool add_biases, bool pads) {
  const auto each = checked(input, directions, gates, add_biases);
  return as_tuple(copied(each, {each[0], gates, pads}, add_biases));
}

Operands packed_with_gradients(const OptionalTensor& input,
                               const std::vector<at::ArrayRef<Tensor>>& directions, int64_t gates,
                               bool add_biases, bool pads) {
  const auto each = checked(input, directions, gates, add_biases);
  const Operands results = [&] {
    const KernelGuard guard(directions[0][1]);
    return all_defined(copied(each, {each[0], gates, pads}, add_biases), directions[0][1]);
  }();
  if (any_requires_grad(input, directions[0], directions[1])) {
    record_packing(each, gates, add_biases, pads, results);
  }
  return results;
}

Operator<Operands(const OptionalTensor&, const Tensor&, const Tensor&, const OptionalTensor&,
                  const OptionalTensor&, int64_t, bool)>
    ops::pad_gates{
        .name = "lltm_jit::pad_gates",
        .kernel = flat<kernel>,
        .formula = flat<formula>,
        .autograd = flat<autograd>,
        .autocast = flat<autocast>,
    };

Operator<Operands(const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                  const OptionalTensor&, const OptionalTensor&, int64_t, int64_t, int64_t)>
    ops::pad_gates_backward{
        .name = "lltm_jit::pad_gates_backward",
        .kernel = flat<backward_kernel>,
        .formula = flat<backward_formula>,
        .autograd = ByFormula<ops::pad_gates_backward>::autograd,
    };

}  // namespace lltm_jit
