#include "rnn/cells/lltm.h"
#include "rnn/sequence/cell_cpu.h"

namespace lltm_jit {
template const CpuCell& cpu_cell<LltmCell>();
}  // namespace lltm_jit
