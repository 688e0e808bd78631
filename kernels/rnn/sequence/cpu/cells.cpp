// The CPU loops of this family's cells.
#include "rnn/cells/cells.h"

#include "rnn/cells/layer_norm.h"
#include "rnn/sequence/cpu/cell.h"

namespace lltm_jit {
#define LOOPS_OF(name, type) template CpuCell cpu_cell<type>();
LLTM_JIT_CELLS(LOOPS_OF)
LLTM_JIT_NORMALISED_CELLS(LOOPS_OF)
}  // namespace lltm_jit
