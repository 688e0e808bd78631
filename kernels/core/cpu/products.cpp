#include "core/cpu/products.h"

#include "core/cpu/packed_product.h"

namespace lltm_jit {
template void multiply_packed(const PackedProduct<float>&);
template void multiply_packed(const PackedProduct<double>&);
}  // namespace lltm_jit
