#include "nope.cuh"
