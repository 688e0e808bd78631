// Autocast for operators that take part in it.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

// ATen/autocast_mode.h declares these, but includes all operators of torch.
namespace at::autocast {
TORCH_API bool is_autocast_enabled(at::DeviceType device);
TORCH_API at::ScalarType get_autocast_dtype(at::DeviceType device);
TORCH_API at::Tensor cached_cast(at::ScalarType dtype, const at::Tensor& tensor,
                                 at::DeviceType device);
}  // namespace at::autocast

namespace lltm_jit {

// Casts tensors as autocast would on the device of the given tensor, or not at all if it is off.
class Autocast {
 public:
  // Autocast acts on the devices for which an operator has an autocast function.
  explicit Autocast(const at::Tensor& tensor)
      : device_(tensor.defined() ? tensor.device().type() : c10::DeviceType::Meta) {
    const bool registered = device_ == c10::DeviceType::CPU || device_ == c10::DeviceType::CUDA;
    if (registered && at::autocast::is_autocast_enabled(device_)) {
      dtype_ = at::autocast::get_autocast_dtype(device_);
    }
  }
  at::Tensor operator()(const at::Tensor& tensor) const {
    return dtype_ ? at::autocast::cached_cast(*dtype_, tensor, device_) : tensor;
  }
  std::optional<at::Tensor> operator()(const std::optional<at::Tensor>& tensor) const {
    return tensor ? std::optional<at::Tensor>((*this)(*tensor)) : tensor;
  }

 private:
  c10::DeviceType device_;
  std::optional<at::ScalarType> dtype_;  // absent if autocast is off
};

}  // namespace lltm_jit
