// LLTM cell on CUDA: the pointwise part, after the GEMM in the forward pass and before it in the
// backward pass. maths.h has the equations. Each thread owns kVec neighbouring hidden units of one row.
#include "core/launch/launch.cuh"
#include "rnn/cell_step/cuda/dispatch.cuh"
#include "rnn/cell_step/kernels.h"
#include "rnn/cell_step/maths.h"

namespace lltm_jit {
namespace {

// ------------------------------------------------------------------------------------- kernels --

// Calls function(unit) for the first of each kVec units of this thread, in [batch_size, hidden_size].
template <int kVec, typename Args, typename Function>
LLTM_JIT_DEVICE void for_each_pack(const Args& args, const Function& function) {
  wait_for_predecessor();
  const int64_t packs = args.batch_size * (args.hidden_size / kVec);
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t p = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; p < packs; p += stride) {
    function(p * kVec);
  }
}

template <typename scalar_t, typename cell_t, int kVec, bool kSaveGates>
__global__ void lltm_forward_kernel(LltmForwardArgs args) {
  using opmath = opmath_t<scalar_t>;
  const int64_t hidden = args.hidden_size;
  for_each_pack<kVec>(args, [&](int64_t unit) {
    const int64_t row = unit / hidden;
    scalar_t* gates = static_cast<scalar_t*>(args.gates) + unit + row * 2 * hidden;
    opmath input_gate[kVec], output_gate[kVec], candidate[kVec], cell[kVec], h[kVec];
    load_pack<kVec>(gates, input_gate);
    load_pack<kVec>(gates + hidden, output_gate);
    load_pack<kVec>(gates + 2 * hidden, candidate);
    load_pack<kVec>(static_cast<const cell_t*>(args.old_cell) + unit, cell);
    LLTM_JIT_UNROLLED(k, kVec) {
      const auto active = lltm_activate<opmath>({input_gate[k], output_gate[k], candidate[k]});
      const auto state = lltm_new_state<opmath>(active, cell[k]);
      h[k] = state.h;
      cell[k] = state.cell;
      input_gate[k] = active.input_gate;
      output_gate[k] = active.output_gate;
      candidate[k] = active.candidate_cell;
    }
    store_pack<kVec>(static_cast<scalar_t*>(args.new_h) + unit, h);
    store_pack<kVec>(static_cast<cell_t*>(args.new_cell) + unit, cell);
    if (kSaveGates) {
      store_pack<kVec>(gates, input_gate);
      store_pack<kVec>(gates + hidden, output_gate);
      store_pack<kVec>(gates + 2 * hidden, candidate);
    }
  });
}

template <typename scalar_t, typename cell_t, int kVec>
__global__ void lltm_backward_kernel(LltmBackwardArgs args) {
  using opmath = opmath_t<scalar_t>;
  const int64_t hidden = args.hidden_size;
  for_each_pack<kVec>(args, [&](int64_t unit) {
    const int64_t gate_unit = unit + unit / hidden * 2 * hidden;
    const scalar_t* gates = static_cast<const scalar_t*>(args.gates) + gate_unit;
    opmath input_gate[kVec], output_gate[kVec], candidate[kVec], cell[kVec];
    opmath grad_h[kVec] = {}, grad_cell[kVec] = {};
    load_pack<kVec>(gates, input_gate);
    load_pack<kVec>(gates + hidden, output_gate);
    load_pack<kVec>(gates + 2 * hidden, candidate);
    load_pack<kVec>(static_cast<const cell_t*>(args.new_cell) + unit, cell);
    if (args.grad_h) load_pack<kVec>(static_cast<const scalar_t*>(args.grad_h) + unit, grad_h);
    if (args.grad_cell) {
      load_pack<kVec>(static_cast<const cell_t*>(args.grad_cell) + unit, grad_cell);
    }
    LLTM_JIT_UNROLLED(k, kVec) {
      const auto grad = lltm_backward<opmath>({input_gate[k], output_gate[k], candidate[k]},
                                              cell[k], grad_h[k], grad_cell[k]);
      input_gate[k] = grad.pre.input_gate;
      output_gate[k] = grad.pre.output_gate;
      candidate[k] = grad.pre.candidate_cell;
      grad_cell[k] = grad.old_cell;
    }
    scalar_t* grad_pre = static_cast<scalar_t*>(args.grad_pre) + gate_unit;
    store_pack<kVec>(grad_pre, input_gate);
    store_pack<kVec>(grad_pre + hidden, output_gate);
    store_pack<kVec>(grad_pre + 2 * hidden, candidate);
    if (args.grad_old_cell) {
      store_pack<kVec>(static_cast<cell_t*>(args.grad_old_cell) + unit, grad_cell);
    }
  });
}

// ----------------------------------------------------------------------------------- launchers --

// The elements that a thread reads at once; 1 if rows or pointers are not aligned for more.
template <typename scalar_t, typename... Pointers>
bool can_vectorize(int64_t hidden_size, const Pointers*... pointers) {
  return hidden_size % (kAccessBytes / sizeof(scalar_t)) == 0 && aligned(kAccessBytes, pointers...);
}

template <int kVec, typename scalar_t, typename cell_t>
cudaError_t forward(const LltmForwardArgs& args, cudaStream_t stream) {
  const unsigned blocks = blocks_for(args.batch_size * (args.hidden_size / kVec));
  return launch(args.save_gates ? lltm_forward_kernel<scalar_t, cell_t, kVec, true>
                                : lltm_forward_kernel<scalar_t, cell_t, kVec, false>,
                blocks, kThreads, 0, stream, args);
}

template <int kVec, typename scalar_t, typename cell_t>
cudaError_t backward(const LltmBackwardArgs& args, cudaStream_t stream) {
  const unsigned blocks = blocks_for(args.batch_size * (args.hidden_size / kVec));
  return launch(lltm_backward_kernel<scalar_t, cell_t, kVec>, blocks, kThreads, 0, stream, args);
}

}  // namespace

cudaError_t launch_lltm_forward(const LltmForwardArgs& args, cudaStream_t stream) {
  return dispatch_lltm(args.type, args.cell_type, [&](auto scalar, auto cell) {
    using scalar_t = decltype(scalar);
    using cell_t = decltype(cell);
    return can_vectorize<scalar_t>(args.hidden_size, args.gates, args.old_cell, args.new_h,
                                   args.new_cell)
               ? forward<kAccessBytes / sizeof(scalar_t), scalar_t, cell_t>(args, stream)
               : forward<1, scalar_t, cell_t>(args, stream);
  });
}

cudaError_t launch_lltm_backward(const LltmBackwardArgs& args, cudaStream_t stream) {
  return dispatch_lltm(args.type, args.cell_type, [&](auto scalar, auto cell) {
    using scalar_t = decltype(scalar);
    using cell_t = decltype(cell);
    return can_vectorize<scalar_t>(args.hidden_size, args.grad_h, args.grad_cell, args.gates,
                                   args.new_cell, args.grad_pre, args.grad_old_cell)
               ? backward<kAccessBytes / sizeof(scalar_t), scalar_t, cell_t>(args, stream)
               : backward<1, scalar_t, cell_t>(args, stream);
  });
}

}  // namespace lltm_jit
