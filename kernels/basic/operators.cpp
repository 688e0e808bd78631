// All of the operators but their CUDA kernels. The loops of the CPU are here, too: what changes an
// operator's maths changes its formula with it.
#define LLTM_JIT_MATHS
#include "basic/operators.h"

#include "core/elementwise/cpu.h"
#include "core/elementwise/define.h"

namespace lltm_jit {
LLTM_JIT_OPERATORS(LLTM_JIT_DEFINE_ELEMENTWISE)
LLTM_JIT_DERIVATIVES(LLTM_JIT_DEFINE_DERIVATIVE)
}  // namespace lltm_jit
