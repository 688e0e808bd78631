// bias_act on the CPU. Each pass and activation has a loop, over float or double, through blocks of
// elements that fit into the first-level cache. Blocks of 16-bit elements are widened before the
// loop and rounded after it.

// Nothing here reads floating-point exception flags. If something could, g++ would not vectorise a
// choice between two results. The pragma comes before all headers, because functions inlined from
// them must have the same options.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif

#include <algorithm>
#include <vector>

#include "core/channel_sum/cpu.h"
#include "core/elementwise/cpu.h"
#include "stylegan/bias_act/cpu/lane.h"
#include "stylegan/bias_act/kernels.h"

namespace lltm_jit {
namespace {

constexpr int64_t kBlock = 512;

// Computes one block of a pass; b has a value for each element.
template <Pass pass, Act act, typename T>
void compute_block(const BiasActNumbers<Lane<T>> numbers, const T* const (&inputs)[2], const T* b,
                   T* output, int64_t n) {
  const T* __restrict in0 = inputs[0], * __restrict in1 = inputs[1];
  const T* __restrict values = b;
  T* __restrict out = output;
  for (int64_t i = 0; i < n; ++i) {
    Lane<T> in[kInputsOf<pass>];
    in[0] = Lane<T>(in0[i]);
    if constexpr (kInputsOf<pass> > 1) in[1] = Lane<T>(in1[i]);
    out[i] = bias_act_step<pass, act>(numbers, in, Lane<T>(values[i])).value;
  }
}

// The bias in the form that blocks need. The pattern of channels repeats after `length` elements. A
// short pattern is stored several times, so that a block can have its full length. Where channels
// have long runs, `length` is that of a run, and a block has one channel.
template <typename T>
struct BiasPattern {
  std::vector<T> values;
  int64_t length;
  bool runs;

  template <typename scalar_t>
  BiasPattern(const BiasActArgs& args, const scalar_t* b) : length(kBlock), runs(false) {
    if (!b) {
      values.assign(kBlock, T(0));
      return;
    }
    runs = args.inner > 1 && (args.inner >= kBlock || args.outer < 4);
    const int64_t inner = runs ? 1 : args.inner, pattern = args.channels * inner;
    const int64_t copies = runs ? 1 : ceil_div(std::min(kBlock, args.numel), pattern);
    values.resize(pattern * copies);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<T>(b[static_cast<int64_t>(i) / inner % args.channels]);
    }
    length = runs ? args.inner : pattern * copies;
  }
};

template <Pass pass, typename scalar_t>
void bias_act_loop(const BiasActArgs& args) {
  using T = opmath_t<scalar_t>;
  constexpr bool kSame = std::is_same_v<T, scalar_t>;
  const BiasActNumbers<Lane<T>> numbers(args.op);
  const BiasPattern<T> bias(args, static_cast<const scalar_t*>(args.b));
  const auto block = [&](int64_t first, int64_t n, const T* b) {
    T room[kSame ? 1 : 3][kSame ? 1 : kBlock];
    const T* in[2] = {};
    auto* target = static_cast<scalar_t*>(args.output) + first;
    T* out;
    for (int k = 0; k < kInputsOf<pass>; ++k) {
      const auto* source = static_cast<const scalar_t*>(args.inputs[k]) + first;
      if constexpr (kSame) {
        in[k] = source;
      } else {
        convert(source, n, room[k]);
        in[k] = room[k];
      }
    }
    if constexpr (kSame) {
      out = target;
    } else {
      out = room[2];
    }
    with_act(args.op.act, [&](auto act) {
      compute_block<pass, decltype(act)::value, T>(numbers, in, b, out, n);
    });
    if constexpr (!kSame) convert(room[2], n, target);
  };
  at::parallel_for(0, args.numel, kElementwiseGrain, [&](int64_t begin, int64_t end) {
    T of_run[kBlock];
    for (int64_t i = begin, n; i < end; i += n) {
      const int64_t place = i % bias.length;
      n = std::min({kBlock, end - i, bias.length - place});
      if (bias.runs && (place == 0 || i == begin)) {
        std::fill_n(of_run, std::min(kBlock, bias.length),
                    bias.values[i / bias.length % args.channels]);
      }
      block(i, n, bias.runs ? of_run : bias.values.data() + place);
    }
  });
}

ChannelSumArgs sums_of(const BiasActArgs& args) {
  return {.x = args.output,
          .sums = args.sums,
          .parts = args.parts,
          .outer = args.outer,
          .channels = args.channels,
          .inner = args.inner};
}

}  // namespace

int64_t sum_parts_numel_cpu(const BiasActArgs& args) {
  return channel_sum_parts(sums_of(args)) * args.channels;
}

void bias_act_cpu(const BiasActArgs& args) {
  dispatch_floating(args.type, [&](auto scalar) {
    using scalar_t = decltype(scalar);
    if (args.pass == Pass::Forward) return bias_act_loop<Pass::Forward, scalar_t>(args);
    bias_act_loop<Pass::Backward, scalar_t>(args);
    if (args.sums) channel_sum_as<scalar_t>(sums_of(args));
  });
}

}  // namespace lltm_jit
