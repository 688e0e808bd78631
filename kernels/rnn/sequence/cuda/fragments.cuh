// What a warp of Note [Sequences in one launch] computes with: where its lanes stand, numbers of 16 bits in
// shared memory, and products.
//
// Note [Units in the order of the lanes]
// Rows and columns of the weights are permuted so that nothing else need be: number 16 k' + 4 c + {0, 1} of k
// is what the tensor cores take for 2 c + {0, 1} of their 16, and 4 c + {2, 3} for 2 c + 8 + {0, 1}. The lane
// of column c then has four neighbouring numbers of B in its two registers, which is eight bytes as they lie
// in memory. Likewise row r of A is unit 4 (r / 2) + r % 2 for r < 8, and two more for r + 8; so that the
// transposes of the sums are B's registers again.
// With four rows of the batch, the other four columns of B are the same ones, and each lane takes
// half of its sums: lanes of columns 0 and 1 those of the upper eight units.
#pragma once

#include <cstring>

#include "core/cuda/async_copy.cuh"
#include "core/cuda/mma.cuh"
#include "core/cuda/types.cuh"
#include "core/cuda/warp_matrix.cuh"
#include "rnn/sequence/cuda/shape.h"

namespace lltm_jit {

// -------------------------------------------------------------------------------- shared memory --

__device__ __forceinline__ uint32_t address_in_shared(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// A number of which the compiler is to know nothing: it would compute it anew at each step, where everybody
// waits for it, rather than keep it in a register; or keep what is computed of it.
__device__ __forceinline__ uint32_t keep(uint32_t number) {
  asm volatile("" : "+r"(number));
  return number;
}

template <int kWords>
struct Words {
  uint32_t value[kWords];
};

template <int kWords>
__device__ __forceinline__ Words<kWords> load_shared(uint32_t address) {
  Words<kWords> w;
  if constexpr (kWords == 4) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w.value[0]), "=r"(w.value[1]), "=r"(w.value[2]), "=r"(w.value[3])
                 : "r"(address)
                 : "memory");
  } else if constexpr (kWords == 2) {
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                 : "=r"(w.value[0]), "=r"(w.value[1])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(w.value[0]) : "r"(address) : "memory");
  }
  return w;
}

template <int kWords>
__device__ __forceinline__ void store_shared(uint32_t address, const Words<kWords>& w) {
  if constexpr (kWords == 4) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(w.value[0]),
                 "r"(w.value[1]), "r"(w.value[2]), "r"(w.value[3])
                 : "memory");
  } else if constexpr (kWords == 2) {
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(w.value[0]), "r"(w.value[1])
                 : "memory");
  } else {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(w.value[0]) : "memory");
  }
}

template <int kWords>
__device__ __forceinline__ void store_words(void* target, const Words<kWords>& w) {
  using Access =
      std::conditional_t<kWords == 4, uint4, std::conditional_t<kWords == 2, uint2, uint32_t>>;
  static_assert(sizeof(Access) == sizeof w);
  Access access;
  memcpy(&access, &w, sizeof w);
  *static_cast<Access*>(target) = access;
}

