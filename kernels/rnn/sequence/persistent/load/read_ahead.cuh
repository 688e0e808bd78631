// Data that is read ahead of its step.
#pragma once

#include "core/memory/async_copy.cuh"
#include "rnn/sequence/kernels.h"
#include "rnn/sequence/persistent/lanes/lane.cuh"

namespace lltm_jit {

// The data that a lane of a finishing warp reads of each step, some steps ahead: packs, and single floats. If the
// lane itself loads it, it waits only for its own copies.
template <typename Shape, int kPacks, int kFloats, int kStages>
class Ring {
  static constexpr SequenceShape kShape = Shape::kShape;
  static constexpr int kPackBytes = kShape.words() * 4;
  static constexpr int kStageBytes = (kPacks * kPackBytes + kFloats * 4) * 32;

 public:
  LLTM_JIT_DEVICE Ring(const Lane<Shape>& lane, uint32_t shared)
      : base_(keep(shared +
                   (lane.split % kShape.finishers() * kShape.groups + lane.group) * kStages *
                       kStageBytes +
                   lane.lane * kPackBytes)),
        floats_(lane.lane * (4 - kPackBytes) + kPacks * kPackBytes * 32) {}

  // Begins to copy a pack of the next step; zeros if it is not `inside`.
  LLTM_JIT_DEVICE void bring_pack(int i, const void* source, bool inside) const {
    copy_async<kPackBytes>(pack_address(brought_, i), source, inside ? kPackBytes : 0);
  }
  LLTM_JIT_DEVICE void bring_float(int i, const void* source, bool inside) const {
    copy_async<4>(float_address(brought_, i), source, inside ? 4 : 0);
  }
  // Ends a step's copies, if there were any.
  LLTM_JIT_DEVICE void commit() {
    commit_copies();
    ++brought_;
  }

  // Another warp loads the step.
  LLTM_JIT_DEVICE void skip() { ++brought_; }
  // For another warp, which reads the packs after a barrier of the block: transposes the packs of the step that is
  // kAhead behind the next step.
  template <typename scalar_t, int kAhead>
  LLTM_JIT_DEVICE void arrange() const {
    wait_for_copies<kStages - 2 - kAhead>();
    LLTM_JIT_UNROLLED(i, kPacks) {
      const uint32_t address = pack_address(brought_ + 1 + kAhead, i);
      store_shared(address, transpose<scalar_t>(load_shared<kShape.words()>(address)));
    }
  }

  // Waits for the next of the at most kStages - 1 steps that were loaded and not read.
  LLTM_JIT_DEVICE void wait() const { wait_for_copies<kStages - 2>(); }
  LLTM_JIT_DEVICE Words<kShape.words()> pack(int i) const {
    return load_shared<kShape.words()>(pack_address(brought_ + 1, i));
  }
  LLTM_JIT_DEVICE float number(int i) const {
    return __uint_as_float(load_shared<1>(float_address(brought_ + 1, i)).value[0]);
  }

 private:
  LLTM_JIT_DEVICE uint32_t stage(int count) const {
    return base_ + (count & (kStages - 1)) * kStageBytes;
  }
  LLTM_JIT_DEVICE uint32_t pack_address(int count, int i) const {
    return stage(count) + i * 32 * kPackBytes;
  }
  LLTM_JIT_DEVICE uint32_t float_address(int count, int i) const {
    return stage(count) + floats_ + i * 32 * 4;
  }

  uint32_t base_;    // of this lane's first pack
  uint32_t floats_;  // from there to its first float
  int brought_ = 0;
};

// The control bytes of the rows of a lane's elements and of its pack, read two steps ahead.
template <typename Shape, bool kOn>
class Controls {
 public:
  // `first` is of the step that is computed first, and the next ones are step_stride apart.
  LLTM_JIT_DEVICE Controls(const Lane<Shape>& lane, const uint8_t* first, int64_t step_stride,
                           int64_t steps, int64_t rows)
      : lane_(lane), first_(first), step_stride_(step_stride), steps_(steps), rows_(rows) {
    if constexpr (kOn) {
      now_ = read(0);
      next_ = read(1);
    }
  }
  LLTM_JIT_DEVICE void read_ahead(int64_t step) {
    if constexpr (kOn) later_ = read(step + 2);
  }
  LLTM_JIT_DEVICE void advance() {
    if constexpr (kOn) {
      now_ = next_;
      next_ = later_;
    }
  }
  // Whether element e's row holds, or is reset; and the same for the pack's row.
  LLTM_JIT_DEVICE bool holds(int e) const { return kOn && (now_ >> e % 2 * 8 & kHolds); }
  LLTM_JIT_DEVICE bool resets(int e) const { return kOn && (now_ >> e % 2 * 8 & kResets); }
  LLTM_JIT_DEVICE bool resets_next(int e) const { return kOn && (next_ >> e % 2 * 8 & kResets); }
  LLTM_JIT_DEVICE bool holds_next(int e) const { return kOn && (next_ >> e % 2 * 8 & kHolds); }
  LLTM_JIT_DEVICE bool pack_holds() const { return kOn && (now_ >> 16 & kHolds); }
  LLTM_JIT_DEVICE bool pack_resets() const { return kOn && (now_ >> 16 & kResets); }
  LLTM_JIT_DEVICE bool pack_resets_next() const { return kOn && (next_ >> 16 & kResets); }

 private:
  LLTM_JIT_DEVICE uint32_t read(int64_t step) const {
    uint32_t bytes = 0;
    if (step < steps_) {
      const int rows[] = {lane_.row_of(0), lane_.row_of(1), lane_.pack_row()};
      LLTM_JIT_UNROLLED(i, 3) {
        if (rows[i] >= rows_) continue;
        const uint32_t byte = first_[step * step_stride_ + rows[i]];
        bytes |= (byte & kHolds ? uint32_t(kHolds) : byte) << 8 * i;
      }
    }
    return bytes;
  }

  Lane<Shape> lane_;
  const uint8_t* first_;
  int64_t step_stride_, steps_, rows_;
  uint32_t now_ = 0, next_ = 0, later_ = 0;
};

}  // namespace lltm_jit
