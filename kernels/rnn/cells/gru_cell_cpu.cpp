#include "rnn/cells/gru.h"
#include "rnn/sequence/cell_cpu.h"

namespace lltm_jit {
template const CpuCell& cpu_cell<GruCell>();
}  // namespace lltm_jit