// Four neighbouring weights, where there are such; else zeros.
template <int kWords>
__device__ __forceinline__ Words<kWords> load_weights(const void* from, bool exist) {
  Words<kWords> w;
  if constexpr (kWords == 2) {
    asm volatile(
        "{.reg .pred p;\n"
        "setp.ne.b32 p, %3, 0;\n"
        "mov.b32 %0, 0;\n"
        "mov.b32 %1, 0;\n"
        "@p ld.global.nc.v2.b32 {%0, %1}, [%2];}"
        : "=r"(w.value[0]), "=r"(w.value[1])
        : "l"(from), "r"(int(exist)));
  } else {
    asm volatile(
        "{.reg .pred p;\n"
        "setp.ne.b32 p, %5, 0;\n"
        "mov.b32 %0, 0;\n"
        "mov.b32 %1, 0;\n"
        "mov.b32 %2, 0;\n"
        "mov.b32 %3, 0;\n"
        "@p ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];}"
        : "=r"(w.value[0]), "=r"(w.value[1]), "=r"(w.value[2]), "=r"(w.value[3])
        : "l"(from), "r"(int(exist)));
  }
  return w;
}
// One, and one of another row.
__device__ __forceinline__ uint32_t load_weight_pair(const uint16_t* from, int64_t stride,
                                                     bool exist) {
  uint32_t pair;
  asm volatile(
      "{.reg .pred p;\n"
      ".reg .b16 first, second;\n"
      "setp.ne.b32 p, %3, 0;\n"
      "mov.b16 first, 0;\n"
      "mov.b16 second, 0;\n"
      "@p ld.global.nc.b16 first, [%1];\n"
      "@p ld.global.nc.b16 second, [%2];\n"
      "mov.b32 %0, {first, second};}"
      : "=r"(pair)
      : "l"(from), "l"(from + stride), "r"(int(exist)));
  return pair;
}
__device__ __forceinline__ uint32_t load_weight(const uint32_t* from, bool exist) {
  uint32_t weight;
  asm volatile(
      "{.reg .pred p;\n"
      "setp.ne.b32 p, %2, 0;\n"
      "mov.b32 %0, 0;\n"
      "@p ld.global.nc.b32 %0, [%1];}"
      : "=r"(weight)
      : "l"(from), "r"(int(exist)));
  return weight;
}

// ------------------------------------------------------------------------------ pairs of 16 bits --

