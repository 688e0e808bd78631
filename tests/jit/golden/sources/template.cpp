#include <string>
#include <vector>
template <typename T> T twice(T x) { return x.nonsense(); }
int f() { std::vector<int> v; v.push_back(std::string("x")); return twice(3); }
