// What torch's documentation of extensions and of its C++ API uses, each in a function that returns
// what can be compared. It is compiled with narrow headers and with the full ones.
#include <torch/extension.h>

#include <sstream>

using torch::indexing::Ellipsis;
using torch::indexing::None;
using torch::indexing::Slice;

std::vector<torch::Tensor> factories(torch::Tensor x) {
  torch::manual_seed(5);
  auto options = torch::TensorOptions().dtype(torch::kFloat64).device(x.device());
  int values[] = {1, 2, 3};
  auto at_once = torch::from_blob(values, {3}, torch::kInt32).clone();
  return {torch::zeros({2, 3}, options),
          torch::ones_like(x),
          torch::full({2}, 1.5),
          torch::full({2}, 3, torch::dtype(torch::kLong)),
          torch::arange(5),
          torch::arange(0., 1., .25),
          torch::linspace(0, 1, 4),
          torch::eye(2, torch::kHalf),
          torch::rand({3}),
          torch::randn({2}, options),
          torch::randint(9, {4}),
          torch::empty_like(x).fill_(2),
          torch::scalar_tensor(3),
          at_once,
          at::zeros_like(x, at::MemoryFormat::Contiguous),
          torch::empty({0}, x.options().dtype(torch::kBool)),
          torch::empty_strided({2, 2}, {1, 2}).zero_(),
          torch::randperm(6)};
}

std::vector<torch::Tensor> indexing(torch::Tensor x) {
  auto y = x.clone();
  y.index_put_({0, Slice(None, 2)}, 7);
  y[1][0] = 9;
  return {x.index({Slice(1, None), Ellipsis}),
          x.index({None, 0}),
          x.select(1, 0),
          x.index({x > 0}),
          y,
          x.narrow(0, 0, 1),
          x.slice(1, 0, 3, 2)};
}

std::vector<torch::Tensor> calls(torch::Tensor x) {
  auto [values, places] = torch::max(x, 1);
  return {torch::cat({x, x}),
          torch::stack({x, x}, 1),
          at::where(x > 0, x, -x),
          torch::matmul(x, x.t()),
          torch::einsum("ij,kj->ik", {x, x}),
          torch::softmax(x, -1),
          at::sum(x, {0}, true),
          x.mean(),
          values,
          places,
          torch::clamp(x, -1, 1),
          torch::sigmoid(x) * 2 + x / 3 - 1,
          torch::abs(x),
          at::_softmax(x, 0, false)};
}

std::vector<torch::Tensor> operators(torch::Tensor x) {
  auto y = x + 1;
  y += x;
  y *= 2;
  return {y, x - y, 2 * x, 1 / (x + 100), -x, x > y, x == x, (x > 0) & (x < 1), x.div(3, "floor")};
}

template <typename scalar_t>
void twice(at::TensorAccessor<scalar_t, 2> from, at::TensorAccessor<scalar_t, 2> to) {
  for (int64_t i = 0; i < from.size(0); ++i)
    for (int64_t j = 0; j < from.size(1); ++j) to[i][j] = from[i][j] * 2;
}

std::vector<torch::Tensor> dispatch(torch::Tensor x) {
  auto to = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "twice", [&] {
    twice<scalar_t>(x.accessor<scalar_t, 2>(), to.accessor<scalar_t, 2>());
  });
  auto sum = torch::zeros({1}, x.options());
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "sum", [&] {
    auto from = x.packed_accessor32<scalar_t, 2, torch::DefaultPtrTraits>();
    for (int i = 0; i < from.size(0); ++i) sum.data_ptr<scalar_t>()[0] += from[i][0];
  });
  auto spread = torch::empty({64});
  auto* place = spread.mutable_data_ptr<float>();
  at::parallel_for(0, 64, 8, [&](int64_t begin, int64_t end) {
    for (auto i = begin; i < end; ++i) place[i] = i * i;
  });
  return {to, sum, spread};
}

struct Cube : torch::autograd::Function<Cube> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, torch::Tensor x,
                               double scale) {
    context->save_for_backward({x});
    context->saved_data["scale"] = scale;
    return x * x * x * scale;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    auto x = context->get_saved_variables()[0];
    return {grads[0] * 3 * x * x * context->saved_data["scale"].toDouble(), torch::Tensor()};
  }
};

