// The forward pass of whole recurrent sequences on CPU and CUDA, and on meta tensors only its results: allocation, and
// which kernels run.
#include "core/host/autograd.h"
#include "core/host/checks.h"
#include "core/launch/device.h"
#include "rnn/sequence/calls/dense_inputs.h"
#include "rnn/sequence/walk/run.h"
#ifdef LLTM_JIT_CUDA
#include "rnn/sequence/plan/run.h"
#endif

namespace lltm_jit {
namespace {

// The dtype of the returned cell states.
at::ScalarType cells_dtype(const SequenceInputs& in) {
  return in.c_0 ? in.c_0->scalar_type() : in.gates.scalar_type();
}

// The results, to be written. On a CPU cell states have the dtype that they run in, and are cast later.
SequenceAndSaved allocate(const SequenceInputs& in, const RecurrentCell& cell, SequenceSaves saves,
                          const LayerCall& call) {
  const auto steps = in.gates.sym_size(0), batch_size = in.gates.sym_size(1);
  const auto hidden_size = recurrences_of(in).count() * in.weight_hh.sym_size(-1);
  const int64_t cells = cell.states - 1;
  const auto state = state_dtype(in.gates.scalar_type());
  const auto of_c_n = in.gates.is_cpu() && cells > 0 ? state : cells_dtype(in);
  const bool given = call.c_n.defined() && call.c_n.scalar_type() == of_c_n;
  return {call.output.defined() ? call.output : empty({steps, batch_size, hidden_size}, in.gates),
          call.h_n.defined() ? call.h_n : empty({batch_size, hidden_size}, in.gates),
          given ? call.c_n : empty({cells, batch_size, hidden_size}, in.gates, of_c_n),
          saves == kSavesAll ? empty(saved_gates_sizes(in, cell), in.gates) : Tensor(),
          saves ? empty({steps, cells, batch_size, hidden_size}, in.gates, state) : Tensor()};
}

void* written_states(const Tensor& states, const Tensor& given, int64_t first) {
  const int64_t before = states.is_same(given) ? first * states.stride(0) : 0;
  return static_cast<char*>(states.mutable_data_ptr()) + before * states.element_size();
}

// The arguments of the kernels, and the tensors that they point to.
struct ForwardCall {
  DenseInputs inputs;
  Tensor gates, input, weight_ih;
  OptionalTensor bias, bias_ih;
  SequenceForwardArgs args;

  ForwardCall(const SequenceInputs& in, const RecurrentCell& cell, const LayerCall& call,
              SequenceAndSaved& results)
      : inputs(in, is_padded(in, cell)),
        bias(dense(in.bias_hh)),
        bias_ih(dense(call.bias_ih)),
        args{sizes_of(in, cell)} {
    const auto& [output, h_n, c_n, saved_gates, saved_cells] = results;
    inputs.fill(args, in.reverse);
    args.bias = data_or_null(bias);
    args.input_bias = data_or_null(bias_ih);
    args.old_cells = data_or_null(inputs.cells.first);
    point(args.output, output, in.reverse);
    args.new_h = written_states(h_n, call.h_n, call.first);
    if (cell.states > 1) args.new_cells = written_states(c_n, call.c_n, call.first);
    args.narrow_cells = floating_type(c_n.scalar_type()) != args.state_type;
    args.states_apart = call.h_n.defined();
    if (cell.product) point(args.saved_gates, saved_gates, in.reverse);
    if (cell.states > 1) point(args.saved_cells, saved_cells, in.reverse);
    if (!call.input) {
      gates = readable(in.gates);
      point(args.gates, gates, in.reverse);
      return;
    }
    input = readable(*call.input), weight_ih = readable(*call.weight_ih);
    point(args.input, input, in.reverse);
    args.input_size = input.size(2);
    args.input_weights = weight_ih.const_data_ptr();
    args.input_weights_stride = weight_ih.stride(0);
  }

  // False if the kernels cannot take all recurrences at once.
  bool run(const RecurrentCell& cell, const Tensor& like) {
#ifdef LLTM_JIT_CUDA
    if (like.is_cuda() && cell.product) return sequence_cuda(args, cell.cuda, like);
    if (like.is_cuda()) walk_forward_cuda(args, cell, like);
#endif
    if (like.is_cpu()) sequence_cpu(args, cell.cpu);
    return true;
  }
};

}  // namespace

SequenceAndSaved sequence_forward(const SequenceInputs& in, SequenceSaves saves,
                                  const LayerCall& call) {
  const RecurrentCell& cell = check_sequence(in);
  const KernelGuard guard(in.gates);
  const auto one_by_one = [&] {
    return in_turn(in, cell,
                   [&](const SequenceInputs& one) { return sequence_forward(one, saves); });
  };
  if (run_in_turn(in, cell)) return one_by_one();
  if (!as_kernels_have_it(in, cell)) {
    const ResizedGates resized(in, cell);
    return resized.resize_back(sequence_forward(resized.in_place_of(in), saves));
  }
  if (cell.normalises() && in.gates.is_cpu()) return sequence_forward_formula(in);
  SequenceAndSaved results = allocate(in, cell, saves, call);
  auto& [output, h_n, c_n, saved_gates, saved_cells] = results;
  const bool computes = !in.gates.is_meta() && output.numel() > 0;
  if (computes && !ForwardCall(in, cell, call, results).run(cell, in.gates)) return one_by_one();
  if (c_n.scalar_type() != cells_dtype(in)) c_n = c_n.to(cells_dtype(in));
  return results;
}

}  // namespace lltm_jit
