// Arrays that begin with a cache line.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>

namespace lltm_jit {

template <typename T>
struct AlignedDelete {
  void operator()(T* data) const { ::operator delete[](data, std::align_val_t{64}); }
};
template <typename T>
using AlignedArray = std::unique_ptr<T[], AlignedDelete<T>>;

// An array whose elements are not initialised.
template <typename T>
AlignedArray<T> aligned_array(int64_t size) {
  return AlignedArray<T>(static_cast<T*>(::operator new[](size * sizeof(T), std::align_val_t{64})));
}

template <typename T>
AlignedArray<T> aligned_zeros(int64_t size) {
  auto array = aligned_array<T>(size);
  std::fill_n(array.get(), size, T(0));
  return array;
}

}  // namespace lltm_jit
