// bias_act on the CPU: one loop for each pass and element type. The activation is chosen anew for each
// vector, which costs less than the vector's way from memory.
#include <algorithm>

#include "core/cpu/channel_sum.h"
#include "core/cpu/elementwise.h"
#include "stylegan/bias_act/bias_act.h"

namespace lltm_jit {
namespace {

template <Pass pass, typename scalar_t>
void bias_act_loop(const BiasActArgs& args) {
  using Vec = at::vec::Vectorized<opmath_t<scalar_t>>;
  const BiasActNumbers<Vec> numbers(args.op);
  const auto* values = static_cast<const scalar_t*>(args.b);
  // Runs of elements whose channels are one (inner > 1) or each the next (inner == 1).
  const bool last = args.inner == 1;
  const int64_t length = !values ? args.numel : last ? args.channels : args.inner;
  const auto step = [&](int64_t first, int64_t n, const Vec& b) {
    Vec in[kInputsOf<pass>], out[kOutputsOf<pass>];
    for (int k = 0; k < kInputsOf<pass>; ++k) {
      in[k] = load(static_cast<const scalar_t*>(args.inputs[k]) + first, n);
    }
    with_act<pass != Pass::Second>(args.op.act, [&](auto act) {
      bias_act_step<pass, decltype(act)::value>(numbers, in, b, out);
    });
    for (int k = 0; k < kOutputsOf<pass>; ++k) {
      store(static_cast<scalar_t*>(args.outputs[k]) + first, out[k], n);
    }
  };
  at::parallel_for(0, args.numel, kElementwiseGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end;) {
      const int64_t place = i % length, run_end = std::min(end, i + length - place);
      const scalar_t* value =
          !values ? nullptr : values + (last ? place : i / length % args.channels);
      const Vec b = value && !last ? Vec(static_cast<opmath_t<scalar_t>>(*value)) : Vec(0);
      for (const int64_t run = i; i < run_end; i += Vec::size()) {
        const int64_t n = std::min<int64_t>(Vec::size(), run_end - i);
        step(i, n, value && last ? load(value + (i - run), n) : b);
      }
      i = run_end;
    }
  });
}

ChannelSumArgs sums_of(const BiasActArgs& args) {
  return {.x = args.outputs[0],
          .sums = args.sums,
          .parts = args.parts,
          .outer = args.outer,
          .channels = args.channels,
          .inner = args.inner,
          .type = args.type};
}

}  // namespace

int64_t sum_parts_numel_cpu(const BiasActArgs& args) {
  return channel_sum_parts(sums_of(args)) * args.channels;
}

void bias_act_cpu(const BiasActArgs& args) {
  dispatch_floating(args.type, [&](auto scalar) {
    using scalar_t = decltype(scalar);
    switch (args.pass) {
      case Pass::Forward:
        return bias_act_loop<Pass::Forward, scalar_t>(args);
      case Pass::Backward:
        bias_act_loop<Pass::Backward, scalar_t>(args);
        if (args.sums) channel_sum_as<scalar_t>(sums_of(args));
        return;
      case Pass::Second:
        return bias_act_loop<Pass::Second, scalar_t>(args);
    }
  });
}

}  // namespace lltm_jit
