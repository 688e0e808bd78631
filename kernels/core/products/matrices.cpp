#include "core/products/matrices.h"

#include "core/products/packed.h"

namespace lltm_jit {
LLTM_JIT_PANEL_TILES(, float)
LLTM_JIT_PANEL_TILES(, double)
template void multiply_packed(const PackedProduct<float>&);
template void multiply_packed(const PackedProduct<double>&);
}  // namespace lltm_jit
