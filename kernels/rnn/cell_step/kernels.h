// The contract between the LLTM cell's host code (kernels.cpp) and its kernels (cpu/pointwise.cpp and
// cpu/gemm.cpp; cuda/pointwise.cu, cuda/gemm.cu, cuda/products.cu and cuda/cluster.cu). No torch
// header: every pointer is raw, and every array is row-major and dense unless stated otherwise.
//
// A gates array holds, row by row, the input gate, the output gate and the candidate cell, each of
// hidden_size elements. States h and gates have the element type `type`; cells have `cell_type`,
// which is `type` or, for the 16-bit types, Float.
#pragma once

#include <cstdint>

#include "core/launch/api.h"
#include "core/math/scalar.h"
#include "rnn/cell_step/plan.h"

namespace lltm_jit {

struct LltmStates {
  const void* old_cell;  // [batch_size, hidden_size]
  void* new_h;           // [batch_size, hidden_size] written; aliases nothing
  void* new_cell;        // [batch_size, hidden_size] written; may be old_cell
  void* gates;           // [batch_size, 3*hidden_size]
  ElementType cell_type;
};

// `gates` are pre-activations; activated in place if save_gates, else unchanged.
struct LltmForwardArgs : LltmStates {
  int64_t batch_size, hidden_size;
  ElementType type;
  bool save_gates;
};

struct LltmBackwardArgs {
  const void* grad_h;     // [batch_size, hidden_size] or null for zeros
  const void* grad_cell;  // [batch_size, hidden_size] of cell_type, or null for zeros
  const void* gates;      // [batch_size, 3*hidden_size] activated
  const void* new_cell;   // [batch_size, hidden_size]
  void* grad_pre;         // [batch_size, 3*hidden_size] written: gradients of the pre-activations
  void* grad_old_cell;    // [batch_size, hidden_size] of cell_type, written; or null
  int64_t batch_size, hidden_size;
  ElementType type, cell_type;
};

// The operands of the products, and the plan. Rows are dense, `*_stride` elements apart.
struct LltmOperands : LltmProblem {
  const void* input;    // [batch_size, input_size]
  const void* weights;  // [3*hidden_size, hidden_size+input_size]
  const void* old_h;    // [batch_size, hidden_size]
  int64_t input_stride, weights_stride, old_h_stride;
  LltmPlan plan;
};

// The whole cell, product included. `gates` are written: activated; or null.
struct LltmCellArgs : LltmOperands, LltmStates {
  const void* bias;  // [3*hidden_size] or null
};

// The products of the backward pass. A gradient that nobody asked for has a null pointer.
struct LltmProductsArgs : LltmOperands {
  const void* grad_pre;  // [batch_size, 3*hidden_size]
  void* grad_input;      // [batch_size, input_size] written
  void* grad_weights;    // [3*hidden_size, hidden_size+input_size] written
  void* grad_bias;       // [3*hidden_size] written
  void* grad_old_h;      // [batch_size, hidden_size] written
};

void lltm_forward_cpu(const LltmForwardArgs& args);
void lltm_backward_cpu(const LltmBackwardArgs& args);
// These two have their own products.
void lltm_cell_cpu(const LltmCellArgs& args);
void lltm_products_cpu(const LltmProductsArgs& args);

#ifdef LLTM_JIT_CUDA
// They enqueue on `stream`; both sizes are positive.
cudaError_t launch_lltm_forward(const LltmForwardArgs& args, cudaStream_t stream);
cudaError_t launch_lltm_backward(const LltmBackwardArgs& args, cudaStream_t stream);
// These two have their own products, by the kernel that args.plan names, which is not Library.
cudaError_t launch_lltm_cell(const LltmCellArgs& args, cudaStream_t stream);
cudaError_t launch_lltm_products(const LltmProductsArgs& args, cudaStream_t stream);
// The cell as clusters of blocks (cuda/cluster.cu), for launch_lltm_cell.
cudaError_t launch_lltm_cluster_cell(const LltmCellArgs& args, cudaStream_t stream);
// Describes the current device for lltm_plan().
cudaError_t lltm_describe_gpu(LltmGpu* gpu);
#endif

}  // namespace lltm_jit
