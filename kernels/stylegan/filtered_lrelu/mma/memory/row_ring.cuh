// A warp's ring buffer of rows of x: chunks of 8 rows in shared memory, fetched some chunks ahead
// of their use, also across the end of a walk.
#pragma once

#include "core/launch/block.cuh"
#include "core/memory/async_copy.cuh"
#include "stylegan/filtered_lrelu/mma/call.cuh"
#include "stylegan/filtered_lrelu/mma/operands.cuh"

namespace lltm_jit {

// A part of a plane: Note [Walks].
template <typename K>
struct Place {
  unsigned plane;
  int segment, block;
  int first_row_tile;  // of y, like row_tiles
  int row_tiles;
  int steps;         // tiles of v
  int row_slice;     // of x, where slice 0 of the bands lies
  int column_slice;  // of x, the first that the block uses
  char* y;           // the address of its first result
  // The rows and columns, counted from `y`, that are in the image: `y` may lie before the image.
  struct Part {
    int first_row, end_row, first_column, end_column;
    LLTM_JIT_DEVICE bool has_row(int row) const {
      return row < end_row && row >= (kMayBeBefore ? first_row : 0);
    }
    LLTM_JIT_DEVICE bool has_column(int column) const {
      return column < end_column && (!kMayBeBefore || column >= first_column);
    }
  } part;
  // The sign map: where the tiles of the first step and the block's first column lie (words,
  // flags), their row, and the walk's own tiles in a row, from first_map_tile to end_map_tile.
  int64_t map_words, map_flags;
  int map_row, end_map_row, first_map_tile, end_map_tile;

  Place() = default;
  LLTM_JIT_DEVICE Place(const MmaCall& call, int walk) {
    const MmaPlan& plan = call.plan;
    plane = walk;
    segment = block = 0;
    if (!K::kOneBlock) {
      plane = call.blocks.divide(walk);
      block = walk - plane * plan.blocks;
    }
    if (plan.segments != 1) {
      const unsigned both = plane;
      plane = call.segments.divide(both);
      segment = both - plane * plan.segments;
    }
    first_row_tile = segment * plan.segment_tiles;
    row_tiles = min(ceil_div(call.args.out_h + rows_before(call), kTile) - first_row_tile,
                    plan.segment_tiles);
    steps = K::kDown * (row_tiles - 1) + K::down().tiles(kTile);
    row_slice = plan.rows.slice + first_row_tile * 2 * K::kDown / K::kUp;
    column_slice =
        K::kFirstColumnSlice +
        (K::kOneBlock ? 0 : plan.columns.slice + block * (K::kOutTiles * K::kDown / K::kUp));
    const int row = kTile * first_row_tile - rows_before(call);
    const int column = kSlice * K::kOutTiles * block - columns_before(call);
    y = static_cast<char*>(call.args.y) +
        ((int64_t(plane) * call.args.out_h + row) * call.args.out_w + column) *
            int64_t(sizeof(typename K::scalar));
    part = {max(-row, 0), call.args.out_h - row, -column, call.args.out_w - column};
    if constexpr (K::kSigns != Signs::None) place_in_map(call);
  }

  // The number of slices of rows of x that the steps need.
  LLTM_JIT_DEVICE int slices() const { return K::up().slices_before(steps - 1) + K::kRowWindow; }

  // Whether the first tiles may have rows and columns that lie before y.
  static constexpr bool kMayBeBefore = K::kSigns == Signs::Read && K::kDown == 1;
  static LLTM_JIT_DEVICE int rows_before(const MmaCall& call) {
    return kMayBeBefore ? call.plan.rows.before : 0;
  }
  static LLTM_JIT_DEVICE int columns_before(const MmaCall& call) {
    return kMayBeBefore ? call.plan.columns.before : 0;
  }

