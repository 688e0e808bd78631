// Parts that the CUDA kernels of bias_act share: the type they compute in, and packs of elements.
#pragma once

#include "core/launch/launch.cuh"
#include "stylegan/bias_act/cuda/fast.cuh"
#include "stylegan/bias_act/kernels.h"

namespace lltm_jit {

template <typename scalar_t>
using arithmetic_t =
    std::conditional_t<sizeof(scalar_t) == 2, ShortFloat,
                       std::conditional_t<sizeof(scalar_t) == 4, FullFloat, scalar_t>>;

template <typename T>
__device__ __forceinline__ T plain(T value) {
  return value;
}
__device__ __forceinline__ float plain(ShortFloat value) { return value.value; }
__device__ __forceinline__ float plain(FullFloat value) { return value.value; }

// The elements of a pack, and the packs that a thread has in flight: enough to hide the memory's latency,
// with few registers. Double takes one element at a time, because its functions take long to compile.
template <typename scalar_t>
inline constexpr int kVecOf = sizeof(scalar_t) == 8 ? 1 : kAccessBytes / sizeof(scalar_t);
template <typename scalar_t>
inline constexpr int kPacksOf = sizeof(scalar_t) == 8 ? 1 : 2;

// `count` elements of a tensor, at most a pack. A whole pack begins at a multiple of its length,
// and is one access if the tensor is aligned. Otherwise each element is an access.
struct PackPlaces {
  int64_t first;
  int count;
  // The part within [begin, end) of the pack at `first`.
  template <int kVec>
  static __device__ __forceinline__ PackPlaces within(int64_t first, int64_t begin, int64_t end) {
    const int64_t from = max(first, begin), to = min(first + kVec, end);
    return {from, static_cast<int>(max(to - from, int64_t(0)))};
  }
};

template <int kVec, typename scalar_t>
__device__ __forceinline__ Pack<scalar_t, kVec> load_places(const void* tensor, PackPlaces places,
                                                            bool vectorize) {
  const auto* source = static_cast<const scalar_t*>(tensor) + places.first;
  if (vectorize && places.count == kVec) return load_raw<kVec>(source);
  Pack<scalar_t, kVec> pack;
#pragma unroll
  for (int v = 0; v < kVec; ++v) pack.values[v] = v < places.count ? source[v] : scalar_t{};
  return pack;
}

template <int kVec, typename scalar_t>
__device__ __forceinline__ void store_places(void* tensor, PackPlaces places, bool vectorize,
                                             const Pack<scalar_t, kVec>& pack) {
  auto* target = static_cast<scalar_t*>(tensor) + places.first;
  if (vectorize && places.count == kVec) {
    *reinterpret_cast<Pack<scalar_t, kVec>*>(target) = pack;
    return;
  }
#pragma unroll
  for (int v = 0; v < kVec; ++v) {
    if (v < places.count) target[v] = pack.values[v];
  }
}

// The packs of a pass that a thread has in flight.
template <Pass pass, typename scalar_t>
struct PassPacks {
  static constexpr int kVec = kVecOf<scalar_t>, kPacks = kPacksOf<scalar_t>;
  static constexpr int kIn = kInputsOf<pass>;
  using T = arithmetic_t<scalar_t>;

  PackPlaces places[kPacks];
  Pack<scalar_t, kVec> in[kPacks][kIn], out[kPacks];

  // `whole` has one value for all threads of a block: the packs are whole and aligned, so their
  // loads need not wait for each other. `vectorize`: whole packs are aligned.
  __device__ __forceinline__ void load(const BiasActArgs& args, bool whole, bool vectorize) {
    if (whole) {
#pragma unroll
      for (int i = 0; i < kPacks * kIn; ++i) {
        const auto* input = static_cast<const scalar_t*>(args.inputs[i % kIn]);
        in[i / kIn][i % kIn] = load_raw<kVec>(input + places[i / kIn].first);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kPacks * kIn; ++i) {
        in[i / kIn][i % kIn] =
            load_places<kVec, scalar_t>(args.inputs[i % kIn], places[i / kIn], vectorize);
      }
    }
  }

  // Computes the results. b(p, v) is an element's bias; take(p, v, result) gets its result
  // unrounded. Elements outside `places` are zeros, and so are their dx.
  template <typename Bias, typename Take>
  __device__ __forceinline__ void compute(const BiasActArgs& args, const BiasActNumbers<T>& numbers,
                                          const Bias& b, const Take& take) {
    with_act(args.op.act, [&](auto act) {
#pragma unroll
      for (int i = 0; i < kPacks * kVec; ++i) {
        const int p = i / kVec, v = i % kVec;
        T x[kIn];
#pragma unroll
        for (int k = 0; k < kIn; ++k) x[k] = T(to_opmath(in[p][k].values[v]));
        const auto y = plain(bias_act_step<pass, decltype(act)::value>(numbers, x, T(b(p, v))));
        out[p].values[v] = from_opmath<scalar_t>(y);
        take(p, v, y);
      }
    });
  }

  __device__ __forceinline__ void store(const BiasActArgs& args, bool whole, bool vectorize) const {
    if (args.output == nullptr) return;
    auto* output = static_cast<scalar_t*>(args.output);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (whole) {
        *reinterpret_cast<Pack<scalar_t, kVec>*>(output + places[p].first) = out[p];
      } else {
        store_places(output, places[p], vectorize, out[p]);
      }
    }
  }
};

inline bool aligned_to_packs(const BiasActArgs& args) {
  return aligned(kAccessBytes, args.inputs[0], args.inputs[1], args.output);
}

// Defined in backward.cu.
cudaError_t launch_bias_act_backward(const BiasActArgs& args, cudaStream_t stream);

}  // namespace lltm_jit
