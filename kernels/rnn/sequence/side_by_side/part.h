// Which stacks run as described in Note [Layers side by side] (layers.h).
#pragma once

#include <cstdint>

#include "rnn/sequence/kernels.h"
#include "rnn/sequence/plan/plan.h"

namespace lltm_jit {

// The steps of a part, for layers of these sizes; 0 if one layer after another is faster.
int64_t side_by_side_part(const SequenceSizes& all, bool training, const SequenceGpu& gpu);

}  // namespace lltm_jit
