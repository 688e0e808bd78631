#include "core/cpu/products.h"

#include "core/cpu/packed_product.h"

namespace lltm_jit {

// `columns` of the tile are more than fill kVectors - 1 vectors. The rows of B have whole ones.
template <typename acc_t, int kRows, int kVectors>
C10_NOINLINE void panel_tile(const Tile<acc_t>& tile) {
  using Vec = at::vec::Vectorized<acc_t>;
  constexpr int64_t kRowsAhead = 16;  // of B; where it lies in place, they are far apart
  Vec sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[r][v] = Vec(acc_t(0));
  }
  const acc_t *a = tile.a, *b = tile.b;
  const int64_t a_row_stride = tile.a_row_stride;
  for (int64_t k = 0; k < tile.depth; ++k, a += tile.a_depth_stride, b += tile.b_stride) {
    Vec columns[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      columns[v] = Vec::loadu(b + v * Vec::size());
      __builtin_prefetch(b + kRowsAhead * tile.b_stride + v * Vec::size());
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vec element(a[r * a_row_stride]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = at::vec::fmadd(element, columns[v], sums[r][v]);
      }
    }
  }
  constexpr int kLast = kVectors - 1;
  const int64_t in_last = std::min<int64_t>(Vec::size(), tile.columns - kLast * Vec::size());
  // Block sums are summed: rounding grows with their number, not with the depth.
  if (tile.sums != nullptr) {
    const int64_t sums_stride = tile.sums_stride;
    const acc_t* initial = tile.sums;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r, initial += sums_stride) {
#pragma GCC unroll 8
      for (int v = 0; v < kLast; ++v) {
        sums[r][v] = Vec::loadu(initial + v * Vec::size()) + sums[r][v];
      }
      sums[r][kLast] = load(initial + kLast * Vec::size(), in_last) + sums[r][kLast];
    }
  }
  const int64_t c_stride = tile.c_stride;  // here, or each store would have it read again
  acc_t* c = tile.c;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r, c += c_stride) {
#pragma GCC unroll 8
    for (int v = 0; v < kLast; ++v) sums[r][v].store(c + v * Vec::size());
    store(c + kLast * Vec::size(), sums[r][kLast], in_last);
  }
}

// kRows rows of all columns, from left to right.
template <typename acc_t, int kRows>
void multiply_strip(Tile<acc_t> tile) {
  using Shape = RegisterTile<acc_t>;
  while (tile.columns > 0) {
    const int64_t vectors = std::min<int64_t>(
        Shape::kVectors, ceil_div(tile.columns, static_cast<int64_t>(Shape::kLanes)));
    if (vectors == 3) {
      panel_tile<acc_t, kRows, 3>(tile);
    } else if (vectors == 2) {
      panel_tile<acc_t, kRows, 2>(tile);
    } else {
      panel_tile<acc_t, kRows, 1>(tile);
    }
    const int64_t done = vectors * Shape::kLanes;
    tile.columns -= done;
    tile.b += done;
    tile.c += done;
    if (tile.sums != nullptr) tile.sums += done;
  }
}

template <typename acc_t>
void multiply_rows(Tile<acc_t> tile, int64_t rows) {
  constexpr int kRows = RegisterTile<acc_t>::kRows;
  while (rows > 0) {
    const int64_t done = rows >= kRows ? kRows : rows >= 4 ? 4 : rows >= 2 ? 2 : 1;
    if (done == kRows) {
      multiply_strip<acc_t, kRows>(tile);
    } else if (done == 4) {
      multiply_strip<acc_t, 4>(tile);
    } else if (done == 2) {
      multiply_strip<acc_t, 2>(tile);
    } else {
      multiply_strip<acc_t, 1>(tile);
    }
    rows -= done;
    tile.a += done * tile.a_row_stride;
    tile.c += done * tile.c_stride;
    if (tile.sums != nullptr) tile.sums += done * tile.sums_stride;
  }
}

template void multiply_rows(Tile<float>, int64_t);
template void multiply_rows(Tile<double>, int64_t);

namespace {

template <typename T>
void multiply_as(const ProductArgs& args) {
  PackedProduct<T> product{};
  product.a = static_cast<const T*>(args.a);
  product.a_row_stride = args.a_row_stride;
  product.a_depth_stride = args.a_depth_stride;
  product.b = static_cast<const T*>(args.b);
  product.b_depth_stride = args.b_depth_stride;
  product.b_column_stride = args.b_column_stride;
  product.initial = static_cast<const T*>(args.initial);
  product.c = static_cast<T*>(args.c);
  product.c_stride = args.columns;
  product.rows = args.rows;
  product.columns = args.columns;
  product.depth = args.depth;
  multiply_packed(product);
}

}  // namespace

void multiply_cpu(const ProductArgs& args) {
  if (args.type == ElementType::Double) return multiply_as<double>(args);
  multiply_as<float>(args);
}

}  // namespace lltm_jit
