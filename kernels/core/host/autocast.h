// Autocast for operators that take part in it, whose headers only definitions.h includes.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace lltm_jit {

// Casts tensors as autocast does on the device of one; leaves them where it is off.
class Autocast {
 public:
  explicit Autocast(const at::Tensor& tensor);
  at::Tensor operator()(const at::Tensor& tensor) const;

 private:
  c10::DeviceType device_;
  std::optional<at::ScalarType> dtype_;  // none where autocast is off
};

}  // namespace lltm_jit
