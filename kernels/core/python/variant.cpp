// A unit of its own, because pybind11's headers take as long to compile as a family's bindings.
#if defined(__OPTIMIZE__) && !defined(__clang__)
#pragma GCC optimize("O1")  // this code only starts builds, which take seconds
#endif

#include "core/launch/api.h"
#ifdef LLTM_JIT_CUDA  // only the kernels for CUDA have variants
#include "core/python/variant_calls.h"
#endif
