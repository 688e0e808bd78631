#include "parameter.h"

#include <torch/csrc/utils/pybind.h>

#include "core/elementwise/cpu.h"
#include "core/elementwise/host.h"

namespace lltm_jit {

template void elementwise_cpu(const ElementwiseArgs<LeakyRelu>&);

namespace {

at::Tensor leaky_relu(const at::Tensor& x, double slope) {
  return elementwise(LeakyRelu{slope}, {x})[0];
}

}  // namespace
}  // namespace lltm_jit

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("leaky_relu", &lltm_jit::leaky_relu); }
