// The CPU kernel of upfirdn2d: sums of shifted rows, each a loop over neighbouring elements.
//
// Note [Phases]
// With o = up m + a, tap t of output phase a meets input m down + k, k = (a down - pad + t) / up.
// So an input row is taken apart into `down` rows of every down-th sample, with zeros around them.
// An output phase is a sum of those rows, shifted, and the `up` phases are interleaved again. If
// the channels are last, a sample is a pixel of `inner` elements; nothing else changes.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "core/launch/parallel.h"
#include "stylegan/upfirdn2d/kernels.h"
#include "stylegan/weighted_sum.h"

namespace lltm_jit {
namespace {

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

// The filter in the arithmetic type, h of kernels.h: [taps_y, taps_x] or, if separable, one axis'
// taps after the other's. The vertical taps (or all of them) include the gain.
template <typename T>
struct Filter {
  std::vector<T> h;
  bool separable;
  int64_t taps_x;

  explicit Filter(const Upfirdn2dArgs& args)
      : separable(args.separable), taps_x(args.horizontal.taps) {
    const int64_t taps_y = args.vertical.taps;
    if (args.f == nullptr) {
      h = {T(1), T(args.gain)};
      return;
    }
    dispatch_floating(args.filter_type, [&](auto scalar) {
      const auto* f = static_cast<const decltype(scalar)*>(args.f);
      const auto add = [&](const UpfirdnAxis& axis, const auto* taps, double gain) {
        for (int64_t t = 0; t < axis.taps; ++t) {
          h.push_back(T(T(taps[tap_of_filter(t, axis.taps, args.flip)]) * gain));
        }
      };
      if (separable) {
        add(args.horizontal, f, 1);
        return add(args.vertical, f, args.gain);
      }
      for (int64_t t = 0; t < taps_y; ++t) {
        add(args.horizontal, f + tap_of_filter(t, taps_y, args.flip) * taps_x, args.gain);
      }
    });
    if (!separable) separate(taps_y);
  }
  T vertical(int64_t t) const { return h[taps_x + t]; }
  const T* row(int64_t ty) const { return h.data() + ty * taps_x; }

 private:
  // Note [Filters of rank one] in cuda/strip.cuh.
  void separate(int64_t taps_y) {
    const auto smaller = [](T a, T b) { return std::abs(a) < std::abs(b); };
    const int64_t place = std::max_element(h.begin(), h.end(), smaller) - h.begin();
    const int64_t p = place / taps_x, q = place % taps_x;
    const T largest = h[place], bound = 4 * std::numeric_limits<T>::epsilon();
    if (!(std::abs(largest) > 0)) return;
    std::vector<T> parts;
    for (int64_t tx = 0; tx < taps_x; ++tx) parts.push_back(h[p * taps_x + tx] / largest);
    for (int64_t ty = 0; ty < taps_y; ++ty) {
      const T down = h[ty * taps_x + q];
      for (int64_t tx = 0; tx < taps_x; ++tx) {
        const T tap = h[ty * taps_x + tx];
        if (!(std::abs(tap - parts[tx] * down) <= bound * std::abs(tap))) return;
      }
      parts.push_back(down);
    }
    h = std::move(parts);
    separable = true;
  }
};

// Filters rows of one plane, or of one image of pixels, with rows of memory of its own.
template <typename scalar_t>
class RowWorker {
  using T = opmath_t<scalar_t>;

 public:
  RowWorker(const Upfirdn2dArgs& args, const Filter<T>& filter)
      : args_(args),
        filter_(filter),
        x_(args.horizontal),
        y_(args.vertical),
        inner_(args.channels_last ? args.channels : 1),
        groups_(ceil_div(x_.out, x_.up)),
        first_(floor_div(floor_div(-x_.pad, x_.up), x_.down)),
        length_(
            (groups_ - first_ +
             floor_div(floor_div((x_.up - 1) * x_.down - x_.pad + x_.taps - 1, x_.up), x_.down)) *
            inner_),
        kept_(y_.taps / y_.up + 2),
        row_length_(filter.separable ? x_.out * inner_ : x_.down * length_),
        parts_(x_.down * length_ + kLanes<T>),
        phases_(x_.up * groups_ * inner_) {
    find_taps();
    rows_.resize(kept_ * row_length_ + kLanes<T>);
  }

