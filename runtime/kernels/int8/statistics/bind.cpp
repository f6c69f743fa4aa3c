// Python bindings of the statistics of bytes. They are functions, not steps of a plan.
#include <stdexcept>
#include <string>

#include "core/bind_spec.h"
#include "int8/statistics/products.h"
#include "int8/statistics/windows.h"

namespace nb = nanobind;

namespace tpuconvert {

namespace {

template <typename T, int Rank>
using Operand = nb::ndarray<const T, nb::ndim<Rank>, nb::c_contig, nb::device::cpu>;
template <typename T, int Rank>
using Result = nb::ndarray<T, nb::ndim<Rank>, nb::c_contig, nb::device::cpu>;
using Pair = std::pair<std::int64_t, std::int64_t>;

// Pads are those before and after the image, per axis.
WindowGeometry geometry_of(std::size_t height, std::size_t width, Pair kernel, Pair strides, Pair dilations,
                           std::pair<Pair, Pair> pads) {
  const auto both = [](Pair pair) { return std::array<std::int64_t, 2>{pair.first, pair.second}; };
  WindowGeometry g;
  g.extents = {static_cast<std::int64_t>(height), static_cast<std::int64_t>(width)};
  g.kernel = both(kernel);
  g.strides = both(strides);
  g.dilations = both(dilations);
  g.pads_before = {pads.first.first, pads.second.first};
  g.pads_after = {pads.first.second, pads.second.second};
  g.finish();
  return g;
}

template <typename T>
void sum_images(const Operand<T, 4>& x, Pair kernel, Pair strides, Pair dilations, std::pair<Pair, Pair> pads,
                const Result<std::int64_t, 4>& sums) {
  const WindowGeometry g = geometry_of(x.shape(2), x.shape(3), kernel, strides, dilations, pads);
  if (sums.shape(0) != x.shape(0) || sums.shape(1) != x.shape(1) ||
      static_cast<std::int64_t>(sums.shape(2)) != g.kernel[0] || static_cast<std::int64_t>(sums.shape(3)) != g.kernel[1])
    throw std::invalid_argument("window_sums: the result is not [images, channels, kernel height, kernel width]");
  const auto planes = static_cast<std::int64_t>(x.shape(0) * x.shape(1));
  const T* from = x.data();
  std::int64_t* to = sums.data();
  nb::gil_scoped_release released;
  for (std::int64_t plane = 0; plane < planes; ++plane, from += g.extents[0] * g.extents[1], to += g.kernel[0] * g.kernel[1])
    sum_windows(from, g, to);
}

template <typename T>
void copy_windows(const Operand<T, 3>& x, Pair kernel, Pair strides, Pair dilations, std::pair<Pair, Pair> pads,
                  const Operand<std::int64_t, 1>& positions, const Result<T, 2>& windows, std::int64_t first) {
  const WindowGeometry g = geometry_of(x.shape(1), x.shape(2), kernel, strides, dilations, pads);
  const auto channels = static_cast<std::int64_t>(x.shape(0)), count = static_cast<std::int64_t>(positions.shape(0));
  const auto stride = static_cast<std::int64_t>(windows.shape(1));
  if (static_cast<std::int64_t>(windows.shape(0)) != channels * g.kernel[0] * g.kernel[1] || first < 0 || first > stride - count)
    throw std::invalid_argument("copy_windows: the result is not [channels * kernel size, at least first + positions]");
  const T* from = x.data();
  T* to = windows.data() + first;
  const std::int64_t* chosen = positions.data();
  nb::gil_scoped_release released;
  WindowCopy<T> copy(g, chosen, count);
  for (std::int64_t channel = 0; channel < channels; ++channel)
    copy.copy(from + channel * g.extents[0] * g.extents[1], to + channel * g.kernel[0] * g.kernel[1] * stride, stride);
}

template <typename T>
void multiply(const nb::ndarray<const T, nb::ndim<3>, nb::device::cpu>& x, const Result<std::int32_t, 3>& products,
              const Result<std::int64_t, 2>& totals, const std::string& isa, int threads) {
  Observations rows;
  rows.x = reinterpret_cast<const std::uint8_t*>(x.data());
  rows.groups = static_cast<std::int64_t>(x.shape(0));
  rows.count = static_cast<std::int64_t>(x.shape(1));
  rows.inputs = static_cast<std::int64_t>(x.shape(2));
  rows.group_stride = x.stride(0);
  rows.stride = x.stride(1);
  rows.input_stride = x.stride(2);
  rows.is_signed = std::is_signed_v<T>;
  if (rows.count > kMostObservations) throw std::invalid_argument("multiply_inputs: too many observations");
  if (products.shape(0) != x.shape(0) || products.shape(1) != x.shape(2) || products.shape(2) != x.shape(2) ||
      totals.shape(0) != x.shape(0) || totals.shape(1) != x.shape(2))
    throw std::invalid_argument("multiply_inputs: a result does not have the extents of the inputs");
  const Isa chosen = isa_named(isa);
  nb::gil_scoped_release released;
  ThreadPool pool(threads);
  multiply_inputs(rows, products.data(), totals.data(), chosen, pool);
}

void bind_statistics(nb::module_& module) {
  const auto sums = [&](auto function) {
    module.def("window_sums", function, nb::arg("x"), nb::arg("kernel"), nb::arg("strides"), nb::arg("dilations"),
               nb::arg("pads"), nb::arg("sums"),
               "Write the sums of the elements of images that each element of a kernel is multiplied with.");
  };
  sums(&sum_images<std::uint8_t>);
  sums(&sum_images<std::int8_t>);
  const auto copies = [&](auto function) {
    module.def("copy_windows", function, nb::arg("x"), nb::arg("kernel"), nb::arg("strides"), nb::arg("dilations"),
               nb::arg("pads"), nb::arg("positions"), nb::arg("windows"), nb::arg("first"),
               "Write the windows of an image at some positions to columns of a matrix, from column `first` on.");
  };
  copies(&copy_windows<std::uint8_t>);
  copies(&copy_windows<std::uint32_t>);
  const auto products = [&](auto function) {
    module.def("multiply_inputs", function, nb::arg("x"), nb::arg("products"), nb::arg("totals"), nb::arg("isa"),
               nb::arg("threads"), "Write the sums over observations of products of inputs, and of the inputs.");
  };
  products(&multiply<std::uint8_t>);
  products(&multiply<std::int8_t>);
}

const Binding binding(bind_statistics);

}  // namespace

}  // namespace tpuconvert
