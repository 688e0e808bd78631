// The extension module of the elementwise operators. One line an operator.
#include "core/host/module.h"

#define LLTM_JIT_FOR_EACH_OP(OP) \
  OP(my_op)                      \
  OP(sigmoid)

LLTM_JIT_MODULE(LLTM_JIT_FOR_EACH_OP)
