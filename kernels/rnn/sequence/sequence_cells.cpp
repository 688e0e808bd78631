// The cells of this family, as sequences take them. <cell>_cell_cpu.cpp has their loops on the CPU.
#include "rnn/cells/gru.h"
#include "rnn/cells/lltm.h"
#include "rnn/cells/lstm.h"
#include "rnn/sequence/sequence_ops.h"

namespace lltm_jit {

void add_own_cells() {
  const char* kernel = "rnn.sequence";
  add_cell(recurrent_cell<LltmCell>("lltm", {kernel, "rnn/cells/lltm.h", "lltm_jit::LltmCell"}));
  add_cell(recurrent_cell<LstmCell>("lstm", {kernel, "rnn/cells/lstm.h", "lltm_jit::LstmCell"}));
  add_cell(recurrent_cell<GruCell>("gru", {kernel, "rnn/cells/gru.h", "lltm_jit::GruCell"}));
}

}  // namespace lltm_jit
