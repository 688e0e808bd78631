// Autocast for operators that take part in it. Only definitions.h includes torch's headers for it.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace lltm_jit {

// Casts tensors as autocast would on the device of the given tensor, or not at all if it is off.
class Autocast {
 public:
  explicit Autocast(const at::Tensor& tensor);
  at::Tensor operator()(const at::Tensor& tensor) const;
  std::optional<at::Tensor> operator()(const std::optional<at::Tensor>& tensor) const {
    return tensor ? std::optional<at::Tensor>((*this)(*tensor)) : tensor;
  }

 private:
  c10::DeviceType device_;
  std::optional<at::ScalarType> dtype_;  // absent if autocast is off
};

}  // namespace lltm_jit
