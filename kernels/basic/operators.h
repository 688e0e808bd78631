// The elementwise operators, two lines each: where the maths is, and what bindings.cpp must know.
#pragma once

#ifdef LLTM_JIT_MATHS  // not in bindings.cpp, which takes long to compile
#include "basic/my_op.h"
#include "basic/sigmoid.h"
#endif

// Name, struct, number of inputs, and how many tensors the derivative takes beside the gradient.
#define LLTM_JIT_OPERATORS(DO) \
  DO(my_op, MyOp, 2, 0)        \
  DO(sigmoid, Sigmoid, 1, 1)

// Those whose derivative is an operator, too: d_<name>(z).
#define LLTM_JIT_DERIVATIVES(DO) DO(sigmoid, Sigmoid, 1, 1)
