// The kernels that Python compiles for a sequence on a GPU, decided by its plan. No header of torch or CUDA.
#pragma once

#include <string>
#include <vector>

#include "core/python/variant.h"
#include "rnn/sequence/plan/plan.h"

namespace lltm_jit {

// A cell, as its kernels are compiled: {"rnn.sequence", "rnn/cells/lltm.h", "lltm_jit::LltmCell"}. Python has
// declared the cell's kernels <kernel>_steps, <kernel>_forward and so on, one for each source in variants/.
struct CudaCell {
  std::string kernel, header, type;
};

// What decides how a pass is compiled, besides its plan.
struct SequenceUse {
  SequencePass pass;
  SequenceSaves saves;  // forward
  SequenceControls controls;
  bool all_states = false;  // backward: cell states of all steps have gradients
};

// A pass in a persistent kernel, as its plan has it, or step by step.
VariantRequest sequence_request(const SequenceSizes& sizes, const SequenceUse& use,
                                const SequencePlan& plan, const CudaCell& cell);

// A step of a cell that normalises, of threads with so many units.
VariantRequest normalised_request(const SequenceSizes& sizes, bool forward, int units,
                                  const CudaCell& cell);
// A pass of a cell without a product, of lanes of so many units.
VariantRequest walk_request(const SequenceSizes& sizes, bool forward, int units, bool controls,
                            const CudaCell& cell);

// Whether all recurrences run in one persistent kernel, forward and, if gradients are wanted, backward.
bool run_at_once(const SequenceSizes& sizes, bool training, const SequenceGpu& gpu);

// All requests of a call of these sizes.
std::vector<VariantRequest> sequence_requests(SequenceSizes sizes, bool training, bool controls,
                                              const SequenceGpu& gpu, const CudaCell& cell);

}  // namespace lltm_jit
