// filtered_lrelu on the CPU.
//
// Note [Rows on their way]
// A task goes down a band of rows of y in one plane. It keeps the last rows of x, upsampled along the
// rows, and the last rows of v, as many as the filters reach over, in two rings that stay in the first
// caches. Every step is a weighted sum of rows: along the columns those of a ring, along the rows the
// same row at several places. For that a row of v lies in `down` parts, of the samples j, j + down, ...:
// then all samples of a part meet the same taps. Nothing depends on how many bands there are.
#include <algorithm>
#include <vector>

#include "core/cpu/channel_sum.h"
#include "core/cpu/parallel.h"
#include "core/cpu/vectorized.h"
#include "stylegan/filtered_lrelu/filtered_lrelu_math.h"

namespace lltm_jit {
namespace {

template <typename acc_t>
constexpr int kLanes = at::vec::Vectorized<acc_t>::size();

template <typename acc_t>
int whole_vectors(int count) {
  return ceil_div(count, kLanes<acc_t>) * kLanes<acc_t>;
}

// Rows and their weights, and target[i] = finish(sum of weights[k] * rows[k][i]): `n` elements, of the
// last vector all lanes.
template <typename acc_t>
struct WeightedSum {
  std::vector<const acc_t*> rows;
  std::vector<acc_t> weights;

  void clear() {
    rows.clear();
    weights.clear();
  }
  void add(const acc_t* row, acc_t weight) {
    rows.push_back(row);
    weights.push_back(weight);
  }

  template <int kVectors, typename Finish>
  void write_block(acc_t* target, int i, const Finish& finish) const {
    using Vec = at::vec::Vectorized<acc_t>;
    Vec sums[kVectors];
    for (auto& sum : sums) sum = Vec(acc_t(0));
    const size_t count = rows.size();
    for (size_t k = 0; k < count; ++k) {
      const Vec weight(weights[k]);
      const acc_t* row = rows[k] + i;
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        sums[v] = at::vec::fmadd(Vec::loadu(row + v * Vec::size()), weight, sums[v]);
      }
    }
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) finish(sums[v]).store(target + i + v * Vec::size());
  }

  template <typename Finish>
  void write(acc_t* target, int n, const Finish& finish) const {
    constexpr int kVectors = 4;
    int i = 0;
    for (; i + (kVectors - 1) * kLanes<acc_t> < n; i += kVectors * kLanes<acc_t>) {
      write_block<kVectors>(target, i, finish);
    }
    for (; i < n; i += kLanes<acc_t>) write_block<1>(target, i, finish);
  }
  void write(acc_t* target, int n) const {
    write(target, n, [](const auto& sum) { return sum; });
  }
};

// A filter's taps in the order in which they meet samples: see Note [Phases].
template <typename acc_t>
struct Taps {
  int width, height;
  bool separable;
  std::vector<acc_t> taps;

  explicit Taps(const FirFilter& filter)
      : width(filter.width), height(height_of(filter)), separable(filter.height == 0) {
    for (int y = 0; y < (separable ? 1 : height); ++y) {
      const int row = separable ? 0 : tap_index(y, height, filter.flip);
      for (int x = 0; x < width; ++x) {
        const int place = row * width + tap_index(x, width, filter.flip);
        taps.push_back(filter.taps ? filter.taps[place] : 1);
      }
    }
  }
  acc_t operator[](int x) const { return taps[x]; }
  acc_t at(int y, int x) const { return taps[y * width + x]; }
};

// Where rows lie in the scratch of a task, the same for all planes.
template <typename acc_t>
struct Layout {
  Taps<acc_t> fu, fd;
  std::vector<Phase> columns;   // of m = 0 ... up - 1
  int left, row_pitch;          // of a row of x: samples left of its first, and all
  int per_phase, phase_pitch;   // of a row of u that lies in `up` phases
  int per_part, part_pitch;     // of one that lies in `down` parts
  int ring_rows, v_rows;        // of the rings
  std::vector<int64_t> words;   // of the signs of columns
  std::vector<uint8_t> bits;

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
    if (args.mode == Signs::None) return;
    for (int column = 0; column < args.mid_w; ++column) {
      const auto place = sign_column<int64_t>(column + args.sign_x);
      words.push_back(place.word);
      bits.push_back(static_cast<uint8_t>(place.bit));
    }
  }
};

