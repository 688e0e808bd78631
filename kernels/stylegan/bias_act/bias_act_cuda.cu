// bias_act on the GPU: the forward pass and the second derivative, which are elementwise. Bound by
// memory: each thread has several loads of 16 bytes under way.
#include "core/cuda/elementwise_channels.cuh"
#include "stylegan/bias_act/bias_act_packs.cuh"

namespace lltm_jit {
namespace {

template <Pass pass, typename scalar_t>
__global__ void __launch_bounds__(kThreads)
    pass_kernel(BiasActArgs args, ChannelPlaces of_b, bool vectorize) {
  using Packs = PassPacks<pass, scalar_t>;
  constexpr int kVec = Packs::kVec, kPacks = Packs::kPacks;
  wait_for_predecessor();
  const BiasActNumbers<typename Packs::T> numbers(args.op);
  const int64_t of_block = int64_t(blockIdx.x) * (kPacks * kThreads);
  const bool whole = vectorize && (of_block + kPacks * kThreads) * kVec <= args.numel;
  Packs packs;
  opmath_t<scalar_t> b[kPacks][kVec] = {};
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int64_t first = (of_block + p * kThreads + threadIdx.x) * kVec;
    packs.places[p] = PackPlaces::within<kVec>(first, 0, args.numel);
  }
  packs.load(args, whole, vectorize);
  if (args.b) {
    const auto* values = static_cast<const scalar_t*>(args.b);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const PackPlaces& places = packs.places[p];
      if (places.count > 0) {
        load_channels<scalar_t, kVec>(of_b, values, places.first / kVec, b[p]);
      }
    }
  }
  packs.compute(
      args, numbers, [&](int p, int v) { return b[p][v]; }, [](int, int, opmath_t<scalar_t>) {});
  packs.store(args, whole, vectorize);
}

// See Note [Channels of a pack].
ChannelPlaces places_of_b(const BiasActArgs& args, int vec) {
  const int64_t packs = ceil_div(args.numel, vec);
  const auto places = [&](PackChannels kind, int64_t inner, int64_t channels, int64_t numbers) {
    return ChannelPlaces{kind, {inner, numbers}, {channels, numbers}};
  };
  if (!args.b) return places(PackChannels::kOne, 1, 1, packs);
  if (args.inner % vec == 0) {
    return places(PackChannels::kOne, args.inner / vec, args.channels, packs);
  }
  if (args.inner == 1 && args.channels % vec == 0 && aligned(kAccessBytes, args.b)) {
    return places(PackChannels::kNext, 1, args.channels / vec, packs);
  }
  return places(PackChannels::kCounted, args.inner, args.channels, packs * vec);
}

template <Pass pass>
cudaError_t launch_pass(const BiasActArgs& args, cudaStream_t stream) {
  return dispatch_floating(args.type, [&](auto scalar) {
    using scalar_t = decltype(scalar);
    constexpr int kVec = kVecOf<scalar_t>, kOfBlock = kVec * kPacksOf<pass, scalar_t> * kThreads;
    return launch(pass_kernel<pass, scalar_t>,
                  static_cast<unsigned>(ceil_div(args.numel, int64_t(kOfBlock))), kThreads, 0,
                  stream, args, places_of_b(args, kVec), aligned_to_packs(args));
  });
}

}  // namespace

cudaError_t launch_bias_act(const BiasActArgs& args, cudaStream_t stream) {
  switch (args.pass) {
    case Pass::Forward:
      return launch_pass<Pass::Forward>(args, stream);
    case Pass::Backward:
      return launch_bias_act_backward(args, stream);
    default:
      return launch_pass<Pass::Second>(args, stream);
  }
}

}  // namespace lltm_jit