template <typename scalar_t>
__device__ __forceinline__ uint32_t pack(float low, float high) {
  uint32_t pair;
  if constexpr (std::is_same_v<scalar_t, Half>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}
template <typename scalar_t>
__device__ __forceinline__ void unpack(uint32_t pair, float& low, float& high) {
  low = to_opmath(scalar_t{static_cast<uint16_t>(pair)});
  high = to_opmath(scalar_t{static_cast<uint16_t>(pair >> 16)});
}

// Calls function(i) for constants i. `#pragma unroll` is a wish that large loops are not granted, and their
// arrays would lie in memory.
template <int kCount, int kFirst = 0, typename Function>
__device__ __forceinline__ void for_constants(const Function& function) {
  if constexpr (kFirst < kCount) {
    function(std::integral_constant<int, kFirst>());
    for_constants<kCount, kFirst + 1>(function);
  }
}

// ----------------------------------------------------------------------------------------- lanes --

// What a lane has: of sums `elements` numbers, of memory a pack of as many neighbouring units of one row.
template <typename Shape>
struct Lane {
  static constexpr SequenceShape kShape = Shape::kShape;
  static constexpr bool kFourRows = kShape.rows == 4;
  static constexpr int kElements = kShape.elements(), kWords = kShape.words();

  static constexpr bool kAllFinish = kShape.splits == kShape.finishers();

  int lane, group, split, block;
  int unit;  // of the group's first
  int row;   // of the cluster's first; in the tile of rows that this warp finishes

  __device__ __forceinline__ Lane() {
    const uint32_t thread = keep(threadIdx.x);
    const int warp = thread / 32, cluster = blockIdx.x / kShape.blocks;
    lane = thread % 32;
    group = warp % kShape.groups;
    split = warp / kShape.groups;
    block = keep(blockIdx.x % kShape.blocks);
    unit = keep((block * kShape.groups + group) * SequenceShape::kUnits);
    row = keep(cluster * kShape.rows + (finishes() ? split * 8 : 0));
  }

  __device__ __forceinline__ bool finishes() const {
    return kAllFinish || split < kShape.finishers();
  }
  // Of element e of the sums.
  __device__ __forceinline__ int unit_of(int e) const {
    const int g = lane / 4, c = lane % 4, half = kFourRows ? c / 2 : e / 2;
    return unit + 4 * (g / 2) + g % 2 + 2 * half;
  }
  __device__ __forceinline__ int row_of(int e) const {
    const int c = lane % 4;
    return row + (kFourRows ? 2 * (c % 2) + e : 2 * c + e % 2);
  }
  // Of the pack.
  __device__ __forceinline__ int pack_unit() const {
    return unit + lane % 4 * 4 + (kFourRows ? lane / 16 * 2 : 0);
  }
  __device__ __forceinline__ int pack_row() const {
    return row + (kFourRows ? lane / 4 % 4 : lane / 4);
  }
  // Where its four numbers of a tile of B are; of a pack with four rows, these are half.
  __device__ __forceinline__ int tile_offset() const {
    return (kFourRows ? lane % 16 : lane) * 4 * kShape.bytes;
  }
};

// Where a lane's elements are in an array of [rows, hidden].
template <typename Shape>
struct Elements {
  int64_t first, all;  // of an array
  int hidden;
  bool row_exists[2];  // those of even and of odd elements, with this lane's units

  __device__ __forceinline__ Elements(const Lane<Shape>& lane, int rows, int hidden)
      : first(int64_t(lane.row_of(0)) * hidden + lane.unit_of(0)),
        all(int64_t(rows) * hidden),
        hidden(hidden),
        row_exists{lane.row_of(0) < rows && lane.unit_of(0) < hidden,
                   lane.row_of(1) < rows && lane.unit_of(0) < hidden} {}

  __device__ __forceinline__ bool exists(int e) const { return row_exists[e % 2]; }
  // In array k of several.
  __device__ __forceinline__ int64_t place(int k, int e) const {
    return k * all + first + e % 2 * hidden + e / 2 * 2;
  }
  template <typename Number>
  __device__ __forceinline__ float read(const void* arrays, int k, int e) const {
    if (!arrays || !exists(e)) return 0;
    return to_opmath(static_cast<const Number*>(arrays)[place(k, e)]);
  }
  template <typename Number>
  __device__ __forceinline__ void write(void* arrays, int k, int e, float value) const {
    if (exists(e)) static_cast<Number*>(arrays)[place(k, e)] = from_opmath<Number>(value);
  }
};

// A lane's pack of a row as sums have it, element by element; and back.
__device__ __forceinline__ uint32_t transpose_halves(uint32_t pair) {
  uint32_t result;
  // Volatile, or it would be moved to where it is used, for some lanes alone.
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
  return result;
}
template <typename scalar_t, int kWords>
__device__ __forceinline__ Words<kWords> transpose(const Words<kWords>& w) {
  Words<kWords> result;
  if constexpr (sizeof(scalar_t) == 2) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) result.value[i] = transpose_halves(w.value[i]);
  } else {  // the upper halves of two floats, and the lower ones
#pragma unroll
    for (int i = 0; i < kWords; i += 2) {
      const uint32_t lower = transpose_halves(__byte_perm(w.value[i], w.value[i + 1], 0x5410));
      const uint32_t upper = transpose_halves(__byte_perm(w.value[i], w.value[i + 1], 0x7632));
      result.value[i] = __byte_perm(lower, upper, 0x5410);
      result.value[i + 1] = __byte_perm(lower, upper, 0x7632);
    }
  }
  return result;
}

template <typename scalar_t, int kElements>
__device__ __forceinline__ auto to_words(const float (&numbers)[kElements]) {
  Words<kElements* int(sizeof(scalar_t)) / 4> w;
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    if constexpr (sizeof(scalar_t) == 4) {
      w.value[e] = __float_as_uint(numbers[e]);
    } else if (e % 2 == 0) {
      w.value[e / 2] = pack<scalar_t>(numbers[e], numbers[e + 1]);
    }
  }
  return w;
}
template <typename scalar_t, int kWords, int kElements>
__device__ __forceinline__ void to_floats(const Words<kWords>& w, float (&numbers)[kElements]) {
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    if constexpr (sizeof(scalar_t) == 4) {
      numbers[e] = __uint_as_float(w.value[e]);
    } else if (e % 2 == 0) {
      unpack<scalar_t>(w.value[e / 2], numbers[e], numbers[e + 1]);
    }
  }
}

