#include "rnn/cells/lstm.h"
#include "rnn/sequence/cell_cpu.h"

namespace lltm_jit {
template const CpuCell& cpu_cell<LstmCell>();
}  // namespace lltm_jit