std::vector<torch::Tensor> derivatives(torch::Tensor x) {
  auto leaf = x.detach().requires_grad_();
  auto y = Cube::apply(leaf, 2.0);
  y.sum().backward();
  auto again = torch::autograd::grad({Cube::apply(leaf, 1.0).sum()}, {leaf});
  torch::NoGradGuard guard;
  auto without = leaf * 2;
  TORCH_CHECK(!without.requires_grad(), "a gradient");
  return {y.detach(), leaf.grad(), again[0]};
}

std::string words(torch::Tensor x) {
  std::ostringstream out;
  out << x.sizes() << x.dtype() << x.device() << x.scalar_type() << torch::kFloat32 << x.options()
      << x.slice(0, 0, 1) << c10::IntArrayRef({1, 2}) << TORCH_VERSION_MAJOR << at::Scalar(2.5)
      << x.suggest_memory_format();
  return out.str();
}

std::string guards(torch::Tensor x) {
  c10::InferenceMode mode;
  at::AutoDispatchBelowADInplaceOrView below;
  c10::OptionalDeviceGuard guard(x.device());
  return std::to_string((x + 1).is_inference()) + std::to_string(at::GradMode::is_enabled());
}

std::tuple<int64_t, std::optional<torch::Tensor>, double, std::string, bool> arguments(
    std::optional<torch::Tensor> maybe, std::vector<int64_t> sizes, torch::Device device,
    torch::ScalarType dtype, double scalar, std::string word, at::MemoryFormat format,
    std::optional<double> other, at::IntArrayRef list, const std::vector<torch::Tensor>& tensors,
    std::map<std::string, double> map) {
  return {sizes.at(0) + list[0] + static_cast<int64_t>(tensors.size()), maybe, scalar + map.at("a"),
          word + device.str() + c10::toString(dtype),
          format == at::MemoryFormat::Contiguous && !other};
}

void refused(torch::Tensor x) {
  TORCH_CHECK(x.dim() == 3, "expected 3 dimensions, but got ", x.dim());
}
void wrong() { throw std::out_of_range("too far"); }

namespace NAMESPACE {  // torch knows a class by its name in C++
struct Adder : torch::CustomClassHolder {
  double value;
  explicit Adder(double value) : value(value) {}
  torch::Tensor add(const torch::Tensor& x) const { return x + value; }
};
}  // namespace NAMESPACE
using NAMESPACE::Adder;

torch::Tensor registered(const torch::Tensor& x, std::optional<double> scale,
                         c10::List<int64_t> list) {
  return x * scale.value_or(1) + list.get(0);
}

TORCH_LIBRARY(NAMESPACE, m) {
  m.def("registered(Tensor x, float? scale=None, int[] list=[1]) -> Tensor");
  m.def("inferred", [](const torch::Tensor& x, int64_t n, c10::Dict<std::string, double> map) {
    return x * n;
  });
  m.class_<Adder>("Adder")
      .def(torch::init<double>())
      .def("add", &Adder::add)
      .def_readonly("value", &Adder::value);
}
TORCH_LIBRARY_FRAGMENT(NAMESPACE, m) {
  m.def("more(Tensor(a!) x, *, Device? device=None) -> (Tensor(a!), Tensor[])");
}
TORCH_LIBRARY_IMPL(NAMESPACE, CPU, m) { m.impl("registered", &registered); }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("factories", &factories);
  m.def("indexing", &indexing);
  m.def("calls", &calls);
  m.def("operators", &operators);
  m.def("dispatch", &dispatch);
  m.def("derivatives", &derivatives, py::call_guard<py::gil_scoped_release>());
  m.def("words", &words);
  m.def("guards", &guards);
  m.def("arguments", &arguments, py::arg("maybe"), py::arg("sizes"), py::arg("device"),
        py::arg("dtype"), py::arg("scalar"), py::arg("word"), py::arg("format"), py::arg("other"),
        py::arg("list"), py::arg("tensors"), py::arg("map"));
  m.def("refused", torch::wrap_pybind_function(refused));
  m.def("wrong", &wrong, py::call_guard<py::gil_scoped_release>());
  py::class_<Adder, c10::intrusive_ptr<Adder>>(m, "Adder", py::module_local())
      .def(py::init<double>())
      .def("add", &Adder::add);
}
