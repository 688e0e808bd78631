// The only list of this family's cells: kernels, layers, tests and tools are generated from these
// rows. cells/<name>.h defines the cell's type; sequence/cell.h explains it.
#pragma once

#include "rnn/cells/gru.h"
#include "rnn/cells/lltm.h"
#include "rnn/cells/lstm.h"
#include "rnn/cells/rnn_relu.h"
#include "rnn/cells/rnn_tanh.h"
#include "rnn/cells/slstm.h"

// CELL(name, type)
#define LLTM_JIT_CELLS(CELL)  \
  CELL(lltm, LltmCell)        \
  CELL(lstm, LstmCell)        \
  CELL(gru, GruCell)          \
  CELL(rnn_tanh, RnnTanhCell) \
  CELL(rnn_relu, RnnReluCell) \
  CELL(slstm, SlstmCell)