 private:
  LLTM_JIT_DEVICE void place_in_map(const MmaCall& call) {
    const SignMap<int>& map = call.map;
    const MmaPlan& plan = call.plan;
    map_row = K::kDown * first_row_tile + plan.rows.sign_tile;
    end_map_row = map.tile_rows;
    const int column = block * K::kMapTilesOfBlock + floor_div(plan.columns.sign_tile, 4);
    first_map_tile = -column;
    end_map_tile = map.tile_columns - column;
    if constexpr (K::kSigns == Signs::Write) {  // only one walk writes shared tiles
      if (block + 1 < plan.blocks) end_map_tile = min(end_map_tile, K::kMapTilesOfBlock);
      if (segment + 1 < plan.segments) end_map_row = map_row + K::kDown * row_tiles;
    }
    const int64_t first = int64_t(plane) * map.words_per_plane();
    const int64_t tile = int64_t(map_row) * map.tile_columns + column;
    map_words = first + tile * SignMap<int>::kTileWords;
    map_flags = first + map.flag_words() + tile;
  }
};

// Adds up the sum of a walk's results, of which each lane has a part.
template <typename K>
LLTM_JIT_DEVICE void write_plane_sum(const MmaCall& call, const Place<K>& place, float sum) {
  if (!call.args.plane_sums) return;
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_down_sync(~0u, sum, lanes);
  const int part = place.segment * call.plan.blocks + place.block;
  if (lane() > 0) return;
  const int image = place.plane / call.args.channels, channel = place.plane % call.args.channels;
  const int64_t plane = int64_t(channel) * call.args.batch + image;
  call.args.plane_sums[plane * call.plan.parts() + part] = sum;
}

// Loads from an address in shared memory.
template <typename Piece>
LLTM_JIT_DEVICE Piece load_shared(uint32_t from) {
  return *static_cast<const Piece*>(__cvta_shared_to_generic(from));
}

// Neighbouring walks run on different SMs, so that the last round of walks, which are fewer than
// the warps, spreads over all SMs.
template <typename K>
LLTM_JIT_DEVICE int first_walk() {
  return threadIdx.x / 32 * gridDim.x + blockIdx.x;
}
template <typename K>
LLTM_JIT_DEVICE int walk_step() {
  return gridDim.x * K::kWarps;
}

// The rows of x that a walk needs. Rows above and below the image are zeros.
template <typename K>
struct RowRing {
  using scalar_t = typename K::scalar;
  static constexpr int kPieceElements = 16 / sizeof(scalar_t);
  static constexpr int kRowPieces = K::kColumnSlices * kSlice / kPieceElements;
  // The lanes of a row's pieces, or lanes times rounds, are a power of two, so that shifts divide by them.
  static constexpr int kRowLanes = power_of_two_above(kRowPieces);
  static constexpr int kRounds = kSlice * kRowLanes / 32;
  static constexpr int kPitch = K::kShape.ring_pitch(sizeof(scalar_t));
  static constexpr int kChunkBytes = kSlice * kPitch;
  static constexpr int kChunks = K::kRingChunks;
  static constexpr int kBytes = kChunks * kChunkBytes;
  static constexpr int kDone =
      K::new_slices(0);  // chunks of the previous walk that the first step frees
  static constexpr int kNowhere = -(1 << 30);  // a row that is not in the image

  const MmaCall& call;
  const char* source;    // this lane's first piece of the next chunk
  uint32_t end;          // of the ring, in shared memory
  uint32_t first;        // the oldest chunk, which the next one replaces
  int walk;              // the walk whose chunks are being fetched
  int chunks_left, row;  // left of the walk; row of this lane's first piece
  int columns_left;      // only if rows are masked

  static LLTM_JIT_DEVICE int lane_row() { return threadIdx.x % 32 / kRowLanes; }
  static LLTM_JIT_DEVICE int lane_column() { return threadIdx.x % 32 % kRowLanes * kPieceElements; }
  LLTM_JIT_DEVICE uint32_t lane_piece() const {
    return first + lane_row() * kPitch + lane_column() * int(sizeof(scalar_t));
  }

  LLTM_JIT_DEVICE RowRing(const MmaCall& call_, uint32_t ring)
      : call(call_),
        end(ring + kBytes),
        first(ring + kDone * kChunkBytes),
        walk(first_walk<K>() - walk_step<K>()),
        chunks_left(0) {
    release<kChunks - kDone>();
  }

  // The address of an element of the chunk at `position`, given its offset in a chunk.
  LLTM_JIT_DEVICE uint32_t at(int position, uint32_t offset) const {
    return wrapped(first + position * kChunkBytes + offset);
  }

  // This lane's first piece of the chunk at `position`. for_each_piece() gives the others, which this lane
  // has copied, and for which it need not wait for other lanes.
  LLTM_JIT_DEVICE uint32_t copied(int position) const {
    return at(position, lane_row() * kPitch + lane_column() * int(sizeof(scalar_t)));
  }
  // Calls function(rows, columns) for the pieces of 16 bytes of a chunk that this lane copies. Rows and
  // columns count from its first piece, as do the bytes of offset().
  template <typename Function>
  static LLTM_JIT_DEVICE void for_each_piece(const Function& function) {
    LLTM_JIT_UNROLLED(round, kRounds) {
      const int rows = round * 32 / kRowLanes;
      const int columns = round * 32 % kRowLanes * kPieceElements;
      if (kRowLanes == kRowPieces || lane_column() + columns < kRowPieces * kPieceElements) {
        function(rows, columns);
      }
    }
  }
  static LLTM_JIT_DEVICE int offset(int rows, int columns) {
    return rows * kPitch + columns * int(sizeof(scalar_t));
  }

