// Launches of the kernels that Python compiles for sequences: a kernel is a handle of the driver, a CUkernel.
#pragma once

#include "rnn/sequence/plan/plan.h"
#include "rnn/sequence/steps/kernels.h"

#ifdef LLTM_JIT_CUDA
namespace lltm_jit {

// All steps, by the kernel of a plan's shape. cudaErrorNotSupported: the code is for chips that are too old for the
// shape, or its blocks cannot all run at once here.
cudaError_t launch_sequence(const void* kernel, const SequencePlan& plan,
                            const SequenceForwardArgs& args, cudaStream_t stream);
cudaError_t launch_sequence(const void* kernel, const SequencePlan& plan,
                            const SequenceBackwardArgs& args, cudaStream_t stream);

// One step.
cudaError_t launch_step(const void* kernel, const ForwardStepArgs& args, cudaStream_t stream);
cudaError_t launch_step(const void* kernel, const BackwardStepArgs& args, cudaStream_t stream);

// Units that a thread has at once in each of a sequence's steps.
int step_units(const SequenceForwardArgs& args);
int step_units(const SequenceBackwardArgs& args);

}  // namespace lltm_jit
#endif
