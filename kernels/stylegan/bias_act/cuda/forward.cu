// The CUDA kernel of bias_act's forward pass. Memory bounds its speed, so a block ends after two
// packs per thread: the other blocks of the SM, which holds six, load while it computes. Blocks
// that took several steps, and waited for the loads of each, were slower.
#include "core/launch/fast_divide.cuh"
#include "stylegan/bias_act/cuda/packs.cuh"

namespace lltm_jit {
namespace {

// Note [Channels of a pack]
// A thread reads neighbouring elements together, and finds the channel of the first with two
// divisions. If `inner` is a multiple of a pack, the others have the same channel. If inner is 1
// and the channels are a multiple of a pack, the others have the next channels, whose biases are
// one access. Otherwise a counter follows the channel from element to element.
enum class PackChannels { kOne, kNext, kCounted };

struct ChannelPlaces {
  PackChannels kind;
  Divisor inner, channels;  // in packs unless the kind is kCounted

  // The channels of packs of `vec` elements; `values` has a number per channel.
  static ChannelPlaces of_packs(int vec, int64_t packs, int64_t inner, int64_t channels,
                                const void* values) {
    if (inner % vec == 0) return {PackChannels::kOne, {inner / vec, packs}, {channels, packs}};
    if (inner == 1 && channels % vec == 0 && aligned(kAccessBytes, values)) {
      return {PackChannels::kNext, {1, packs}, {channels / vec, packs}};
    }
    return {PackChannels::kCounted, {inner, packs * vec}, {channels, packs * vec}};
  }
};

template <typename scalar_t, int kVec>
LLTM_JIT_DEVICE void load_channels(const ChannelPlaces& places, const scalar_t* values,
                                   int64_t pack, opmath_t<scalar_t> (&channel)[kVec]) {
  int64_t place = places.kind == PackChannels::kCounted ? pack * kVec : pack;
  int64_t run = places.inner.divide(place);
  if (places.kind == PackChannels::kNext) {
    places.channels.divide(run);
    load_pack<kVec>(values + run * kVec, channel);
    return;
  }
  places.channels.divide(run);
  LLTM_JIT_UNROLLED(v, kVec) {
    channel[v] = to_opmath(values[run]);
    if (places.kind == PackChannels::kOne) continue;
    if (++place == places.inner.divisor) {
      place = 0;
      if (++run == places.channels.divisor) run = 0;
    }
  }
}

// The biases of a thread's packs: kOne has one number (or none) per pack, kSame the same numbers
// for all packs, kAny any. kAny counts packs in 64 bits.
enum class PackBias { kOne, kSame, kAny };

template <typename scalar_t, PackBias kind>
LLTM_JIT_DEVICE void load_bias(
    const ChannelPlaces& channels, const scalar_t* values, int64_t base,
    opmath_t<scalar_t> (&b)[kPacksOf<scalar_t>][kind == PackBias::kOne ? 1 : kVecOf<scalar_t>]) {
  constexpr int kVec = kVecOf<scalar_t>, kPacks = kPacksOf<scalar_t>;
  if constexpr (kind == PackBias::kSame) {
    load_pack<kVec>(values + threadIdx.x % channels.channels.fast.divisor * kVec, b[0]);
    LLTM_JIT_UNROLLED(v, kVec * (kPacks - 1)) b[v / kVec + 1][v % kVec] = b[0][v % kVec];
  } else {
    LLTM_JIT_UNROLLED(p, kPacks) {
      const int64_t pack = base + p * kThreads + threadIdx.x;
      if constexpr (kind == PackBias::kOne) {
        const uint32_t run = channels.inner.fast.divide(static_cast<uint32_t>(pack));
        const uint32_t round = channels.channels.fast.divide(run);
        b[p][0] = to_opmath(values[run - round * channels.channels.fast.divisor]);
      } else {
        load_channels<scalar_t, kVec>(channels, values, pack, b[p]);
      }
    }
  }
}

// The fewest blocks that an SM should hold. SMs before 8.0 hold at most 1024 threads.
#if __CUDA_ARCH__ >= 800
template <PackBias kind>
constexpr int kForwardBlocks = kind == PackBias::kOne    ? 6
                               : kind == PackBias::kSame ? 5
                                                         : 4;
#else
template <PackBias>
constexpr int kForwardBlocks = 4;
#endif

template <typename scalar_t, PackBias kind>
__global__ void __launch_bounds__(kThreads, kForwardBlocks<kind>)
    forward_kernel(BiasActArgs args, ChannelPlaces channels, bool vectorize) {
  using Packs = PassPacks<Pass::Forward, scalar_t>;
  using opmath = opmath_t<scalar_t>;
  using Index = std::conditional_t<kind == PackBias::kAny, int64_t, uint32_t>;
  constexpr int kVec = Packs::kVec, kPacks = Packs::kPacks, kOfBlock = kThreads * kPacks;
  wait_for_predecessor();
  const BiasActNumbers<typename Packs::T> numbers(args.op);
  const Index base = static_cast<Index>(blockIdx.x) * kOfBlock;
  const bool whole = vectorize && (static_cast<int64_t>(base) + kOfBlock) * kVec <= args.numel;
  Packs packs;
  LLTM_JIT_UNROLLED(p, kPacks) {
    packs.places[p] = {static_cast<int64_t>(base + p * kThreads + threadIdx.x) * kVec, kVec};
  }
  if (!whole) {
    LLTM_JIT_UNROLLED(p, kPacks) {
      const int64_t left = max(args.numel - packs.places[p].first, int64_t(0));
      packs.places[p].count = static_cast<int>(min(left, int64_t(kVec)));
    }
  }
  packs.load(args, whole, vectorize);
  constexpr int kBiases = kind == PackBias::kOne ? 1 : kVec;
  opmath b[kPacks][kBiases] = {};
  if (args.b) {
    load_bias<scalar_t, kind>(channels, static_cast<const scalar_t*>(args.b), base, b);
  }
  packs.compute(
      args, numbers, [&](int p, int v) { return b[p][v % kBiases]; }, [](int, int, opmath) {});
  LLTM_JIT_UNROLLED(p, kPacks) limit_pack(packs.out[p], numbers.clamp);
  packs.store(args, whole, vectorize);
}

template <typename scalar_t>
cudaError_t launch_forward(const BiasActArgs& args, cudaStream_t stream) {
  constexpr int kVec = kVecOf<scalar_t>, kPacks = kPacksOf<scalar_t>;
  const int64_t packs = ceil_div(args.numel, int64_t(kVec)), inner = args.b ? args.inner : kVec;
  const auto channels = ChannelPlaces::of_packs(kVec, packs, inner, args.channels, args.b);
  const auto run = [&](auto* kernel) {
    const auto blocks = static_cast<unsigned>(ceil_div(packs, int64_t(kThreads * kPacks)));
    return launch(kernel, blocks, kThreads, 0, stream, args, channels, aligned_to_packs(args));
  };
  const bool few = packs < (int64_t(1) << 31) - kThreads * kPacks;
  if (few && channels.kind == PackChannels::kOne)
    return run(forward_kernel<scalar_t, PackBias::kOne>);
  if constexpr (kVec > 1) {
    const bool same =
        channels.kind == PackChannels::kNext && kThreads % channels.channels.divisor == 0;
    if (few && same) return run(forward_kernel<scalar_t, PackBias::kSame>);
  }
  return run(forward_kernel<scalar_t, PackBias::kAny>);
}

}  // namespace

cudaError_t launch_bias_act(const BiasActArgs& args, cudaStream_t stream) {
  if (args.pass == Pass::Backward) return launch_bias_act_backward(args, stream);
  return dispatch_floating(
      args.type, [&](auto scalar) { return launch_forward<decltype(scalar)>(args, stream); });
}

}  // namespace lltm_jit