  // Frees the oldest chunks and fetches the next ones in their place.
  template <int kCount>
  LLTM_JIT_DEVICE void release() {
#pragma unroll 1
    for (int k = 0; k < kCount; ++k) {
      if (chunks_left == 0) begin_walk();
      fetch<1>();
    }
  }
  // The same for chunks of one walk, as all chunks of a step are.
  template <int kCount>
  LLTM_JIT_DEVICE void fetch() {
    LLTM_JIT_UNROLLED(k, kCount) fetch_one();
  }

  // Called if the next chunk is the first of another walk.
  LLTM_JIT_DEVICE void begin_walk() {
    walk += walk_step<K>();
    row = kNowhere;
    chunks_left = 1 << 20;
    if (walk >= call.walks) return;
    const Place<K> place(call, walk);
    const unsigned batch = call.channels.divide(place.plane);
    const unsigned channel = place.plane - batch * call.channels.divisor;
    chunks_left = place.slices();
    const int top = kSlice * (place.row_slice + K::kFirstRowSlice) + lane_row();
    const int column = kSlice * place.column_slice + lane_column();
    columns_left = call.args.in_w - column;
    if (kRowLanes > 32 || has_column(columns_left)) row = top;
    source = static_cast<const char*>(call.args.x) +
             (batch * call.args.x_strides[0] + channel * call.args.x_strides[1] +
              top * call.args.x_strides[2] + column * call.args.x_strides[3]) *
                 int64_t(sizeof(scalar_t));
  }

 private:
  LLTM_JIT_DEVICE uint32_t wrapped(uint32_t address) const {
    return address >= end ? address - kBytes : address;
  }

  // Starts to copy the next chunk.
  LLTM_JIT_DEVICE void fetch_one() {
    if (K::kWhole || call.load_bytes == 16) {
      copy<16>();
    } else if (call.load_bytes == 4) {
      copy<4>();
    } else {
      copy_elements();
    }
    commit_copies();
    --chunks_left;
    row += kSlice;
    source += kSlice * call.args.x_strides[2] * sizeof(scalar_t);
    first = wrapped(first + kChunkBytes);
  }

  // A whole slice lies on one side of the left edge.
  LLTM_JIT_DEVICE bool has_column(int left) const { return left > 0 && left <= call.args.in_w; }

  // The number of elements of a piece that are in the image.
  LLTM_JIT_DEVICE int valid_of_piece(int rows, int columns) const {
    const int left = K::kWhole && kRowLanes <= 32 ? kPieceElements : columns_left - columns;
    const bool inside = static_cast<unsigned>(row + rows) < static_cast<unsigned>(call.args.in_h) &&
                        (kRowLanes <= 32 || has_column(left));
    return inside ? left : 0;
  }

  // A copy of this many bytes lies inside or outside the image as a whole.
  template <int kBytesOfCopy>
  LLTM_JIT_DEVICE void copy() {
    constexpr int kSize = sizeof(scalar_t);
    for_each_piece([&](int rows, int columns) {
      const int valid = valid_of_piece(rows, columns);
      const char* from = source + (rows * call.args.x_strides[2] + columns) * kSize;
#pragma unroll
      for (int c = 0; c < 16; c += kBytesOfCopy) {
        copy_async<kBytesOfCopy>(lane_piece() + offset(rows, columns) + c, from + c,
                                 valid * kSize > c ? kBytesOfCopy : 0);
      }
    });
  }

  // Copies element by element, at any alignment.
  LLTM_JIT_DEVICE void copy_elements() {
    using Bits = std::conditional_t<sizeof(scalar_t) == 2, uint16_t, uint32_t>;
    for_each_piece([&](int rows, int columns) {
      const int valid = valid_of_piece(rows, columns);
      const Bits* from = reinterpret_cast<const Bits*>(source) + rows * call.args.x_strides[2] +
                         columns * call.args.x_strides[3];
      uint32_t words[4] = {};
      LLTM_JIT_UNROLLED(e, kPieceElements) {
        const uint32_t bits = e < valid ? from[e * call.args.x_strides[3]] : 0;
        words[e * sizeof(Bits) / 4] |= bits << e * sizeof(Bits) * 8 % 32;
      }
      asm volatile(
          "st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(lane_piece() + offset(rows, columns)),
          "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
          : "memory");
    });
  }
};

}  // namespace lltm_jit
