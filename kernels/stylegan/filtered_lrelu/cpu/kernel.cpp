// filtered_lrelu on the CPU.
//
// Note [Rows on their way]
// A task walks down a band of rows of y in one plane. It keeps the last rows of x, upsampled along the rows,
// and the last rows of v, as many as the filters reach over, in two ring buffers that stay in the first-level
// caches. Every step is a weighted sum of rows: for the columns, of different rows of a ring; for the rows, of
// one row at different places. For that, a row of v is stored in `down` parts, of the samples j, j + down, ...:
// then all samples of a part meet the same taps. No result depends on the number of bands.
#include <algorithm>
#include <vector>

#include "core/launch/parallel.h"
#include "stylegan/filtered_lrelu/cpu/sign_rows.h"
#include "stylegan/filtered_lrelu/cpu/taps.h"
#include "stylegan/filtered_lrelu/maths.h"
#include "stylegan/weighted_sum.h"

namespace lltm_jit {
namespace {

// Where rows lie in a task's scratch memory, which is the same for all planes.
template <typename acc_t>
struct Layout {
  Taps<acc_t> fu, fd;
  std::vector<Phase> columns;  // of the samples m = 0 ... up - 1
  int left, row_pitch;         // of a row of x: samples left of its first, and all
  int per_phase, phase_pitch;  // of a row of u that lies in `up` phases
  int per_part, part_pitch;    // of a row that lies in `down` parts
  int ring_rows, v_rows;       // of the rings

  explicit Layout(const FilteredLreluArgs& args) : fu(args.fu), fd(args.fd) {
    const int up = args.up, down = args.down, lanes = kLanes<acc_t>;
    per_phase = ceil_div(args.mid_w, up);
    phase_pitch = whole_vectors<acc_t>(per_phase);
    per_part = std::max(ceil_div(args.mid_w, down), args.out_w + (fd.width - 1) / down);
    part_pitch = whole_vectors<acc_t>(per_part + up) + lanes;
    int begin = 0, end = args.in_w;
    for (int m = 0; m < up; ++m) {
      columns.push_back(phase_of(m, args.pad_x, up, fu.width));
      begin = std::min(begin, columns[m].first);
      end = std::max(end, columns[m].first + columns[m].count + phase_pitch);
    }
    left = -begin;
    row_pitch = whole_vectors<acc_t>(end - begin) + lanes;
    ring_rows = ceil_div(fu.height, up);
    v_rows = fd.height;
  }
};

template <typename scalar_t>
class Band {
  using acc_t = opmath_t<scalar_t>;
  using Vec = at::vec::Vectorized<acc_t>;

 public:
  Band(const FilteredLreluArgs& args, const Layout<acc_t>& layout, int64_t plane)
      : a_(args),
        l_(layout),
        gain_(static_cast<acc_t>(args.gain)),
        slope_(static_cast<acc_t>(args.slope)),
        clamp_(static_cast<acc_t>(args.clamp)),
        channel_(plane % args.channels),
        map_(args.mode == Signs::None ? 0 : a_.sign_h, args.mode == Signs::None ? 0 : a_.sign_w,
             a_.sign_phase_y, a_.sign_phase_x),
        sign_row_(map_),
        x_(static_cast<const scalar_t*>(args.x) + plane / args.channels * args.x_strides[0] +
           channel_ * args.x_strides[1]),
        y_(static_cast<scalar_t*>(args.y) + plane * args.out_h * args.out_w) {
    if (args.bias) bias_ = static_cast<const scalar_t*>(args.bias)[channel_];
    if (args.mode != Signs::None) signs_ = args.signs + plane * map_.words_per_plane();
    const int whole_row = a_.down * l_.part_pitch;
    source_pitch_ = l_.fu.separable ? whole_row : l_.row_pitch;
    if (args.mode != Signs::None) {
      part_codes_.resize(whole_row);
      natural_codes_.resize(whole_row);
    }
    const int natural = std::max(a_.up * l_.phase_pitch, whole_row) + kLanes<acc_t>;
    scratch_.assign(size_t(l_.ring_rows) * source_pitch_ + size_t(l_.v_rows) * whole_row +
                        l_.row_pitch + a_.up * l_.phase_pitch + natural + whole_row,
                    acc_t(0));
    acc_t* next = scratch_.data();
    const auto take = [&](size_t count) {
      acc_t* begin = next;
      next += count;
      return begin;
    };
    ring_ = take(size_t(l_.ring_rows) * source_pitch_);
    v_ring_ = take(size_t(l_.v_rows) * whole_row);
    row_ = take(l_.row_pitch);
    phases_ = take(a_.up * l_.phase_pitch);
    natural_ = take(natural);
    parts_ = take(whole_row);
  }

