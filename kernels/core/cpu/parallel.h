// at::parallel_for, which is a header's OpenMP loop: it has threads only where the compiler has OpenMP.
#pragma once

#if defined(_OPENMP) && !__has_include(<omp.h>)
#undef _OPENMP  // a compiler that was installed without its OpenMP header: one thread
#endif
#include <ATen/Parallel.h>
