// The elementwise operators, two lines each: the include of the maths, and the row that bindings.cpp reads.
#pragma once

#ifdef LLTM_JIT_MATHS  // not in bindings.cpp, which takes long to compile
#include "basic/my_op.h"
#include "basic/sigmoid.h"
#endif

// Name, struct, number of inputs, and the number of saved tensors that the derivative takes.
#define LLTM_JIT_OPERATORS(DO) \
  DO(my_op, MyOp, 2, 0)        \
  DO(sigmoid, Sigmoid, 1, 1)

// The operators whose derivative is an operator, too: d_<name>(z).
#define LLTM_JIT_DERIVATIVES(DO) DO(sigmoid, Sigmoid, 1, 1)