  // Makes rows [begin, end) of y. Bands that write signs divide the rows of v at tiles of the map.
  void run(int begin, int end) {
    const bool writes = a_.mode == Signs::Write;
    sign_begin_ = writes ? tile_begin(begin * a_.down) : 0;
    sign_end_ = !writes ? 0 : end == a_.out_h ? a_.mid_h : tile_begin(end * a_.down);
    int v_row = 0;
    for (int y_row = begin; y_row < end; ++y_row) {
      const int first = y_row * a_.down;
      v_row = std::max(v_row, first);
      for (; v_row < first + l_.v_rows; ++v_row) make_v(v_row);
      make_y(y_row);
    }
    for (; v_row < sign_end_; ++v_row) make_v(v_row);
  }

 private:
  acc_t* source(int row) { return ring_ + size_t(row % l_.ring_rows) * source_pitch_; }
  acc_t* v(int row) { return v_ring_ + size_t(row % l_.v_rows) * (a_.down * l_.part_pitch); }
  int in_part(int part) const { return ceil_div(a_.mid_w - part, a_.down); }

  // Reads a row of x and adds the bias, in the layout of the first product.
  void read_x(int row, acc_t* target) {
    const scalar_t* x = x_ + row * a_.x_strides[2];
    target += l_.left;
    const int64_t step = a_.x_strides[3];
    if (step == 1) {
      for (int i = 0; i < a_.in_w; i += Vec::size()) {
        const int n = std::min(Vec::size(), a_.in_w - i);
        store(target + i, load(x + i, n) + Vec(bias_), n);
      }
      return;
    }
    for (int i = 0; i < a_.in_w; ++i) target[i] = static_cast<acc_t>(x[i * step]) + bias_;
  }

  // Fills the ring with rows of x up to `last`; a separable filter is applied along the rows.
  void need_source(int first, int last) {
    next_source_ = std::max(next_source_, std::max(first, 0));
    for (; next_source_ <= std::min(last, a_.in_h - 1); ++next_source_) {
      if (!l_.fu.separable) {
        read_x(next_source_, source(next_source_));
        continue;
      }
      read_x(next_source_, row_);
      acc_t* target = source(next_source_);
      in_phases(target, [&](const Phase& phase) {
        for (int k = 0; k < phase.count; ++k) {
          sum_.terms.push_back({row_ + l_.left + phase.first + k, l_.fu[phase.tap + k * a_.up]});
        }
      });
    }
  }

  // Makes a row of u in parts, from the terms that `add_rows` adds for each phase of its columns.
  template <typename AddRows>
  void in_phases(acc_t* target, const AddRows& add_rows) {
    const bool same = a_.up == a_.down;
    acc_t* phases = same ? target : a_.up == 1 ? natural_ : phases_;
    const int pitch = same ? l_.part_pitch : l_.phase_pitch;
    for (int phase = 0; phase < a_.up; ++phase) {
      sum_.terms.clear();
      add_rows(l_.columns[phase]);
      sum_.write(phases + phase * pitch, ceil_div(a_.mid_w - phase, a_.up));
    }
    if (same) return;
    acc_t* natural = a_.down == 1 ? target : natural_;
    if (a_.up > 1) interleave<false>(phases, pitch, l_.per_phase, a_.up, natural);
    if (a_.down > 1) {
      interleave<true>(target, l_.part_pitch, ceil_div(a_.mid_w, a_.down), a_.down, natural);
    }
  }

