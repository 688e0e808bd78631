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

// A matrix of 16-bit elements or floats in memory, for boxes of box_rows x 128 bytes in the layout that
// core/products/wgmma.cuh describes. Rows start at multiples of 16 bytes. False if the engine cannot take it.
template <typename scalar_t>
bool encode_map(CUtensorMap* map, const void* matrix, int64_t rows, int64_t columns, int64_t stride,
                int box_rows) {
  const cuuint64_t sizes[] = {cuuint64_t(columns), cuuint64_t(rows)};
  const cuuint64_t strides[] = {cuuint64_t(stride) * sizeof(scalar_t)};
  const cuuint32_t box[] = {128 / sizeof(scalar_t), cuuint32_t(box_rows)}, steps[] = {1, 1};
  return map_encoder() &&
         map_encoder()(map, map_type<scalar_t>(), 2, const_cast<void*>(matrix), sizes, strides, box,
                       steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                       CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                       CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// Describes a dense tensor, sizes given from the fastest dimension on, for boxes that lie densely
// in shared memory. False if the engine cannot take it: a row is no multiple of 16 bytes, or a box
// is too large.
template <typename scalar_t, int rank>
bool encode_dense_map(CUtensorMap* map, const void* tensor, const int64_t (&sizes)[rank],
                      const int (&box)[rank]) {
  cuuint64_t all[rank], strides[rank - 1];
  cuuint32_t of_box[rank], steps[rank];
  uint64_t stride = sizeof(scalar_t);
  for (int k = 0; k < rank; ++k) {
    all[k] = static_cast<cuuint64_t>(sizes[k]);
    of_box[k] = static_cast<cuuint32_t>(box[k]);
    steps[k] = 1;
    if (k > 0) strides[k - 1] = stride;
    stride *= all[k];
  }
  return map_encoder() &&
         map_encoder()(map, map_type<scalar_t>(), rank, const_cast<void*>(tensor), all, strides,
                       of_box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                       CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                       CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace lltm_jit