  // Computes output rows [begin, end) of one plane.
  void run(const scalar_t* x, scalar_t* y, int64_t begin, int64_t end) {
    int64_t next = 0;  // the first input row that was not kept yet
    for (int64_t oy = begin; oy < end; ++oy) {
      const int64_t start = oy * y_.down - y_.pad;  // of tap 0, in the upsampled image
      const int64_t low = std::max<int64_t>(-floor_div(-start, y_.up), 0);
      const int64_t high = std::min(floor_div(start + y_.taps - 1, y_.up), y_.in - 1);
      for (int64_t iy = std::max(next, low); iy <= high; ++iy) keep(x, iy);
      next = std::max(next, high + 1);
      scalar_t* out = y + oy * x_.out * inner_;
      if (filter_.separable) {
        sum_.terms.clear();
        for (int64_t iy = low; iy <= high; ++iy) {
          sum_.terms.push_back({kept(iy), filter_.vertical(iy * y_.up - start)});
        }
        sum_.write(out, x_.out * inner_);
      } else {
        horizontal(out, [&](int64_t phase) {
          for (int64_t iy = low; iy <= high; ++iy) {
            add_terms(kept(iy), filter_.row(iy * y_.up - start), phase);
          }
        });
      }
    }
  }

 private:
  T* kept(int64_t iy) { return rows_.data() + iy % kept_ * row_length_; }

  // Takes an input row apart; a separable filter is also applied horizontally, once for all output rows.
  void keep(const scalar_t* x, int64_t iy) {
    const scalar_t* row = x + iy * x_.in * inner_;
    if (!filter_.separable) return take_apart(row, kept(iy));
    take_apart(row, parts_.data());
    horizontal(kept(iy), [&](int64_t phase) { add_terms(parts_.data(), filter_.h.data(), phase); });
  }

  void take_apart(const scalar_t* row, T* parts) const {
    for (int64_t part = 0; part < x_.down; ++part, parts += length_) {
      // Sample j of a part is sample first_ + j of every down-th one, counted from `part`.
      const int64_t samples = length_ / inner_;
      const int64_t inside = ceil_div(std::max<int64_t>(x_.in - part, 0), x_.down);
      const int64_t begin = std::clamp<int64_t>(-first_, 0, samples);
      const int64_t end = std::clamp<int64_t>(inside - first_, begin, samples);
      std::fill(parts, parts + begin * inner_, T(0));
      std::fill(parts + end * inner_, parts + length_, T(0));
      const scalar_t* source = row + ((first_ + begin) * x_.down + part) * inner_;
      T* target = parts + begin * inner_;
      const int64_t count = end - begin;
      if (x_.down == 1) {
        convert(source, count * inner_, target);
      } else if (inner_ > 1) {
        for (int64_t j = 0; j < count; ++j) {
          convert(source + j * x_.down * inner_, inner_, target + j * inner_);
        }
      } else if (x_.down == 2) {
        every_second(source, count, target);
      } else {
        for (int64_t j = 0; j < count; ++j) target[j] = source[j * x_.down];
      }
    }
  }

  // Finds the taps of each output phase and their places. Note [Phases]
  void find_taps() {
    for (int64_t phase = 0; phase < x_.up; ++phase) {
      std::vector<Tap>& taps = taps_.emplace_back();
      const int64_t start = phase * x_.down - x_.pad;
      for (int64_t t = 0; t < x_.taps; ++t) {
        if ((start + t) % x_.up != 0) continue;
        const int64_t k = (start + t) / x_.up, shift = floor_div(k, x_.down);
        taps.push_back({t, (k - shift * x_.down) * length_ + (shift - first_) * inner_});
      }
    }
  }

  // Adds the terms of one filter row to an output phase.
  void add_terms(const T* parts, const T* h, int64_t phase) {
    for (const auto& [t, offset] : taps_[phase]) sum_.terms.push_back({parts + offset, h[t]});
  }