// source[part][i] to target[i * parts + part]; or back.
template <int kParts, bool kBack, typename acc_t>
void interleave_by(acc_t* parts, int pitch, int count, int parts_count, acc_t* row) {
  const int step = kParts ? kParts : parts_count;
  for (int i = 0; i < count; ++i) {
    for (int part = 0; part < step; ++part) {
      if constexpr (kBack) {
        parts[part * pitch + i] = row[i * step + part];
      } else {
        row[i * step + part] = parts[part * pitch + i];
      }
    }
  }
}
template <bool kBack, typename acc_t>
void interleave(acc_t* parts, int pitch, int count, int parts_count, acc_t* row) {
  if (parts_count == 2) return interleave_by<2, kBack>(parts, pitch, count, 2, row);
  if (parts_count == 4) return interleave_by<4, kBack>(parts, pitch, count, 4, row);
  interleave_by<0, kBack>(parts, pitch, count, parts_count, row);
}

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
        x_(static_cast<const scalar_t*>(args.x) + plane / args.channels * args.x_strides[0] +
           channel_ * args.x_strides[1]),
        y_(static_cast<scalar_t*>(args.y) + plane * args.out_h * args.out_w) {
    if (args.bias) bias_ = static_cast<const scalar_t*>(args.bias)[channel_];
    if (args.mode != Signs::None) signs_ = args.signs + plane * sign_words<int64_t>(a_.sign_h, a_.sign_w);
    const int whole_row = a_.down * l_.part_pitch;
    source_pitch_ = l_.fu.separable ? whole_row : l_.row_pitch;
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

  // Rows [begin, end) of y. Signs are written of the rows of v below `end`'s first.
  void run(int begin, int end) {
    sign_begin_ = begin * a_.down;
    sign_end_ = end == a_.out_h ? a_.mid_h : end * a_.down;
    int v_row = 0;
    for (int y_row = begin; y_row < end; ++y_row) {
      const int first = y_row * a_.down;
      v_row = std::max(v_row, first);
      for (; v_row < first + l_.v_rows; ++v_row) make_v(v_row);
      make_y(y_row);
    }
  }

 private:
  acc_t* source(int row) { return ring_ + size_t(row % l_.ring_rows) * source_pitch_; }
  acc_t* v(int row) { return v_ring_ + size_t(row % l_.v_rows) * (a_.down * l_.part_pitch); }
  int in_part(int part) const { return ceil_div(a_.mid_w - part, a_.down); }

  // A row of x plus the bias, as the first product takes it.
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

  // Rows of x up to `last` into the ring, where they are not there yet; separable filters go along them.
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
          sum_.add(row_ + l_.left + phase.first + k, l_.fu[phase.tap + k * a_.up]);
        }
      });
    }
  }

  // A row of u in parts, from what `add_rows` adds for each phase of its columns.
  template <typename AddRows>
  void in_phases(acc_t* target, const AddRows& add_rows) {
    const bool same = a_.up == a_.down;
    acc_t* phases = same ? target : a_.up == 1 ? natural_ : phases_;
    const int pitch = same ? l_.part_pitch : l_.phase_pitch;
    for (int phase = 0; phase < a_.up; ++phase) {
      sum_.clear();
      add_rows(l_.columns[phase]);
      sum_.write(phases + phase * pitch, ceil_div(a_.mid_w - phase, a_.up));
    }
    if (same) return;
    acc_t* natural = a_.down == 1 ? target : natural_;
    if (a_.up > 1) interleave<false>(phases_, pitch, l_.per_phase, a_.up, natural);
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
            sum_.add(x + i, gain_ * l_.fu.at(phase.tap + k * a_.up, column.tap + i * a_.up));
          }
        }
      });
      sum_.clear();
      sum_.add(target, 1);
    } else {
      sum_.clear();
      for (int k = begin; k < end; ++k) {
        sum_.add(source(phase.first + k), gain_ * l_.fu[phase.tap + k * a_.up]);
      }
    }
    if (a_.mode != Signs::None) {
      in_parts(target, [](const Vec& u) { return u; });
      return a_.mode == Signs::Write ? write_signs(row, target) : read_signs(row, target);
    }
    const Vec slope(slope_), most(clamp_), least(-clamp_), zero(acc_t(0));
    in_parts(target, [&](const Vec& u) {
      const Vec value = Vec::blendv(u, slope * u, u < zero);
      return Vec::blendv(Vec::blendv(value, most, value > most), least, value < least);
    });
  }

  template <typename Finish>
  void in_parts(acc_t* target, const Finish& finish) {
    for (int part = 0; part < a_.down; ++part) {
      sum_.write(target + part * l_.part_pitch, in_part(part), finish);
      for (auto& row : sum_.rows) row += l_.part_pitch;
    }
  }

  void write_signs(int row, acc_t* u) {
    const bool own = row >= sign_begin_ && row < sign_end_;
    const auto place = sign_row<int64_t>(row, a_.sign_w);
    for (int part = 0; part < a_.down; ++part) {
      acc_t* values = u + part * l_.part_pitch;
      for (int i = 0; i < in_part(part); ++i) {
        const auto [value, negative, clamped] = activate(values[i], slope_, clamp_);
        values[i] = value;
        if (!own) continue;
        const int column = i * a_.down + part;
        signs_[place.word + l_.words[column]] |= uint32_t(negative | clamped << 1)
                                                 << (place.bit + l_.bits[column]);
      }
    }
  }

  void read_signs(int row, acc_t* u) {
    const int sign_row_index = row + a_.sign_y;
    const bool inside = sign_row_index >= 0 && sign_row_index < a_.sign_h;
    const auto place = sign_row<int64_t>(inside ? sign_row_index : 0, a_.sign_w);
    for (int part = 0; part < a_.down; ++part) {
      acc_t* values = u + part * l_.part_pitch;
      for (int i = 0; i < in_part(part); ++i) {
        const int column = i * a_.down + part, sign = column + a_.sign_x;
        if (!inside || sign < 0 || sign >= a_.sign_w) {
          values[i] = 0;
          continue;
        }
        const uint32_t bits = signs_[place.word + l_.words[column]] >> (place.bit + l_.bits[column]);
        values[i] = bits & 2 ? acc_t(0) : bits & 1 ? slope_ * values[i] : values[i];
      }
    }
  }

  void make_y(int row) {
    const int first = row * a_.down;
    if (l_.fd.separable) {
      sum_.clear();
      for (int k = 0; k < l_.fd.height; ++k) sum_.add(v(first + k), l_.fd[k]);
      in_parts(parts_, [](const Vec& sum) { return sum; });
      sum_.clear();
      for (int k = 0; k < l_.fd.width; ++k) add_column(parts_, k, l_.fd[k]);
    } else {
      sum_.clear();
      for (int i = 0; i < l_.fd.height; ++i) {
        for (int k = 0; k < l_.fd.width; ++k) add_column(v(first + i), k, l_.fd.at(i, k));
      }
    }
    sum_.write(natural_, a_.out_w);
    scalar_t* y = y_ + int64_t(row) * a_.out_w;
    for (int i = 0; i < a_.out_w; i += Vec::size()) {
      store(y + i, Vec::loadu(natural_ + i), std::min(Vec::size(), a_.out_w - i));
    }
  }

  void add_column(const acc_t* parts, int k, acc_t weight) {
    sum_.add(parts + k % a_.down * l_.part_pitch + k / a_.down, weight);
  }

  const FilteredLreluArgs& a_;
  const Layout<acc_t>& l_;
  const acc_t gain_, slope_, clamp_;
  const int64_t channel_;
  const scalar_t* x_;
  scalar_t* y_;
  acc_t bias_ = 0;
  uint32_t* signs_ = nullptr;
  int sign_begin_ = 0, sign_end_ = 0, next_source_ = 0, source_pitch_;
  std::vector<acc_t> scratch_;
  acc_t *ring_, *v_ring_, *row_, *phases_, *natural_, *parts_;
  WeightedSum<acc_t> sum_;
};

// Rows of y of a band: all where there are planes enough for the threads.
int band_rows(const FilteredLreluArgs& args) {
  const int64_t planes = args.batch * args.channels, tasks = 4 * at::get_num_threads();
  if (planes >= tasks) return args.out_h;
  // A band begins by making rows of v again that the band above has made, and owns whole words.
  const int least = std::max(8, 4 * height_of(args.fd) / args.down);
  const int rows = std::max<int>(least, ceil_div(int64_t(args.out_h), ceil_div(tasks, planes)));
  return ceil_div(rows, kSignRows) * kSignRows;
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

template void channel_sum_cpu(const ChannelSumArgs&);

void filtered_lrelu_cpu(const FilteredLreluArgs& args) {
  dispatch_floating(args.type, [&](auto scalar) { run_all<decltype(scalar)>(args); });
}

}  // namespace lltm_jit
