#include <type_traits>
static_assert(std::is_same_v<int, int>, "");
