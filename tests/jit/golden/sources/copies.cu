#include <memory>
#include <vector>
void copies(const std::vector<std::unique_ptr<int>>& values) {
  auto copy = values;
}
