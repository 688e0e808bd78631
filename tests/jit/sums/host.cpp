// Calls variants of sums.cpp and sums_cuda.cu on addresses, as an operator's host code would.
#include <chrono>
#include <cstdint>
#include <exception>
#include <thread>

#include "core/python/variant_calls.h"

namespace {

using Sums = int(const void* x, void* y, long count, void* stream);

lltm_jit::VariantTable<Sums, std::string, std::string, int64_t> table;

Sums* find(const std::string& kernel, const std::string& element, int64_t size) {
  return table.get({kernel, element, size}, [&] {
    return lltm_jit::VariantRequest{kernel,
                                    "sums",
                                    {{"ELEMENT", element}, {"SIZE", std::to_string(size)}},
                                    element + ", size " + std::to_string(size)};
  });
}

int sums(const std::string& kernel, const std::string& element, int64_t size, intptr_t x,
         intptr_t y, long count, intptr_t stream) {
  return find(kernel, element, size)(reinterpret_cast<const void*>(x), reinterpret_cast<void*>(y),
                                     count, reinterpret_cast<void*>(stream));
}

// The same from a thread that Python does not know, as those of a backward pass are.
int sums_elsewhere(const std::string& kernel, const std::string& element, int64_t size, intptr_t x,
                   intptr_t y, long count, intptr_t stream) {
  int result = 0;
  std::exception_ptr error;
  std::thread([&] {
    try {
      result = sums(kernel, element, size, x, y, count, stream);
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
  return result;
}

int nothing(const void*, void*, long, void*) { return 0; }
Sums* volatile linked = nothing;

lltm_jit::VariantTable<Sums, int64_t> many;

// Nanoseconds by which a call through a table of `variants` takes longer than a linked function's.
double overhead(const std::string& kernel, int64_t variants, int64_t calls) {
  using Clock = std::chrono::steady_clock;
  for (int64_t i = 0; i < variants; ++i) {
    many.get({i}, [&] {
      return lltm_jit::VariantRequest{
          kernel, "sums", {{"ELEMENT", "float"}, {"SIZE", "1"}}, "float, size 1"};
    });
  }
  const auto never = [] { return lltm_jit::VariantRequest{}; };
  const auto began = Clock::now();
  for (int64_t i = 0; i < calls; ++i) linked(nullptr, nullptr, 0, nullptr);
  const auto middle = Clock::now();
  for (int64_t i = 0; i < calls; ++i) many.get({0}, never)(nullptr, nullptr, 0, nullptr);
  const std::chrono::duration<double, std::nano> plain = middle - began;
  const std::chrono::duration<double, std::nano> looked_up = Clock::now() - middle;
  return (looked_up - plain).count() / calls;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using NoGil = pybind11::call_guard<pybind11::gil_scoped_release>;
  m.def("sums", sums);
  m.def("sums_elsewhere", sums_elsewhere, NoGil());
  m.def("overhead", overhead);
}
