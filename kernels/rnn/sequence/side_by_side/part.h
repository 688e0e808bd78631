// Which stacks run as Note [Layers side by side] (layers.h) says.
#pragma once

#include <cstdint>

#include "rnn/sequence/kernels.h"
#include "rnn/sequence/plan/plan.h"

namespace lltm_jit {

// For a layer's sizes: the steps of a part; 0 if layers one after the other are faster.
int64_t side_by_side_part(const SequenceSizes& sizes, int layers, bool training,
                          const SequenceGpu& gpu);

}  // namespace lltm_jit
