// at::parallel_for is an OpenMP loop in a header: it has threads only if the compiler has OpenMP.
#pragma once

#if defined(_OPENMP) && !__has_include(<omp.h>)
#undef _OPENMP  // the compiler lacks OpenMP's header: use one thread
#endif
#include <ATen/Parallel.h>
#include <c10/macros/Macros.h>

#include <atomic>

namespace lltm_jit {

// Calls function(task) for every task, in order. A thread takes the next task when it has finished
// one, so tasks may differ in size. There is at most one thread for every `grain` tasks.
template <typename Function>
void for_each_task(int64_t tasks, int64_t grain, const Function& function) {
  std::atomic<int64_t> next{0};
  // Not inline: at::parallel_for calls this from two places, and it contains all the work.
  at::parallel_for(0, tasks, grain, [&](int64_t, int64_t) C10_NOINLINE {
    for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) {
      function(task);
    }
  });
}

}  // namespace lltm_jit
