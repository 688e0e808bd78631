// at::parallel_for, which is a header's OpenMP loop: it has threads only where the compiler has OpenMP.
#pragma once

#if defined(_OPENMP) && !__has_include(<omp.h>)
#undef _OPENMP  // a compiler that was installed without its OpenMP header: one thread
#endif
#include <ATen/Parallel.h>
#include <c10/macros/Macros.h>

#include <atomic>

namespace lltm_jit {

// Calls function(task) for every task, the first ones first. Each thread takes the next task when it
// is done with one, so that tasks need not be equal; at most one thread for every `grain` of them.
template <typename Function>
void for_each_task(int64_t tasks, int64_t grain, const Function& function) {
  std::atomic<int64_t> next{0};
  // Not inline: at::parallel_for calls it from two places, and this is all of the work.
  at::parallel_for(0, tasks, grain, [&](int64_t, int64_t) C10_NOINLINE {
    for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) {
      function(task);
    }
  });
}

}  // namespace lltm_jit
