// Products of a tile of weights and a tile of B, on tensor cores.
#pragma once

#include "core/products/mma.cuh"
#include "rnn/sequence/numbers/halves.cuh"

namespace lltm_jit {

// sums += a b, of 16 k.
template <typename scalar_t>
LLTM_JIT_DEVICE void add_product(float (&sums)[4], const Words<4>& a, const Words<2>& b) {
  mma<scalar_t>(sums, a.value, b.value);
}

// Of floats in two halves without B's scale; the smaller products come first.
LLTM_JIT_DEVICE void add_unscaled(float (&sums)[4], const Words<8>& a, const FloatOperand& b) {
  const Words<4> high{a.value[0], a.value[1], a.value[2], a.value[3]};
  const Words<4> low{a.value[4], a.value[5], a.value[6], a.value[7]};
  add_product<Half>(sums, low, b.high);
  add_product<Half>(sums, high, b.low);
  add_product<Half>(sums, high, b.high);
}
// Of the upper halves alone, Note [Floats in one half].
LLTM_JIT_DEVICE void add_unscaled(float (&sums)[4], const Words<4>& a, const FloatOperand& b) {
  add_product<Half>(sums, a, b.high);
}
LLTM_JIT_DEVICE void add_scaled(float (&sums)[4], const float (&part)[4], const FloatOperand& b) {
  LLTM_JIT_UNROLLED(e, 4) sums[e] = fmaf(part[e], b.inverse[e % 2], sums[e]);
}

template <typename scalar_t, int kWords>
LLTM_JIT_DEVICE void add_product(float (&sums)[4], const Words<kWords>& a, const FloatOperand& b) {
  float part[4] = {};
  add_unscaled(part, a, b);
  add_scaled(sums, part, b);
}

// sums += a b, of floats as TF32, which have no scale.
template <typename scalar_t>
LLTM_JIT_DEVICE void add_product(float (&sums)[4], const Words<8>& a, const Words<4>& b) {
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    mma_tf32(sums, {a.value[i], a.value[4 + i], a.value[i + 1], a.value[5 + i]},
             {b.value[i], b.value[i + 1]});
  }
}

// Sums of products with B in halves, whose lower halves have a scale of their own: for each gate; or for all gates
// together, for each of kTiles tiles of k, in chains that do not wait for each other.
template <int kGates, int kTiles>
struct SumsOfHalves {
  static constexpr bool kTogether = kTiles > 0;
  static constexpr int kParts = kTogether ? kTiles : 1;
  static constexpr int kUppers = kTogether ? 2 : kGates, kLowers = kTogether ? 1 : kGates;
  float upper[kParts][kUppers][4] = {}, lower[kParts][kLowers][4] = {};

  template <typename Weights, typename Operand>
  LLTM_JIT_DEVICE void add(int tile, int gate, const Weights& a, const Operand& b) {
    auto& sums = upper[kTogether ? tile : 0][gate % kUppers];
    const Words<4> high{a.value[0], a.value[1], a.value[2], a.value[3]};
    const Words<4> low{a.value[4], a.value[5], a.value[6], a.value[7]};
    add_product<Half>(sums, low, b.high);
    add_product<Half>(lower[kTogether ? tile : 0][gate % kLowers], high, b.low);
    add_product<Half>(sums, high, b.high);
  }
  // inverses: of the parts' scales.
  template <typename Sums>
  LLTM_JIT_DEVICE void add_to(Sums& sums, const float (&inverses)[kParts]) const {
    LLTM_JIT_UNROLLED2(i, kParts, g, kLowers) {
      LLTM_JIT_UNROLLED(e, 4) {
        float part = fmaf(lower[i][g][e], 1 / kLowerScale, upper[i][g][e]);
        if constexpr (kTogether) part += upper[i][1][e];
        sums[g][e] = fmaf(part, inverses[i], sums[g][e]);
      }
    }
  }
};

// A lane's tile of weights in memory, or in shared memory: sixteen bytes at a time.
template <typename Address, int kWords>
LLTM_JIT_DEVICE void store_tile(Address address, const Words<kWords>& tile) {
  LLTM_JIT_UNROLLED(i, kWords / 4) {
    const auto* from = tile.value + 4 * i;
    const Words<4> four{from[0], from[1], from[2], from[3]};
    if constexpr (std::is_pointer_v<Address>) {
      store_words(address + i * 512, four);
    } else {
      store_shared(address + i * 512, four);
    }
  }
}
template <int kWords, typename Address>
LLTM_JIT_DEVICE Words<kWords> load_tile(Address address) {
  Words<kWords> tile;
  LLTM_JIT_UNROLLED(i, kWords / 4) {
    Words<4> four;
    if constexpr (std::is_pointer_v<Address>) {
      load_sent(address + i * 512, four);
    } else {
      four = load_shared<4>(address + i * 512);
    }
    LLTM_JIT_UNROLLED(k, 4) tile.value[4 * i + k] = four.value[k];
  }
  return tile;
}

}  // namespace lltm_jit