  void make_v(int row) {
    const Phase phase = phase_of(row, a_.pad_y, a_.up, l_.fu.height);
    need_source(phase.first, phase.first + phase.count - 1);
    const int begin = std::max(0, -phase.first);
    const int end = std::min(phase.count, a_.in_h - phase.first);
    acc_t* target = v(row);
    if (!l_.fu.separable) {
      in_phases(target, [&](const Phase& column) {
        for (int k = begin; k < end; ++k) {
          const acc_t* x = source(phase.first + k) + l_.left + column.first;
          for (int i = 0; i < column.count; ++i) {
            sum_.terms.push_back(
                {x + i, gain_ * l_.fu.at(phase.tap + k * a_.up, column.tap + i * a_.up)});
          }
        }
      });
      sum_.terms.clear();
      sum_.terms.push_back({target, 1});
    } else {
      sum_.terms.clear();
      for (int k = begin; k < end; ++k) {
        sum_.terms.push_back({source(phase.first + k), gain_ * l_.fu[phase.tap + k * a_.up]});
      }
    }
    if (a_.mode == Signs::Read) {
      in_parts(target, [](const Vec& u) { return u; });
      return apply_signs(row, target);
    }
    if (a_.mode == Signs::Write && row >= sign_begin_ && row < sign_end_) {
      return activate_and_keep_signs(row, target);
    }
    in_parts(target, [&](const Vec& u) { return activated(u).value; });
  }

  struct Activated {
    Vec value, negative, above, below;  // masks
  };
  Activated activated(const Vec& u) const {
    const Vec negative = u < Vec(acc_t(0)), value = Vec::blendv(u, Vec(slope_) * u, negative);
    const Vec above = value > Vec(clamp_), below = value < Vec(-clamp_);
    return {Vec::blendv(Vec::blendv(value, Vec(clamp_), above), Vec(-clamp_), below), negative,
            above, below};
  }

  template <typename Finish>
  void in_parts(acc_t* target, const Finish& finish) {
    for (int part = 0; part < a_.down; ++part) {
      sum_.write(target + part * l_.part_pitch, in_part(part), finish);
      for (auto& term : sum_.terms) term.row += l_.part_pitch;
    }
  }

  // The first row, at or after `row`, at which a tile of the map begins.
  int tile_begin(int row) const {
    constexpr int kRows = SignRows::Map::kTileRows;
    return row == 0 ? 0 : ceil_div(row + map_.phase_y, kRows) * kRows - map_.phase_y;
  }

  void activate_and_keep_signs(int row, acc_t* target) {
    bool any_clamped = false;
    in_parts(target, [](const Vec& u) { return u; });
    for (int part = 0; part < a_.down; ++part) {
      acc_t* values = target + part * l_.part_pitch;
      uint8_t* codes = part_codes_.data() + part * l_.part_pitch;
      for (int i = 0; i < in_part(part); i += Vec::size()) {
        const Activated result = activated(Vec::loadu(values + i));
        result.value.store(values + i);
        put_codes(codes + i, result.negative, 1);
        const Vec clamped = result.above | result.below;
        if (clamped.zero_mask() == kAllLanes) continue;
        any_clamped = true;
        put_codes(codes + i, clamped, 2);
      }
    }
    interleave<false>(part_codes_.data(), l_.part_pitch, ceil_div(a_.mid_w, a_.down), a_.down,
                      natural_codes_.data());
    std::copy_n(natural_codes_.data(), a_.mid_w, sign_row_.codes());
    sign_row_.write(signs_, row, any_clamped);
  }

  // Sets a bit in the codes of a vector's lanes where a mask is set. Setting the lowest bit clears the others.
  static constexpr int kAllLanes = (1 << Vec::size()) - 1;
  static void put_codes(uint8_t* codes, const Vec& mask, uint8_t bit) {
    const int zeros = mask.zero_mask();
    for (int lane = 0; lane < Vec::size(); ++lane) {
      const auto set = static_cast<uint8_t>((~zeros >> lane & 1) * bit);
      codes[lane] = bit == 1 ? set : static_cast<uint8_t>(codes[lane] | set);
    }
  }

