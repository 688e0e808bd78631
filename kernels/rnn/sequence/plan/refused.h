// The kernels of all steps whose launch a device has refused, so that their plans are not tried again.
#pragma once

#include <mutex>
#include <set>
#include <utility>

namespace lltm_jit {

class RefusedKernels {
 public:
  bool has(int device, const void* kernel) {
    const std::lock_guard lock(mutex_);
    return kernels_.count({device, kernel}) > 0;
  }
  void add(int device, const void* kernel) {
    const std::lock_guard lock(mutex_);
    kernels_.insert({device, kernel});
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    kernels_.clear();
  }

 private:
  std::mutex mutex_;
  std::set<std::pair<int, const void*>> kernels_;
};

}  // namespace lltm_jit
