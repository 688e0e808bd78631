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
LLTM_JIT_DEVICE T plain(T value) {
  return value;
}
LLTM_JIT_DEVICE float plain(ShortFloat value) { return value.value; }
LLTM_JIT_DEVICE float plain(FullFloat value) { return value.value; }

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
  static LLTM_JIT_DEVICE PackPlaces within(int64_t first, int64_t begin, int64_t end) {
    const int64_t from = max(first, begin), to = min(first + kVec, end);
    return {from, static_cast<int>(max(to - from, int64_t(0)))};
  }
};

template <int kVec, typename scalar_t>
LLTM_JIT_DEVICE Pack<scalar_t, kVec> load_places(const void* tensor, PackPlaces places,
                                                 bool vectorize) {
  const auto* source = static_cast<const scalar_t*>(tensor) + places.first;
  if (vectorize && places.count == kVec) return load_raw<kVec>(source);
  Pack<scalar_t, kVec> pack;
  LLTM_JIT_UNROLLED(v, kVec) pack.values[v] = v < places.count ? source[v] : scalar_t{};
  return pack;
}

template <int kVec, typename scalar_t>
LLTM_JIT_DEVICE void store_places(void* tensor, PackPlaces places, bool vectorize,
                                  const Pack<scalar_t, kVec>& pack) {
  auto* target = static_cast<scalar_t*>(tensor) + places.first;
  if (vectorize && places.count == kVec) {
    *reinterpret_cast<Pack<scalar_t, kVec>*>(target) = pack;
    return;
  }
  LLTM_JIT_UNROLLED(v, kVec) {
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
  LLTM_JIT_DEVICE void load(const BiasActArgs& args, bool whole, bool vectorize) {
    if (whole) {
      LLTM_JIT_UNROLLED(i, kPacks * kIn) {
        const auto* input = static_cast<const scalar_t*>(args.inputs[i % kIn]);
        in[i / kIn][i % kIn] = load_raw<kVec>(input + places[i / kIn].first);
      }
    } else {
      LLTM_JIT_UNROLLED(i, kPacks * kIn) {
        in[i / kIn][i % kIn] =
            load_places<kVec, scalar_t>(args.inputs[i % kIn], places[i / kIn], vectorize);
      }
    }
  }

  // Computes the results. b(p, v) is an element's bias; take(p, v, result) gets its result
  // unrounded. Elements outside `places` are zeros, and so are their dx.
  template <typename Bias, typename Take>
  LLTM_JIT_DEVICE void compute(const BiasActArgs& args, const BiasActNumbers<T>& numbers,
                               const Bias& b, const Take& take) {
    with_act(args.op.act, [&](auto act) {
      LLTM_JIT_UNROLLED(i, kPacks * kVec) {
        const int p = i / kVec, v = i % kVec;
        T x[kIn];
        LLTM_JIT_UNROLLED(k, kIn) x[k] = T(to_opmath(in[p][k].values[v]));
        const auto y = plain(bias_act_step<pass, decltype(act)::value>(numbers, x, T(b(p, v))));
        out[p].values[v] = from_opmath<scalar_t>(y);
        take(p, v, y);
      }
    });
  }

  LLTM_JIT_DEVICE void store(const BiasActArgs& args, bool whole, bool vectorize) const {
    if (args.output == nullptr) return;
    auto* output = static_cast<scalar_t*>(args.output);
    LLTM_JIT_UNROLLED(p, kPacks) {
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
