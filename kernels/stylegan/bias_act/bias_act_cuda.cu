// bias_act on the GPU: the forward pass and the second derivative.
#include "stylegan/bias_act/bias_act_passes.cuh"

namespace lltm_jit {
namespace {

template <Pass pass>
cudaError_t launch_of(const BiasActArgs& args, cudaStream_t stream) {
  return dispatch_floating(args.type, [&](auto scalar) {
    using scalar_t = decltype(scalar);
    return launch_pass<pass, scalar_t>(args, pass_plan<pass, scalar_t>(args), stream);
  });
}

}  // namespace

cudaError_t launch_bias_act(const BiasActArgs& args, cudaStream_t stream) {
  switch (args.pass) {
    case Pass::Forward:
      return launch_of<Pass::Forward>(args, stream);
    case Pass::Backward:
      return launch_bias_act_backward(args, stream);
    default:
      return launch_of<Pass::Second>(args, stream);
  }
}

}  // namespace lltm_jit
