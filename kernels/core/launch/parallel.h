// at::parallel_for is an OpenMP loop in a header: it has threads only if the compiler has OpenMP.
#pragma once

#if defined(_OPENMP) && !__has_include(<omp.h>)
#undef _OPENMP  // the compiler lacks OpenMP's header: use one thread
#endif
#include <ATen/Parallel.h>
#include <c10/macros/Macros.h>
#include <c10/util/FunctionRef.h>

#include <atomic>

namespace lltm_jit {

// Calls function(task) for every task, in order. A thread takes the next task when it has finished
// one, so tasks may differ in size. There is at most one thread for every `grain` tasks.
inline C10_NOINLINE void for_each_task(int64_t tasks, int64_t grain,
                                       c10::function_ref<void(int64_t)> function) {
  std::atomic<int64_t> next{0};
  at::parallel_for(0, tasks, grain, [&](int64_t, int64_t) {
    for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) {
      function(task);
    }
  });
}

}  // namespace lltm_jit