// ------------------------------------------------------------------------------------- products --

// sums += a b, of 16 k. Volatile, so that it stays between the loads and stores of a step.
template <typename scalar_t>
__device__ __forceinline__ void add_product(float (&sums)[4], const Words<4>& a,
                                            const Words<2>& b) {
#define LLTM_JIT_MMA(type)                                                            \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                 \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])           \
               : "r"(a.value[0]), "r"(a.value[1]), "r"(a.value[2]), "r"(a.value[3]),  \
                 "r"(b.value[0]), "r"(b.value[1]))
  if constexpr (std::is_same_v<scalar_t, Half>) {
    LLTM_JIT_MMA("f16");
  } else {
    LLTM_JIT_MMA("bf16");
  }
#undef LLTM_JIT_MMA
}

__device__ __forceinline__ void add_tf32_product(float (&sums)[4], const uint32_t (&a)[4],
                                                 const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// Of floats: a has four numbers of k of one row, then of the row eight further on. Note [Single precision on
// tensor cores] has the method.
template <typename scalar_t>
__device__ __forceinline__ void add_product(float (&sums)[4], const Words<8>& a,
                                            const Words<4>& b) {
  uint32_t high_a[2][4], low_a[2][4], high_b[2][2], low_b[2][2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      // Split at each step: there are no registers for the parts of all weights.
      const SplitFloat split(__uint_as_float(keep(a.value[j % 2 * 4 + 2 * i + j / 2])));
      high_a[i][j] = split.high;
      low_a[i][j] = split.low;
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const SplitFloat split(__uint_as_float(b.value[2 * i + j]));
      high_b[i][j] = split.high;
      low_b[i][j] = split.low;
    }
  }
  float part[4] = {};
#pragma unroll
  for (int i = 0; i < 2; ++i) add_tf32_product(part, low_a[i], high_b[i]);
#pragma unroll
  for (int i = 0; i < 2; ++i) add_tf32_product(part, high_a[i], low_b[i]);
#pragma unroll
  for (int i = 0; i < 2; ++i) add_tf32_product(part, high_a[i], high_b[i]);
#pragma unroll
  for (int e = 0; e < 4; ++e) sums[e] += part[e];
}

// A warp's weights, of its group and its part of k. kOperands: arrays of B, one for all gates, or one each.
template <typename Shape, typename scalar_t, int kGates, int kOperands>
class WarpWeights {
  static constexpr SequenceShape kShape = Shape::kShape;
  static constexpr int kTiles = kShape.tiles_of_warp(), kShared = kShape.shared_tiles;
  static constexpr int kInRegisters = kTiles - kShared, kRowTiles = kShape.row_tiles();
  static constexpr int kTileBytes = kShape.tile_bytes();
  static constexpr int kOperandBytes = kShape.operand_bytes(1);
  static constexpr int kWeightBytes = sizeof(Words<2 * kShape.bytes>) * 32;  // of a tile
  // Tiles of B that are loaded at once, while the products of as many others are made.
  static constexpr int kChunk = kOperands > 1 || kShape.bytes == 4 ? 1 : kShape.blocks == 1 ? 4 : 2;

 public:
  // A lane's part of a tile of weights, and of B.
  using Tile = Words<2 * kShape.bytes>;
  using Part = Words<kShape.bytes>;

  // The first tile of rows is the one that this warp finishes, if it does.
  using Sums = float[kRowTiles][kGates][4];

