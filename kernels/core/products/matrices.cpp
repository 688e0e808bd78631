#include "core/products/matrices.h"

#include <utility>

#include "core/products/packed.h"

namespace lltm_jit {
namespace {

template <typename acc_t, size_t... i>
constexpr typename PanelTiles<acc_t>::Array all_tiles(std::index_sequence<i...>) {
  constexpr int kVectors = RegisterTile<acc_t>::kVectors;
  return {panel_tile<acc_t, i / kVectors + 1, i % kVectors + 1>...};
}
template <typename Array>
using Indices = std::make_index_sequence<std::tuple_size_v<Array>>;

}  // namespace

template <>
const PanelTiles<float>::Array PanelTiles<float>::all = all_tiles<float>(Indices<Array>());
template <>
const PanelTiles<double>::Array PanelTiles<double>::all = all_tiles<double>(Indices<Array>());

template void multiply_packed(const PackedProduct<float>*, int64_t);
template void multiply_packed(const PackedProduct<double>*, int64_t);
}  // namespace lltm_jit
