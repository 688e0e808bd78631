// The loops of this family's cells on the CPU.
#include "rnn/cells/gru.h"
#include "rnn/cells/lltm.h"
#include "rnn/cells/lstm.h"
#include "rnn/sequence/cell_cpu.h"

namespace lltm_jit {
template const CpuCell& cpu_cell<LltmCell>();
template const CpuCell& cpu_cell<LstmCell>();
template const CpuCell& cpu_cell<GruCell>();
}  // namespace lltm_jit
