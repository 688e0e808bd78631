// The operators and their CPU loops, all but their CUDA kernels. The loops are here, too, because
// an edit of an operator's maths changes its formula as well.
#define LLTM_JIT_MATHS
#include "basic/operators.h"

#include "core/elementwise/cpu.h"
#include "core/elementwise/define.h"

namespace lltm_jit {
LLTM_JIT_OPERATORS(LLTM_JIT_DEFINE_ELEMENTWISE)
LLTM_JIT_DERIVATIVES(LLTM_JIT_DEFINE_DERIVATIVE)
}  // namespace lltm_jit