  // load(gate, unit, k) gives a lane's weights: of `unit` from k on two, of unit + 2 as many, and both of
  // k + 2.
  template <typename Load>
  __device__ __forceinline__ WarpWeights(const Lane<Shape>& lane, uint32_t shared, const Load& load)
      : shared_(keep(shared + threadIdx.x / 32 * kShared * kGates * kWeightBytes + lane.lane * 16)),
        first_row_tile_(kRowTiles == 2 ? lane.split % 2 : 0),
        operand_(keep(lane.split * kTiles * kRowTiles * kTileBytes + lane.tile_offset())) {
    const int row = lane.lane / 4, unit = lane.unit + 4 * (row / 2) + row % 2;
    for_constants<kTiles>([&](auto j_) {
      constexpr int j = decltype(j_)::value;
      const int k = (lane.split * kTiles + j) * SequenceShape::kUnits + lane.lane % 4 * 4;
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        const Tile tile = load(gate, unit, k);
        if constexpr (j < kInRegisters) {
          registers_[j][gate] = tile;
        } else {
          store_tile(shared_ + ((j - kInRegisters) * kGates + gate) * kWeightBytes, tile);
        }
      }
    });
  }

  // Adds the products with the operand at `operands` in shared memory, of tiles from kFirst to kLast.
  template <int kFirst = 0, int kLast = kTiles>
  __device__ __forceinline__ void multiply(Sums& sums, uint32_t operands) const {
    constexpr int kChunks = (kLast - kFirst + kChunk - 1) / kChunk;
    Part b[2][kChunk][kOperands][kRowTiles];
    const auto load_chunk = [&](int chunk) {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        const int j = kFirst + chunk * kChunk + i;
        if (j >= kLast) continue;
        const int tile = in_order(j);
#pragma unroll
        for (int o = 0; o < kOperands; ++o) {
#pragma unroll
          for (int n = 0; n < kRowTiles; ++n) {
            const int at = (tile * kRowTiles + (n ^ first_row_tile_)) * kTileBytes;
            b[chunk % 2][i][o][n] =
                load_shared<kShape.bytes>(operands + operand_ + o * kOperandBytes + at);
          }
        }
      }
    };
    Tile from_shared[2][kGates];
    const auto load_weights = [&](int j) {
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        from_shared[j % 2][gate] = load_tile(shared_ + (j * kGates + gate) * kWeightBytes);
      }
    };
    if (shared_before(kFirst) < shared_before(kLast)) load_weights(shared_before(kFirst));
    load_chunk(0);
    for_constants<kChunks>([&](auto chunk_) {
      constexpr int chunk = decltype(chunk_)::value;
      if (chunk + 1 < kChunks) load_chunk(chunk + 1);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        const int j = kFirst + chunk * kChunk + i;
        if (j >= kLast) continue;
        const int next = shared_before(j) + 1;
        if (is_shared(j) && next < shared_before(kLast)) load_weights(next);
#pragma unroll
        for (int gate = 0; gate < kGates; ++gate) {
          const auto& a = is_shared(j) ? from_shared[shared_before(j) % 2][gate]
                                       : registers_[is_shared(j) ? 0 : in_order(j)][gate];
#pragma unroll
          for (int n = 0; n < kRowTiles; ++n) {
            add_product<scalar_t>(sums[n][gate], a, b[chunk % 2][i][kOperands > 1 ? gate : 0][n]);
          }
        }
      }
    });
  }
  // The same, with `meanwhile()` once the tensor cores have begun.
  template <typename Meanwhile>
  __device__ __forceinline__ void multiply(Sums& sums, uint32_t operands,
                                           const Meanwhile& meanwhile) const {
    constexpr int kBefore = (kTiles + 1) / 2;
    multiply<0, kBefore>(sums, operands);
    meanwhile();
    if constexpr (kBefore < kTiles) multiply<kBefore, kTiles>(sums, operands);
  }

 private:
  // Those in shared memory stand between the others, in whose time they are loaded.
  static constexpr __device__ int shared_before(int j) { return j * kShared / kTiles; }
  static constexpr __device__ bool is_shared(int j) {
    return shared_before(j + 1) > shared_before(j);
  }
  static constexpr __device__ int in_order(int j) {
    return is_shared(j) ? kInRegisters + shared_before(j) : j - shared_before(j);
  }

  // Sixteen bytes a lane at a time.
  static __device__ __forceinline__ void store_tile(uint32_t address, const Tile& tile) {
#pragma unroll
    for (int i = 0; i < kShape.bytes / 2; ++i) {
      const auto* four = tile.value + 4 * i;
      store_shared(address + i * 512, Words<4>{four[0], four[1], four[2], four[3]});
    }
  }
  static __device__ __forceinline__ Tile load_tile(uint32_t address) {
    Tile tile;
#pragma unroll
    for (int i = 0; i < kShape.bytes / 2; ++i) {
      const auto four = load_shared<4>(address + i * 512);
#pragma unroll
      for (int k = 0; k < 4; ++k) tile.value[4 * i + k] = four.value[k];
    }
    return tile;
  }

  Tile registers_[kInRegisters > 0 ? kInRegisters : 1][kGates];
  uint32_t shared_;
  int first_row_tile_;
  uint32_t operand_;
};

