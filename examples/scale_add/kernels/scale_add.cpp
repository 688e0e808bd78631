// scale_add: checks, allocation, the CPU's loop, and the Python module.
#include "scale_add.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/utils/pybind.h>

#ifdef WITH_CUDA
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace scale_add {
namespace {

constexpr int64_t kGrain = 1 << 15;  // elements a thread; less is not worth waking one

void check(const at::Tensor& x, const at::Tensor& y) {
  const auto type = x.scalar_type();
  TORCH_CHECK(type == at::kFloat || type == at::kDouble,
              "scale_add(): expected x to be float or double, but got ", type);
  TORCH_CHECK(y.scalar_type() == type, "scale_add(): expected y to have the dtype of x (", type,
              "), but got ", y.scalar_type());
  TORCH_CHECK(y.device() == x.device(), "scale_add(): expected y to be on the device of x (",
              x.device(), "), but got ", y.device());
  TORCH_CHECK(y.sizes() == x.sizes(), "scale_add(): expected y to have the shape of x ", x.sizes(),
              ", but got ", y.sizes());
}

template <typename T>
void run_on_cpu(const Arguments<T>& args) {
  at::parallel_for(0, args.numel, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) args.z[i] = args.a * args.x[i] + args.y[i];
  });
}

template <typename T>
void run(const at::Tensor& x, const at::Tensor& y, double a, at::Tensor& z) {
  const Arguments<T> args{x.const_data_ptr<T>(), y.const_data_ptr<T>(), z.mutable_data_ptr<T>(),
                          static_cast<T>(a), z.numel()};
#ifdef WITH_CUDA
  if (x.is_cuda()) {
    const c10::cuda::CUDAGuard guard(x.device());
    C10_CUDA_CHECK(launch(args, c10::cuda::getCurrentCUDAStream()));
    return;
  }
#endif
  TORCH_CHECK(x.is_cpu(), "scale_add(): expected x on the CPU or, in a build with CUDA, on a GPU, ",
              "but got ", x.device());
  run_on_cpu(args);
}

at::Tensor forward(const at::Tensor& x_any_layout, const at::Tensor& y_any_layout, double a) {
  check(x_any_layout, y_any_layout);
  const at::Tensor x = x_any_layout.contiguous(), y = y_any_layout.contiguous();
  at::Tensor z = at::empty_like(x);
  if (z.numel() == 0) return z;
  if (x.scalar_type() == at::kFloat) {
    run<float>(x, y, a, z);
  } else {
    run<double>(x, y, a, z);
  }
  return z;
}

}  // namespace
}  // namespace scale_add

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &scale_add::forward, pybind11::call_guard<pybind11::gil_scoped_release>());
}
