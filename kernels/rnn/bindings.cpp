// The extension module of the recurrent operators: an include and a line for each.
#if defined(__OPTIMIZE__) && !defined(__clang__)
// g++ takes an eighth less, and calls no longer. Above all includes, so that any function may be inlined into any other.
#pragma GCC optimize("O1")
#endif

#include <ATen/Context.h>
#include <torch/version.h>

#include "core/host/module.h"
#include "rnn/cell_step/operators.h"
#include "rnn/sequence/all_steps/products.h"
#include "rnn/sequence/all_steps/states.h"
#include "rnn/sequence/operators.h"
#include "rnn/sequence/padding/operands.h"

bool lltm_jit::matmul_uses_tf32() {
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 10
  return at::globalContext().float32Precision("cuda", "matmul") == "tf32";
#else
  return at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) ==
         at::Float32Precision::TF32;
#endif
}

LLTM_JIT_MODULE(TORCH_EXTENSION_NAME, m) {
  using namespace lltm_jit::ops;
  lltm_jit::Module module(m, "lltm_jit");
  module.add<lltm_cell, lltm_cell_forward, lltm_cell_backward>();
  module.add<lltm_cell_aten>();
  module.add<lltm_cell_check>();
  module.add<lltm_forward>();
  module.add<lltm_backward>();
  module.add<recurrent_sequence, recurrent_sequence_forward, recurrent_sequence_backward>();
  module.add<recurrent_sequence_states, stack_states>();
  module.add<input_gates, input_gates_backward>();
  module.add<pad_gates, pad_gates_backward>();
  module.add_function<lltm_jit::add_cell_at>("add_cell_at");
  module.add_function<lltm_jit::own_cells>("own_cells");
  module.add_function<lltm_jit::recurrent_layer>("recurrent_layer");
  module.add_function<lltm_jit::recurrent_layers>("recurrent_layers");
  module.add_function<lltm_jit::planned_variants>("planned_variants");
  module.add_function<lltm_jit::directions_together>("directions_together");
  module.add_function<lltm_jit::layers_part>("layers_part");
#ifdef LLTM_JIT_CUDA
  module.add_function<lltm_jit::limit_sequence_blocks>("limit_sequence_blocks");
  module.add_function<lltm_jit::sequence_gpu>("sequence_gpu");
  module.add_function<lltm_jit::plan_sequences>("plan_sequences");
#endif
  lltm_jit::add_own_cells();
}
