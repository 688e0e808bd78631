// The extension module of the recurrent operators. One line an operator.
#include "core/host/module.h"

#define LLTM_JIT_FOR_EACH_OP(OP) OP(lltm)

LLTM_JIT_MODULE(LLTM_JIT_FOR_EACH_OP)
