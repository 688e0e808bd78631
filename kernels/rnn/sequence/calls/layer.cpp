// Layers in one call: going through Python for each operator takes the host as long as a small layer takes a GPU.
// So does the dispatcher, which calls without gradients skip.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_unsafe_view_ops.h>

#include "core/host/autograd.h"
#include "core/host/formula.h"
#include "core/launch/device.h"
#include "rnn/sequence/all_steps/products.h"
#include "rnn/sequence/operators.h"
#include "rnn/sequence/padding/operands.h"
#include "rnn/sequence/side_by_side/layers.h"

namespace lltm_jit {
namespace {

// The arguments of recurrent_layer().
struct LayerInputs {
  Tensor x, weight_ih;
  OptionalTensor bias_ih;
  Tensor weight_hh;
  OptionalTensor bias_hh, parameters, h_0, c_0, control;
  bool reverse;
  std::string_view cell;
  bool tf32, bidirectional;

  bool is_only_computed() const {
    return only_computed(x, weight_ih, bias_ih, weight_hh, bias_hh, parameters, h_0, c_0, control);
  }
};

// computed: whether to skip the dispatcher.
SequenceResults run(const LayerInputs& in, bool computed, LayerCall call = {}) {
  const auto& [x, weight_ih, bias_ih, weight_hh, bias_hh, parameters, h_0, c_0, control, reverse,
               name, tf32, bidirectional] = in;
  if (!computed) {
    const Tensor gates = ops::input_gates(x, weight_ih, bias_ih, tf32);
    return ops::recurrent_sequence(gates, weight_hh, bias_hh, parameters, h_0, c_0, control,
                                   reverse, name, tf32, bidirectional);
  }
  const RecurrentCell& cell = find_cell(name);
  Tensor gates;
  if (x.is_cpu() && x.numel() > 0 && cell.ordinary() && weight_hh.dim() >= 2 &&
      weight_hh.size(-2) == cell.gates * weight_hh.size(-1)) {
    check_input_gates(x, weight_ih, bias_ih);
    call.input = x, call.weight_ih = weight_ih, call.bias_ih = bias_ih;
    // Of the gates' shape, for the checks; nothing reads it.
    gates = empty({1}, x).expand({x.size(0), x.size(1), weight_ih.size(0)});
  } else {
    if (call.bias_ih)
      check_input_gates(x, weight_ih, bias_ih);  // which the product does not get to see
    gates = ops::input_gates.kernel(x, weight_ih, call.bias_ih ? std::nullopt : bias_ih, tf32);
  }
  return results_of<SequenceResults>(
      sequence_forward({gates, weight_hh, bias_hh, parameters, h_0, c_0, control, reverse, name,
                        tf32, bidirectional},
                       kSavesNothing, call));
}

}  // namespace

SequenceResults recurrent_layer(const Tensor& input, const Tensor& weight_ih,
                                const OptionalTensor& bias_ih, const Tensor& weight_hh,
                                const OptionalTensor& bias_hh, const OptionalTensor& parameters,
                                const OptionalTensor& h_0, const OptionalTensor& c_0,
                                const OptionalTensor& control, bool reverse, std::string_view cell,
                                bool tf32, bool bidirectional) {
  const LayerInputs in{input, weight_ih, bias_ih, weight_hh, bias_hh, parameters,   h_0,
                       c_0,   control,   reverse, cell,      tf32,    bidirectional};
  return run(in, in.is_only_computed());
}

bool directions_together(const Tensor& x, int64_t hidden_size, int64_t heads, std::string_view name,
                         bool padded, bool training, bool tf32) {
  // Two cores take a direction each, if the rows pay for a tensor of both directions' weights. Whatever the number of
  // threads, which must not change a bit of a gradient.
  constexpr int64_t kRowsForBoth = 256;  // of all steps
  if (!x.is_cuda()) return x.size(0) * x.size(1) >= kRowsForBoth;
  if (!padded && hidden_size % kWholeAccess > 0) return false;
  if (x.numel() == 0) return true;
#ifdef LLTM_JIT_CUDA
  const c10::DeviceGuard guard(x.device());
  SequenceSizes sizes = sizes_of(find_cell(name), floating_type(x.scalar_type()), tf32, x.size(0),
                                 x.size(1), hidden_size);
  sizes.directions = 2, sizes.heads = static_cast<int>(heads), sizes.padded = padded;
  return run_at_once(sizes, training, current_gpu());
#else
  return false;
#endif
}

namespace {

// A call of recurrent_layers().
struct Stack {
  const Tensor& input;
  at::ArrayRef<Tensor> weights;
  int64_t layers, directions;
  at::ArrayRef<Tensor> states;
  const RecurrentCell& cell;
  bool pads, tf32;

