// Arrays that begin at a cache line.
//
// Note [Kept memory]
// Every call needs the same arrays. malloc returns large ones to the system, so the next call gets
// new pages, which took five sixths of the time of a single step of a recurrent layer. So each
// thread keeps its freed arrays, up to KeptMemory::kMost bytes, for its next ones. Tools that check
// memory do not see where such an array ends, so a guard behind it is compared when it is freed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

namespace lltm_jit {

class KeptMemory {
 public:
  struct Block {
    static constexpr uint64_t kGuard = 0x9e3779b97f4a7c15;

    void* data;
    size_t bytes;  // without the room for a guard, which is behind those that are used

    void guard(size_t used) const { std::memcpy(end(used), &kGuard, sizeof kGuard); }
    void check(size_t used) const {
      if (std::memcmp(end(used), &kGuard, sizeof kGuard) == 0) return;
      std::fputs("lltm_jit: a kernel wrote past the end of an array\n", stderr);
      std::abort();
    }
    char* end(size_t used) const { return static_cast<char*>(data) + used; }
  };

  static KeptMemory& of_this_thread() {
    thread_local KeptMemory kept;
    return kept;
  }
  KeptMemory() = default;
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;
  ~KeptMemory() { free_beyond(0); }

  // The smallest kept block that is large enough, if at most half of it stays unused; else a new block.
  [[gnu::noinline]] Block take(size_t bytes) {
    const auto unfit = [&](const Block& b) { return b.bytes < bytes || b.bytes / 2 > bytes; };
    auto best = blocks_.end();
    for (auto block = blocks_.begin(); block != blocks_.end(); ++block) {
      if (!unfit(*block) && (best == blocks_.end() || block->bytes < best->bytes)) best = block;
    }
    if (best == blocks_.end()) {
      return {::operator new(bytes + sizeof Block::kGuard, kAlignment), bytes};
    }
    const Block found = *best;
    blocks_.erase(best);
    bytes_ -= found.bytes;
    return found;
  }

  // Makes room by freeing the blocks that were kept for longest.
  void keep(const Block& block) {
    if (block.bytes > kMost) {
      ::operator delete(block.data, kAlignment);
      return;
    }
    free_beyond(kMost - block.bytes);
    blocks_.push_back(block);
    bytes_ += block.bytes;
  }

 private:
  static constexpr size_t kMost = size_t(1) << 25;
  static constexpr std::align_val_t kAlignment{64};

  std::vector<Block> blocks_;
  size_t bytes_ = 0;

  void free_beyond(size_t most) {
    auto end = blocks_.begin();
    for (; bytes_ > most; ++end) {
      ::operator delete(end->data, kAlignment);
      bytes_ -= end->bytes;
    }
    blocks_.erase(blocks_.begin(), end);
  }
};

struct AlignedDelete {
  size_t bytes = 0, used = 0;
  [[gnu::noinline]] void operator()(void* data) const {
    const KeptMemory::Block block{data, bytes};
    block.check(used);
    KeptMemory::of_this_thread().keep(block);
  }
};
template <typename T>
using AlignedArray = std::unique_ptr<T[], AlignedDelete>;

// An array whose elements are not initialised.
template <typename T>
AlignedArray<T> aligned_array(int64_t size) {
  const size_t used = size * sizeof(T);
  const auto block = KeptMemory::of_this_thread().take(std::max<size_t>(used, 1));
  block.guard(used);
  return {static_cast<T*>(block.data), AlignedDelete{block.bytes, used}};
}

template <typename T>
AlignedArray<T> aligned_zeros(int64_t size) {
  auto array = aligned_array<T>(size);
  std::fill_n(array.get(), size, T(0));
  return array;
}

}  // namespace lltm_jit