  // Computes an output row. Each of its phases is the sum of the terms that `add(phase)` adds.
  template <typename out_t, typename Add>
  void horizontal(out_t* out, const Add& add) {
    for (int64_t phase = 0; phase < x_.up; ++phase) {
      sum_.terms.clear();
      add(phase);
      if (x_.up == 1) return sum_.write(out, x_.out * inner_);
      sum_.write(phases_.data() + phase * groups_ * inner_, groups_ * inner_);
    }
    put_together(out);
  }

  template <typename out_t>
  void put_together(out_t* out) const {
    const T* even = phases_.data();
    if (inner_ == 1 && x_.up == 2) {
      const T* odd = even + groups_;
      const int64_t pairs = x_.out / 2;
      for (int64_t m = 0; m < pairs; ++m) {
        out[2 * m] = static_cast<out_t>(even[m]);
        out[2 * m + 1] = static_cast<out_t>(odd[m]);
      }
      if (x_.out % 2 != 0) out[x_.out - 1] = static_cast<out_t>(even[pairs]);
      return;
    }
    for (int64_t o = 0; o < x_.out; ++o) {
      const T* source = even + (o % x_.up * groups_ + o / x_.up) * inner_;
      convert(source, inner_, out + o * inner_);
    }
  }

  static void every_second(const scalar_t* source, int64_t n, T* target) {
    constexpr int64_t kEach = kLanes<T>;
    int64_t j = 0;
    for (; j + kEach < n; j += kEach) {  // the loads end one past the last sample
      const auto low = load(source + 2 * j, kEach), high = load(source + 2 * j + kEach, kEach);
      at::vec::deinterleave2(low, high).first.store(target + j);
    }
    for (; j < n; ++j) target[j] = source[2 * j];
  }

  const Upfirdn2dArgs& args_;
  const Filter<T>& filter_;
  const UpfirdnAxis &x_, &y_;
  const int64_t inner_;              // elements of a sample
  const int64_t groups_;             // of `up` outputs each, in a row
  const int64_t first_;              // the sample at the beginning of a part
  const int64_t length_;             // of a part
  const int64_t kept_, row_length_;  // input rows kept, and the length of each
  // The kept rows: taken apart or, if separable, filtered horizontally. Sums read a vector beyond the end.
  std::vector<T> rows_;
  std::vector<T> parts_, phases_;
  struct Tap {
    int64_t t, offset;  // t: in the filter; offset: of the first sample that it meets, in the parts
  };
  std::vector<std::vector<Tap>> taps_;  // per output phase
  WeightedSum<T> sum_;
};

template <typename scalar_t>
void run_as(const Upfirdn2dArgs& args) {
  const Filter<opmath_t<scalar_t>> filter(args);
  const int64_t planes = args.channels_last ? args.batch : args.batch * args.channels;
  const int64_t inner = args.channels_last ? args.channels : 1;
  const int64_t height = args.vertical.out, row = args.horizontal.out * inner;
  // A band of rows recomputes its neighbour's kept rows, so planes are divided only to occupy the threads.
  const int64_t threads = at::get_num_threads();
  const int64_t wanted = planes >= 4 * threads ? 1 : ceil_div(4 * threads, planes);
  const int64_t least_rows = std::max<int64_t>(4 * args.vertical.taps / args.vertical.up, 4);
  const int64_t band =
      std::clamp<int64_t>(ceil_div(height, wanted), std::min(least_rows, height), height);
  const int64_t bands = ceil_div(height, band);
  constexpr int64_t kGrainElements = 16384;
  const int64_t grain = std::max<int64_t>(kGrainElements / std::max<int64_t>(band * row, 1), 1);
  at::parallel_for(0, planes * bands, grain, [&](int64_t first, int64_t last) {
    RowWorker<scalar_t> worker(args, filter);
    for (int64_t task = first; task < last; ++task) {
      const int64_t plane = task / bands, begin = task % bands * band;
      const auto* x = static_cast<const scalar_t*>(args.x);
      worker.run(x + plane * args.vertical.in * args.horizontal.in * inner,
                 static_cast<scalar_t*>(args.y) + plane * height * row, begin,
                 std::min(begin + band, height));
    }
  });
}

}  // namespace

void upfirdn2d_cpu(const Upfirdn2dArgs& args) {
  dispatch_floating(args.type, [&](auto scalar) { run_as<decltype(scalar)>(args); });
}

}  // namespace lltm_jit
