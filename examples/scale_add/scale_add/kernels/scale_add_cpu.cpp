#include "core/elementwise/cpu.h"
#include "scale_add.h"

template void lltm_jit::elementwise_cpu(const ElementwiseArgs<ScaleAdd>&);
