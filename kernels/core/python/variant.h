// Kernels that are compiled when they are first needed, such as those for one size:
//
//   VariantTable<cudaError_t(const LstmArgs&, cudaStream_t), ElementType, int64_t> forward;
//   ...
//   auto* launch = forward.get({type, hidden_size}, [&] {
//     return VariantRequest{"rnn.lstm_sequence", "lstm_sequence_forward",
//                           {{"ELEMENT", "__half"}, {"HIDDEN", std::to_string(hidden_size)}},
//                           "float16, hidden 512"};
//   });
//
// Python has declared the kernel of this name (lltm_jit/jit/variants.py), and compiles it. If it is compiled
// for the GPU alone, a table of `const void` has the driver's handles, which cuLaunchKernelEx() takes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace lltm_jit {

// A variant to compile: a declared kernel, the C function wanted from it, the macros, and the variant's
// name in build messages. The requests `beside` it will be asked for soon, and compile at the same time.
struct VariantRequest {
  std::string kernel;
  std::string function;
  std::vector<std::pair<std::string, std::string>> constants;
  std::string label;
  std::vector<VariantRequest> beside = {};
};

// The function's address, or the kernel's handle. It takes the GIL, and throws Python's own
// exception if the variant does not build; it is null if the kernel is declared as optional and no
// compiler is found. Defined in core/python/variant_calls.h, which variant.cpp includes.
void* load_variant(const VariantRequest& request);

// The variants of one function that this library has loaded, by keys of a few numbers. Any number
// of threads may ask, with or without the GIL, and so may a forked child: a lookup takes no lock.
template <typename Function, typename... Parts>
class VariantTable {
 public:
  using Key = std::tuple<Parts...>;

  // The function for a key. If it is not loaded yet, `request()` describes it.
  template <typename Request>
  Function* get(const Key& key, const Request& request) {
    auto& newest = chain(key);
    for (const Entry* entry = newest.load(std::memory_order_acquire); entry != nullptr;
         entry = entry->next) {
      if (entry->key == key) return entry->function;
    }
    return add(newest, key, reinterpret_cast<Function*>(load_variant(request())));
  }

 private:
  struct Entry {
    Key key;
    Function* function;
    const Entry* next;
  };

  using Chain = std::atomic<const Entry*>;

  Chain& chain(const Key& key) {
    const auto hash = [](const auto&... parts) {
      uint64_t sum = 0;
      ((sum = 31 * sum + std::hash<std::decay_t<decltype(parts)>>()(parts)), ...);
      return sum;
    };
    // The upper bits of a product with the golden ratio, because sizes tend to be multiples of 64.
    return chains_[std::apply(hash, key) * 0x9E3779B97F4A7C15 >> 56];
  }

  // Two threads that ask at the same time may add the same function twice, which does no harm.
  static Function* add(Chain& newest, const Key& key, Function* function) {
    auto* entry = new Entry{key, function, newest.load(std::memory_order_relaxed)};
    while (!newest.compare_exchange_weak(entry->next, entry, std::memory_order_release)) {
    }
    return function;
  }

  // Entries live as long as the process, as the libraries do.
  std::array<Chain, 256> chains_{};
};

}  // namespace lltm_jit
