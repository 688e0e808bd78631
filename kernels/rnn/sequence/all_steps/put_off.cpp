#include "rnn/sequence/all_steps/put_off.h"

#include <algorithm>
#include <array>
#include <utility>

#ifdef LLTM_JIT_CUDA
#include <c10/cuda/CUDAGuard.h>

#include "rnn/sequence/plan/launch.h"
#endif

namespace lltm_jit {
namespace {

using at::Tensor;

struct OfThread {
  std::shared_ptr<PutOff> taken;
  bool room = false;
  std::vector<std::weak_ptr<PutOff>> waiting;
};
thread_local OfThread of_thread;

// The stream includes its device, because the default streams of all devices have the same number.
std::optional<c10::Stream> current_stream() {
#ifdef LLTM_JIT_CUDA
  return c10::cuda::getCurrentCUDAStream().unwrap();
#else
  return std::nullopt;
#endif
}

#ifdef LLTM_JIT_CUDA
// Each thread and device has one such stream, and another one for graphs: the library keeps memory
// for each stream, and during a capture that memory belongs to the graph.
c10::cuda::CUDAStream stream_beside(c10::cuda::CUDAStream stream) {
  using Streams = std::array<std::optional<c10::cuda::CUDAStream>, 2>;
  static thread_local std::vector<Streams> all;
  const c10::DeviceIndex device = stream.device_index();
  if (all.size() <= size_t(device)) all.resize(device + 1);
  cudaStreamCaptureStatus status{};
  C10_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
  auto& beside = all[device][status != cudaStreamCaptureStatusNone];
  while (!beside || *beside == stream) {
    beside = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device);
  }
  return *beside;
}

// Makes work that is launched on `later` from now on wait for the work on `earlier`.
void put_after(cudaStream_t later, cudaStream_t earlier) {
  cudaEvent_t event = nullptr;
  C10_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  C10_CUDA_CHECK(cudaEventRecord(event, earlier));
  C10_CUDA_CHECK(cudaStreamWaitEvent(later, event, 0));
  C10_CUDA_CHECK(cudaEventDestroy(event));
}
#endif

}  // namespace

void PutOff::add(std::function<void()> product) {
  if (products.empty()) of_thread.waiting.push_back(weak_from_this());
  stream = current_stream();
  products.push_back(std::move(product));
}

void PutOff::finish() {
  for (auto& product : std::exchange(products, {})) product();
}

Later Later::after_sequence(const Tensor& tensor) {
  if (!tensor.is_cuda() || !untransformed(tensor)) return {};
  const auto number =
      number_before(tensor, "RecurrentSequenceBackward",
                    {"InputGatesBackward", "NativeDropoutBackward0", "CatBackward0"});
  if (!number || *number == 0) return {};
  return {std::make_shared<PutOff>(), *number - 1};
}

Tensor Later::behind(const Tensor& weights) const {
  if (!put_off || !weights.defined() || !weights.requires_grad() || !untransformed(weights)) {
    return weights;
  }
  const auto gradients = [put_off = put_off](const BackwardPass& pass) {
    const KernelGuard guard(pass.grads[0]);
    put_off->finish();
    return pass.grads;
  };
  const Tensor alias = weights.detach();
  record({"WeightsLater", gradients, number}, {weights}, {alias});
  return alias;
}

PuttingOff::PuttingOff(const std::shared_ptr<PutOff>& put_off, const BackwardPass& pass) {
  if (!put_off || c10::GradMode::is_enabled() || pass.watched) return;
  const auto usual = [](const Tensor& t) { return !t.defined() || untransformed(t); };
  const bool all = std::all_of(pass.grads.begin(), pass.grads.end(), usual);
  if (all && std::all_of(pass.saved.begin(), pass.saved.end(), usual)) of_thread.taken = put_off;
}
PuttingOff::~PuttingOff() { of_thread.taken.reset(); }

std::shared_ptr<PutOff> take_put_off() { return std::exchange(of_thread.taken, nullptr); }
bool& sequence_left_room() { return of_thread.room; }

bool launch_beside(const std::function<bool()>& launch) {
  std::vector<std::shared_ptr<PutOff>> ready;
  for (const auto& each : std::exchange(of_thread.waiting, {})) {
    auto put_off = each.lock();
    const bool here = put_off && put_off->stream == current_stream();
    if (here && !put_off->products.empty()) ready.push_back(std::move(put_off));
  }
#ifdef LLTM_JIT_CUDA
  if (ready.empty()) return launch();
  const auto stream = c10::cuda::getCurrentCUDAStream(), beside = stream_beside(stream);
  put_after(beside, stream);
  const bool launched = launch();
  {
    const c10::cuda::CUDAStreamGuard guard(beside);
    C10_CUDA_CHECK(launch_pause(beside));
    for (const auto& each : ready) each->finish();
  }
  put_after(stream, beside);
  return launched;
#else
  return launch();
#endif
}

}  // namespace lltm_jit
