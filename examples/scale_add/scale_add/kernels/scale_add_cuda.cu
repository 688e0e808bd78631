#include "core/elementwise/cuda.cuh"
#include "scale_add.h"

template cudaError_t lltm_jit::launch_elementwise(const ElementwiseArgs<ScaleAdd>&, cudaStream_t);
