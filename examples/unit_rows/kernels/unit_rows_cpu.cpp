#include <algorithm>

#include "core/launch/parallel.h"
#include "core/types/vectorized.h"
#include "unit_rows.h"

using namespace lltm_jit;

// The 16-bit types are computed in float.
template <typename scalar_t>
static void unit_row(const scalar_t* x, scalar_t* y, int64_t columns, double eps) {
  using opmath = opmath_t<scalar_t>;
  using Vec = at::vec::Vectorized<opmath>;
  const auto count = [&](int64_t i) { return std::min<int64_t>(Vec::size(), columns - i); };
  Vec squares(0);
  for (int64_t i = 0; i < columns; i += Vec::size()) {
    const Vec values = load(x + i, count(i));
    squares = squares + values * values;
  }
  const auto add = [](const Vec& a, const Vec& b) { return a + b; };
  const opmath sum = at::vec::vec_reduce_all<opmath>(add, squares);
  const Vec scale(1 / std::sqrt(sum + opmath(eps)));
  for (int64_t i = 0; i < columns; i += Vec::size()) {
    store(y + i, scale * load(x + i, count(i)), count(i));
  }
}

void unit_rows_cpu(const UnitRowsArgs& args) {
  dispatch_floating(args.type, [&](auto scalar) {
    const auto* x = static_cast<const decltype(scalar)*>(args.x);
    auto* y = static_cast<decltype(scalar)*>(args.y);
    const int64_t columns = args.columns, grain = ceil_div(int64_t(32768), columns);
    at::parallel_for(0, args.rows, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        unit_row(x + row * columns, y + row * columns, columns, args.eps);
      }
    });
  });
}
