#pragma once

#include "core/math/scalar.h"

LLTM_JIT_HOST_DEVICE ELEMENT sum_of(const ELEMENT* x) {
  ELEMENT sum = 0;
  for (int k = 0; k < SIZE; ++k) sum += x[k];
  return sum;
}
