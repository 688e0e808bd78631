// bias_act on the GPU: the forward pass and the second derivative.
#include "stylegan/bias_act/cuda/forward.cuh"
#include "stylegan/bias_act/cuda/passes.cuh"

namespace lltm_jit {
cudaError_t launch_bias_act(const BiasActArgs& args, cudaStream_t stream) {
  switch (args.pass) {
    case Pass::Forward:
      return dispatch_floating(
          args.type, [&](auto scalar) { return launch_forward<decltype(scalar)>(args, stream); });
    case Pass::Backward:
      return launch_bias_act_backward(args, stream);
    default:
      return dispatch_floating(args.type, [&](auto scalar) {
        using scalar_t = decltype(scalar);
        const auto plan = pass_plan<Pass::Second, scalar_t>(args);
        return launch_pass<Pass::Second, scalar_t>(args, plan, stream);
      });
  }
}

}  // namespace lltm_jit