  void apply_signs(int row, acc_t* u) {
    constexpr uint8_t kOutside = 2;  // counts as clamped
    const int sign_row = row + a_.sign_y;
    std::fill_n(natural_codes_.data(), natural_codes_.size(), kOutside);
    const int begin = std::max(0, -a_.sign_x), end = std::min(a_.mid_w, a_.sign_w - a_.sign_x);
    if (sign_row >= 0 && sign_row < a_.sign_h && begin < end) {
      sign_row_.read(signs_, sign_row);
      std::copy_n(sign_row_.codes() + begin + a_.sign_x, end - begin,
                  natural_codes_.data() + begin);
    }
    interleave<true>(part_codes_.data(), l_.part_pitch, ceil_div(a_.mid_w, a_.down), a_.down,
                     natural_codes_.data());
    const acc_t factors[] = {1, slope_, 0, 0};
    for (int part = 0; part < a_.down; ++part) {
      acc_t* values = u + part * l_.part_pitch;
      const uint8_t* codes = part_codes_.data() + part * l_.part_pitch;
      for (int i = 0; i < in_part(part); ++i) values[i] *= factors[codes[i]];
    }
  }

  void make_y(int row) {
    const int first = row * a_.down;
    if (l_.fd.separable) {
      sum_.terms.clear();
      for (int k = 0; k < l_.fd.height; ++k) sum_.terms.push_back({v(first + k), l_.fd[k]});
      in_parts(parts_, [](const Vec& sum) { return sum; });
      sum_.terms.clear();
      for (int k = 0; k < l_.fd.width; ++k) add_column(parts_, k, l_.fd[k]);
    } else {
      sum_.terms.clear();
      for (int i = 0; i < l_.fd.height; ++i) {
        for (int k = 0; k < l_.fd.width; ++k) add_column(v(first + i), k, l_.fd.at(i, k));
      }
    }
    sum_.write(natural_, a_.out_w);
    convert(natural_, a_.out_w, y_ + int64_t(row) * a_.out_w);
  }

  void add_column(const acc_t* parts, int k, acc_t weight) {
    sum_.terms.push_back({parts + k % a_.down * l_.part_pitch + k / a_.down, weight});
  }

  const FilteredLreluArgs& a_;
  const Layout<acc_t>& l_;
  const acc_t gain_, slope_, clamp_;
  const int64_t channel_;
  const SignRows::Map map_;
  SignRows sign_row_;
  std::vector<uint8_t> part_codes_, natural_codes_;  // of a row, for SignRows
  const scalar_t* x_;
  scalar_t* y_;
  acc_t bias_ = 0;
  uint32_t* signs_ = nullptr;
  int sign_begin_ = 0, sign_end_ = 0, next_source_ = 0, source_pitch_;
  std::vector<acc_t> scratch_;
  acc_t *ring_, *v_ring_, *row_, *phases_, *natural_, *parts_;
  WeightedSum<acc_t> sum_;
};

// Rows of y in a band: the whole plane if there are enough planes for the threads.
int band_rows(const FilteredLreluArgs& args) {
  const int64_t planes = args.batch * args.channels, tasks = 4 * at::get_num_threads();
  if (planes >= tasks) return args.out_h;
  // A band begins by making rows of v that the band above has made, too.
  const int least = std::max(8, 4 * height_of(args.fd) / args.down);
  return std::max<int>(least, ceil_div(int64_t(args.out_h), ceil_div(tasks, planes)));
}

template <typename scalar_t>
void run_all(const FilteredLreluArgs& args) {
  const Layout<opmath_t<scalar_t>> layout(args);
  const int rows = band_rows(args);
  const int64_t bands = ceil_div(args.out_h, rows), tasks = args.batch * args.channels * bands;
  const int64_t work = int64_t(rows) * args.out_w * (args.fu.width + args.fd.width) * args.up;
  constexpr int64_t kGrainWork = 32768;
  for_each_task(tasks, std::max<int64_t>(1, kGrainWork / std::max<int64_t>(1, work)),
                [&](int64_t task) {
                  Band<scalar_t> band(args, layout, task / bands);
                  const int begin = static_cast<int>(task % bands) * rows;
                  band.run(begin, std::min(args.out_h, begin + rows));
                });
}

}  // namespace

void filtered_lrelu_cpu(const FilteredLreluArgs& args) {
  dispatch_floating(args.type, [&](auto scalar) { run_all<decltype(scalar)>(args); });
}

}  // namespace lltm_jit
