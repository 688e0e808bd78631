// filtered_lrelu on tensor cores, for one pair of factors, type and kind of signs. Constants of a
// variant:
//   ELEMENT               Half, BFloat16 or float
//   UP, DOWN              factors: 1, 2 or 4
//   UP_TAPS, DOWN_TAPS    at least the filters' taps: class_taps()
//   SIGNS                 None, Write or Read
//   OUT_TILES, IN_SLICES, WARPS, WHOLE  see MmaShape
#include "stylegan/filtered_lrelu/mma/kernel.cuh"

using namespace lltm_jit;
using K =
    Shape<ELEMENT, UP, DOWN, UP_TAPS, DOWN_TAPS, Signs::SIGNS, OUT_TILES, IN_SLICES, WARPS, WHOLE>;

extern "C" __global__ void __launch_bounds__(32 * K::kWarps, 1)
    filtered_lrelu_mma(const __grid_constant__ MmaCall call) {
  run_walks<K>(call);
}
