#include "core/products/matrices.h"

#include "core/products/packed.h"

namespace lltm_jit {
template void multiply_packed(const PackedProduct<float>&);
template void multiply_packed(const PackedProduct<double>&);
}  // namespace lltm_jit
