// Device guards, allocation on a tensor's device, and the choice between the CPU and CUDA.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/SymIntArrayRef.h>

#include "core/launch/api.h"
#ifdef __linux__
#include <sys/mman.h>
#endif
#ifdef LLTM_JIT_CUDA
#include <ATen/cuda/EmptyTensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace lltm_jit {

// Every kernel opens with it: it makes the tensor's device current, and keeps autograd and autocast
// out of the kernel's ATen calls.
struct KernelGuard {
  explicit KernelGuard(const at::Tensor& tensor) : device(tensor.device()) {
#ifndef LLTM_JIT_CUDA
    TORCH_CHECK(!tensor.is_cuda(),
                "expected a tensor on the CPU because this extension was compiled ",
                "without -DWITH_CUDA, but got one on ", tensor.device());
#endif
  }
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
  c10::DeviceGuard device;
};

// Gives a large array pages of 2 MiB, if the system lets programs choose. An array of this size returns to the
// system when it is freed, so the next one has new pages, whose first use may take longer than the computation.
inline void prefer_large_pages(const at::Tensor& tensor) {
#ifdef MADV_HUGEPAGE
  constexpr uintptr_t kPage = 1 << 12, kLarge = 1 << 23;
  if (tensor.nbytes() < kLarge) return;
  const auto begin = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  const uintptr_t first = (begin + kPage - 1) & ~(kPage - 1);
  madvise(reinterpret_cast<void*>(first), begin + tensor.nbytes() - first, MADV_HUGEPAGE);
#endif
}

// A dense tensor on the device of `like`, inside a KernelGuard. Unlike at::empty it avoids the
// dispatcher, whose time counts for a small operator.
inline at::Tensor empty(c10::SymIntArrayRef sizes, const at::Tensor& like, at::ScalarType dtype,
                        at::MemoryFormat format = at::MemoryFormat::Contiguous) {
  if (like.is_meta()) {
    return at::detail::empty_symint_meta(sizes, dtype, std::nullopt, std::nullopt, std::nullopt,
                                         format);
  }
  const auto known_sizes = C10_AS_INTARRAYREF_SLOW(sizes);
#ifdef LLTM_JIT_CUDA
  if (like.is_cuda()) return at::detail::empty_cuda(known_sizes, dtype, like.device(), format);
#endif
  const at::Tensor result = at::detail::empty_cpu(known_sizes, dtype, /*pin_memory=*/false, format);
  prefer_large_pages(result);
  return result;
}
inline at::Tensor empty(c10::SymIntArrayRef sizes, const at::Tensor& like,
                        at::MemoryFormat format = at::MemoryFormat::Contiguous) {
  return empty(sizes, like, like.scalar_type(), format);
}

// Dense tensors and raw pointers, of tensors that may be absent.
inline std::optional<at::Tensor> dense(const std::optional<at::Tensor>& tensor) {
  return tensor ? std::optional(tensor->contiguous()) : std::nullopt;
}
inline const void* data_or_null(const std::optional<at::Tensor>& tensor) {
  return tensor ? tensor->const_data_ptr() : nullptr;
}
inline void* data_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr() : nullptr;
}

// Runs `cpu(args)` for a tensor on the CPU, and enqueues `cuda(args, stream)` for one on a GPU.
#ifdef LLTM_JIT_CUDA
template <typename Args>
void run(const at::Tensor& tensor, const Args& args, void (*cpu)(const Args&),
         cudaError_t (*cuda)(const Args&, cudaStream_t)) {
  if (tensor.is_cuda()) {
    C10_CUDA_CHECK(cuda(args, c10::cuda::getCurrentCUDAStream()));
  } else {
    cpu(args);
  }
}
#define LLTM_JIT_RUN(tensor, args, cpu, cuda) run(tensor, args, cpu, cuda)
#else
#define LLTM_JIT_RUN(tensor, args, cpu, cuda) cpu(args)
#endif

}  // namespace lltm_jit
