// Boxes of a matrix, which the copy engine (TMA) of chips of 9.0 and later loads into shared
// memory, and the tensor maps with which the host describes the matrix.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include "core/launch/driver.h"
#include "core/memory/bulk_copy.cuh"
#include "core/types/cuda.cuh"

namespace lltm_jit {

// Loads the box of `map` whose first element is at (row, column); elements outside the matrix are zero.
__device__ __forceinline__ void copy_box(void* target, const CUtensorMap& map, int row, int column,
                                         CopyBarrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(target)),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(&barrier))
      : "memory");
}
// Loads the box of a map of three or four dimensions at `place`, whose first coordinate varies fastest.
__device__ __forceinline__ void copy_box(void* target, const CUtensorMap& map,
                                         const int (&place)[3], CopyBarrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(target)),
      "l"(&map), "r"(place[0]), "r"(place[1]), "r"(place[2]), "r"(shared_address(&barrier))
      : "memory");
}
__device__ __forceinline__ void copy_box(void* target, const CUtensorMap& map,
                                         const int (&place)[4], CopyBarrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(shared_address(target)),
      "l"(&map), "r"(place[0]), "r"(place[1]), "r"(place[2]), "r"(place[3]),
      "r"(shared_address(&barrier))
      : "memory");
}
__device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// The driver's function that makes maps; null if there is none.
inline PFN_cuTensorMapEncodeTiled_v12000 map_encoder() {
  static const auto encode = [] {
    PFN_cuTensorMapEncodeTiled_v12000 function = nullptr;
    return find("cuTensorMapEncodeTiled", &function) == cudaSuccess ? function : nullptr;
  }();
  return encode;
}

template <typename scalar_t>
constexpr CUtensorMapDataType map_type() {
  if constexpr (std::is_same_v<scalar_t, Half>) return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  if constexpr (std::is_same_v<scalar_t, BFloat16>) return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
}

// Describes a tensor, with sizes, strides (in elements) and a box from the fastest dimension on. False if
// the engine cannot take it: a stride is no multiple of 16 bytes, or a box is too large.
template <typename scalar_t, int rank>
bool encode(CUtensorMap* map, const void* tensor, const int64_t (&sizes)[rank],
            const int64_t (&strides)[rank - 1], const int (&box)[rank],
            CUtensorMapSwizzle swizzle) {
  cuuint64_t all[rank], bytes[rank - 1];
  cuuint32_t of_box[rank], steps[rank];
  for (int k = 0; k < rank; ++k) {
    all[k] = static_cast<cuuint64_t>(sizes[k]);
    of_box[k] = static_cast<cuuint32_t>(box[k]);
    steps[k] = 1;
    if (k > 0) bytes[k - 1] = static_cast<cuuint64_t>(strides[k - 1]) * sizeof(scalar_t);
  }
  return map_encoder() && map_encoder()(map, map_type<scalar_t>(), rank, const_cast<void*>(tensor),
                                        all, bytes, of_box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                        swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// A matrix of 16-bit elements or floats in memory, for boxes of box_rows x 128 bytes in the layout that
// core/products/wgmma.cuh describes.
template <typename scalar_t>
bool encode_map(CUtensorMap* map, const void* matrix, int64_t rows, int64_t columns, int64_t stride,
                int box_rows) {
  return encode<scalar_t, 2>(map, matrix, {columns, rows}, {stride},
                             {128 / int(sizeof(scalar_t)), box_rows}, CU_TENSOR_MAP_SWIZZLE_128B);
}

// A dense tensor, for boxes that lie densely in shared memory.
template <typename scalar_t, int rank>
bool encode_dense_map(CUtensorMap* map, const void* tensor, const int64_t (&sizes)[rank],
                      const int (&box)[rank]) {
  int64_t strides[rank - 1], stride = 1;
  for (int k = 0; k < rank - 1; ++k) strides[k] = stride *= sizes[k];
  return encode<scalar_t, rank>(map, tensor, sizes, strides, box, CU_TENSOR_MAP_SWIZZLE_NONE);
}

}  // namespace lltm_jit
