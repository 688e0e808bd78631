// Comes before all other includes of a file with tensors and without vectors. torch's headers would read all
// intrinsics of an x86 processor, a quarter of what such a file reads: to convert halves, and for a clock.
#pragma once

#define LLTM_JIT_NARROW  // core/types/vectorized.h refuses it
#undef CPU_CAPABILITY_AVX2
#undef CPU_CAPABILITY_AVX512
#undef __F16C__

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && __has_include(<x86gprintrin.h>)
#define _X86INTRIN_H_INCLUDED  // the next has the part of it that the clock needs
#include <x86gprintrin.h>
#endif