// Brings a group's sums together: kSums numbers for each element of h. Every warp of the group calls it;
// `mine` of a warp that finishes has all of them then.
template <typename Shape, int kSums>
class GroupSum {
  static constexpr SequenceShape kShape = Shape::kShape;
  static constexpr int kElements = kShape.elements(), kOthers = kShape.splits - 1;
  static constexpr int kBytes = kSums * kElements * 128;

 public:
  __device__ __forceinline__ GroupSum(const Lane<Shape>& lane, uint32_t shared)
      : lane_(lane),
        shared_(keep(shared + lane.group * kShape.finishers() * kOthers * kBytes +
                     lane.lane * kElements * 4)) {}

  // values[n] are those of the warp's tile of rows n, counted as WarpWeights does.
  __device__ __forceinline__ void operator()(
      float (&values)[kShape.row_tiles()][kSums][kElements]) const {
    if constexpr (kOthers > 0) {
#pragma unroll
      for (int n = 0; n < kShape.row_tiles(); ++n) {
        const int finisher = kShape.row_tiles() == 2 ? n ^ (lane_.split % 2) : 0;
        if (finisher == lane_.split) continue;
        const int slot = lane_.split < finisher ? lane_.split : lane_.split - 1;
        const uint32_t to = shared_ + (finisher * kOthers + slot) * kBytes;
#pragma unroll
        for (int i = 0; i < kSums; ++i) {
          Words<kElements> w;
#pragma unroll
          for (int e = 0; e < kElements; ++e) w.value[e] = __float_as_uint(values[n][i][e]);
          store_shared(to + i * kElements * 128, w);
        }
      }
      constexpr int kThreads = 32 * kShape.splits;
      if (lane_.finishes()) {
        asm volatile("bar.sync %0, %1;" ::"r"(1 + lane_.group), "n"(kThreads) : "memory");
      } else {
        asm volatile("bar.arrive %0, %1;" ::"r"(1 + lane_.group), "n"(kThreads) : "memory");
        return;
      }
#pragma unroll
      for (int k = 0; k < kOthers; ++k) {
#pragma unroll
        for (int i = 0; i < kSums; ++i) {
          const auto w = load_shared<kElements>(shared_ + (lane_.split * kOthers + k) * kBytes +
                                                i * kElements * 128);
#pragma unroll
          for (int e = 0; e < kElements; ++e) values[0][i][e] += __uint_as_float(w.value[e]);
        }
      }
    }
  }

 private:
  Lane<Shape> lane_;
  uint32_t shared_;
};

}  // namespace lltm_jit