  size_t each() const { return weights.size() / (layers * directions); }
  // Those of a layer in one direction.
  at::ArrayRef<Tensor> of(int64_t layer, int64_t direction = 0) const {
    return weights.slice((layer * directions + direction) * each(), each());
  }
  bool biased() const { return each() >= 4; }
};

// Whether all kernels write into the same results, and nothing else has to be known of these tensors.
bool is_at_once(const Stack& stack) {
  const auto& [x, weights, layers, directions, states, cell, pads, tf32] = stack;
  const Tensor& first = weights[1];
  bool yes = cell.parameters == 0 && x.numel() > 0 && only_computed(x, weights, states) &&
             !(x.is_cpu() && directions > 1) && first.dim() == 2 &&
             first.size(0) == cell.gates * first.size(1) &&
             (pads || x.is_cpu() || x.size(0) == 1 || first.size(1) % kWholeAccess == 0);
  for (size_t i = 1; i < weights.size(); i += stack.each()) {
    yes = yes && weights[i].sizes() == first.sizes();
  }
  for (size_t i = 1; i < states.size(); ++i) {
    yes = yes && states[i].scalar_type() == states.back().scalar_type();
  }
  return yes;
}

// Whether both directions' operands can be put together in one launch, with gradients or without.
bool may_pack(const Stack& stack) {
  return stack.input.is_cuda() && stack.cell.parameters == 0 && stack.weights[1].dim() == 2 &&
         is_plain(stack.input, stack.weights);
}

// One direction of a layer or both, and how it runs.
struct Part {
  int64_t count;
  bool pads, at_once, packs;
  int64_t layer = 0, direction = 0;
};

Part how_to_run(const Stack& stack) {
  const auto& [x, weights, layers, directions, states, cell, pads, tf32] = stack;
  const Tensor& like = weights[1];
  TORCH_CHECK(like.dim() > 1, "expected weight_hh to have 2 or 3 dimensions");
  const int64_t units = like.size(-1), heads = like.dim() == 3 ? like.size(0) : 1;
  // A single step takes less than copies of the weights, unless they are small and let both directions run together.
  constexpr int64_t kFewWeights = 1 << 15;
  const bool single = x.size(0) == 1, few = weights[0].numel() + like.numel() <= kFewWeights;
  const bool may_pad = pads && (!single || (directions > 1 && few));
  const bool whole = units % kWholeAccess == 0;
  const bool pads_both = may_pad && !whole, packs = directions > 1 && may_pack(stack);
  const bool at_once = is_at_once(stack), training = !at_once && c10::GradMode::is_enabled();
  const bool together = directions > 1 && (packs || !pads_both) &&
                        directions_together(x, units, heads, cell.name, pads_both, training, tf32);
  // One launch for both saves more than aligned products do.
  return {.count = together ? 2 : 1,
          .pads = may_pad && !(together ? whole : single),
          .at_once = at_once,
          .packs = together && packs};
}

// Before those of both directions are put together: autograd would take two views of one gradient's memory, which
// cat() hands out, for gradients of their own.
Tensor sum_of_biases(const Stack& stack, const Part& part) {
  const auto own = stack.of(part.layer, part.direction);
  const Tensor &of_input = own[2], &of_hidden = own[3];
  TORCH_CHECK(of_input.scalar_type() == of_hidden.scalar_type() &&
                  of_input.sym_sizes() == of_hidden.sym_sizes(),
              "expected biases of one shape and dtype, but got ", of_input.sym_sizes(), " of ",
              of_input.scalar_type(), " and ", of_hidden.sym_sizes(), " of ",
              of_hidden.scalar_type());
  const Tensor sum = of_input + of_hidden;
  if (part.count == 1) return sum;
  return cat({sum, sum_of_biases(stack, {.count = 1, .layer = part.layer, .direction = 1})}, 0);
}

// Both directions' states beside each other, as the outputs are.
Tensor beside(const Tensor& states, int64_t first) {
  return states.narrow(0, first, 2).transpose(0, 1).flatten(1);
}

// Puts a call's state, [batch, directions*units], where it belongs, if the kernels have not.
void put(const Tensor& state, const Tensor& all, int64_t first, int64_t directions) {
  if (state.is_same(all)) return;
  const Tensor each = state.view({all.size(1), directions, all.size(2)}).transpose(0, 1);
  all.narrow(0, first, directions).copy_(each);
}

// Copies of the operands, padded ones by Note [Padded gates] (kernels.h), or only those of both directions put
// together. Adds the biases of a cell that adds its gates.
void copy_operands(const Stack& stack, const Part& part, LayerInputs* in) {
  const bool adds = stack.biased() && stack.cell.adds_gates;
  const bool copies = part.pads && in->x.size(2) % kLine > 0;
  const OptionalTensor input = copies ? OptionalTensor(in->x) : std::nullopt;
  std::vector<at::ArrayRef<Tensor>> each;
  for (int64_t i = 0; i < part.count; ++i) each.push_back(stack.of(part.layer, part.direction + i));
  const auto copy = part.at_once ? packed : packed_with_gradients;
  const auto [x, weight_ih, weight_hh, bias_ih, bias_hh] =
      part.at_once || part.packs ? copy(input, each, stack.cell.gates, adds, part.pads)
                                 : ops::pad_gates(input, in->weight_ih, in->weight_hh, in->bias_ih,
                                                  in->bias_hh, stack.cell.gates, adds);
  if (copies) in->x = x;
  in->weight_ih = weight_ih, in->weight_hh = weight_hh;
  if (stack.biased()) in->bias_ih = bias_ih, in->bias_hh = bias_hh;
  if (adds) in->bias_ih.reset();
}

LayerInputs inputs_of(const Stack& stack, const Part& part, const Tensor& x) {
  const auto [count, pads, at_once, packs, layer, direction] = part;
  const auto own = stack.of(layer, direction);
  const bool together = count > 1;
  const int64_t first = layer * stack.directions + direction;
  LayerInputs in{.x = x, .reverse = direction > 0, .cell = stack.cell.name};
  in.tf32 = stack.tf32, in.bidirectional = together;
  const auto& states = stack.states;
  std::vector<Tensor> cells;
  if (!states.empty()) in.h_0 = together ? beside(states[0], first) : states[0].select(0, first);
  for (size_t i = 1; i < states.size(); ++i) {
    cells.push_back(together ? beside(states[i], first).unsqueeze(0)
                             : states[i].narrow(0, first, 1));
  }
  if (!cells.empty()) in.c_0 = cells.size() == 1 ? cells[0] : cat(cells, 0);
  const auto of = [&](size_t i, int64_t dim = 0) {
    if (!together || packs) return own[i];
    const Tensor& other = stack.of(layer, 1)[i];
    TORCH_CHECK(own[i].scalar_type() == other.scalar_type(),
                "expected the weights of both directions to have one dtype, but got ",
                own[i].scalar_type(), " and ", other.scalar_type());
    const bool stacks = i == 1 && own[i].dim() == 2;
    return stacks ? stacked({own[i], other}) : cat({own[i], other}, dim);
  };
  in.weight_ih = of(0), in.weight_hh = of(1);
  if (stack.biased()) in.bias_ih = of(2), in.bias_hh = of(3);
  if (stack.cell.parameters > 0) in.parameters = of(stack.each() - 1, 1);
  return in;
}

// The last states of all layers, from those of each call. A single one is neither copied nor a view, which detach_()
// would refuse.
std::vector<Tensor> last_states(const std::vector<Tensor>& h_n, const std::vector<Tensor>& c_n,
                                int64_t states) {
  const Tensor& one = h_n[0];
  const auto shape = {c10::SymInt(1), one.sym_size(0), one.sym_size(1)};
  std::vector<Tensor> last{h_n.size() > 1 ? stacked(h_n)
                                          : at::_ops::_unsafe_view::call(one, shape)};
  if (states == 2) last.push_back(c_n.size() > 1 ? cat(c_n, 0) : c_n[0]);
  for (int64_t i = 0; states > 2 && i < states - 1; ++i) {
    std::vector<Tensor> each;
    for (const Tensor& cells : c_n) each.push_back(cells.select(0, i));
    last.push_back(stacked(each));
  }
  return last;
}

}  // namespace

std::vector<Tensor> recurrent_layers(const Tensor& input, at::ArrayRef<Tensor> weights,
                                     int64_t layers, int64_t directions,
                                     at::ArrayRef<Tensor> states, std::string_view name, bool pads,
                                     bool tf32, std::optional<int64_t> part) {
  const RecurrentCell& cell = find_cell(name);
  const Stack stack{input, weights, layers, directions, states, cell, pads, tf32};
  if (layers > 1 && directions == 1 && !pads && (part ? *part > 0 : input.is_cuda())) {
    std::vector<Tensor> inputs{input};
    inputs.insert(inputs.end(), weights.begin(), weights.end());
    inputs.insert(inputs.end(), states.begin(), states.end());
    const auto found = layers_side_by_side(inputs, layers, stack.each(), cell, tf32, part);
    if (!found.empty()) return found;
  }
  const Part how = how_to_run(stack);
  const bool at_once = how.at_once;
  const int64_t count = how.count, rows = input.size(1);
  const int64_t units = weights[1].size(-1) * (weights[1].dim() == 3 ? weights[1].size(0) : 1);
  std::optional<KernelGuard> guard;
  std::vector<Tensor> all;  // last states
  if (at_once) {
    guard.emplace(input);
    const auto of_cells = states.empty() ? input.scalar_type() : states.back().scalar_type();
    for (int64_t i = 0; i < cell.states; ++i) {
      const auto dtype = i == 0 ? input.scalar_type() : of_cells;
      all.push_back(empty({layers * directions, rows, units}, input, dtype));
    }
  }
  Tensor x = input;
  std::vector<Tensor> h_n, c_n;
  for (int64_t k = 0; k < layers; ++k) {
    std::vector<Tensor> outputs;
    Tensor all_outputs, padded;  // the input
    if (at_once && directions > count) {
      all_outputs = empty({x.size(0), rows, directions * units}, input);
    }
    for (int64_t d = 0; d < directions; d += count) {
      Part now = how;
      now.layer = k, now.direction = d;
      LayerInputs one = inputs_of(stack, now, padded.defined() ? padded : x);
      LayerCall call{.first = k * directions + d};
      if (at_once && cell.states <= 2) call.h_n = all[0];
      if (at_once && cell.states == 2) call.c_n = all[1];
      if (all_outputs.defined()) call.output = all_outputs.narrow(2, d * units, units);
      if (how.pads || how.packs) {
        // As given: padded operands look alike.
        for (int64_t i = 0; i < count; ++i)
          check_input_gates(x, stack.of(k, d + i)[0], std::nullopt);
        copy_operands(stack, now, &one);
        if (at_once) padded = one.x;
      } else if (one.bias_ih && cell.adds_gates && at_once && x.is_cuda()) {
        call.bias_ih = one.bias_ih;                 // which the kernel adds
      } else if (one.bias_ih && cell.adds_gates) {  // where the sum costs least
        const Tensor both = sum_of_biases(stack, now);
        one.bias_ih.reset(), one.bias_hh.reset();
        (x.is_cuda() ? one.bias_hh : one.bias_ih) = both;
      }
      const auto [y, h, c] = run(one, at_once || one.is_only_computed(), call);
      outputs.push_back(y);
      if (at_once) {
        put(h, all[0], call.first, count);
        for (int64_t i = 1; i < cell.states && !c.is_same(all[i]); ++i) {
          put(c.select(0, i - 1), all[i], call.first, count);
        }
        continue;
      }
      for (int64_t i = 0; i < count; ++i) {
        h_n.push_back(count > 1 ? h.narrow(1, i * units, units) : h);
        c_n.push_back(count > 1 ? c.narrow(2, i * units, units) : c);
      }
    }
    x = all_outputs.defined() ? all_outputs : outputs.size() > 1 ? cat(outputs, 2) : outputs[0];
  }
  if (!at_once) all = last_states(h_n, c_n, cell.states);
  all.insert(all.begin(), x);
  return all;
}

}  // namespace lltm_jit
