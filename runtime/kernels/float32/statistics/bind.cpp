// Python bindings of the statistics. They are functions, not steps of a plan.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <tuple>

#include "core/bind_spec.h"
#include "float32/statistics/statistics.h"

namespace nb = nanobind;

namespace tpuconvert {

namespace {

using Rows = nb::ndarray<const float, nb::ndim<3>, nb::device::cpu>;
template <typename T>
using Result = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Counts = nb::ndarray<std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

ChannelRows view_of(const Rows& rows) {
  ChannelRows view;
  view.x = rows.data();
  view.outer = static_cast<std::int64_t>(rows.shape(0));
  view.channels = static_cast<std::int64_t>(rows.shape(1));
  view.positions = static_cast<std::int64_t>(rows.shape(2));
  view.outer_stride = rows.stride(0);
  view.channel_stride = rows.stride(1);
  view.position_stride = rows.stride(2);
  // The stride of a unit axis is arbitrary. Choose that of a contiguous tensor.
  if (view.positions == 1) view.position_stride = view.channels * view.channel_stride;
  if (view.channels == 1) view.channel_stride = view.positions * view.position_stride;
  return view;
}

template <typename T>
T* checked(const Result<T>& result, const Rows& rows) {
  if (result.shape(0) != rows.shape(0) || result.shape(1) != rows.shape(1))
    throw std::invalid_argument("channel_statistics: a result does not have the first two extents of the rows");
  return result.data();
}

std::tuple<float, float, bool> total_of(const ChannelSummary& summary, std::int64_t count) {
  float lowest = __builtin_inff(), highest = -__builtin_inff();
  bool is_finite = true;
  for (std::int64_t i = 0; i < count; ++i) {
    lowest = std::min(lowest, summary.lowest[i]);
    highest = std::max(highest, summary.highest[i]);
    is_finite = is_finite && std::isfinite(summary.sum[i]);
  }
  return {lowest, highest, is_finite};
}

void bind_statistics(nb::module_& module) {
  module.def(
      "channel_statistics",
      [](const Rows& rows, const Result<double>& sum, const Result<double>& square, const Result<float>& highest,
         const Result<float>& lowest, const std::string& isa) {
        const ChannelSummary summary{checked(sum, rows), checked(square, rows), checked(highest, rows),
                                     checked(lowest, rows)};
        const ChannelRows view = view_of(rows);
        const Isa chosen = isa_named(isa);
        nb::gil_scoped_release released;
        summarize(view, summary, chosen);
        return total_of(summary, view.outer * view.channels);
      },
      nb::arg("rows"), nb::arg("sum"), nb::arg("square"), nb::arg("highest"), nb::arg("lowest"), nb::arg("isa"),
      "Write sum, sum of squares, maximum and minimum of rows [outer, channels, positions] along the last axis. Return "
      "the minimum and maximum of all elements, and whether all are finite.");
  module.def(
      "count_magnitudes",
      [](const Rows& rows, float scale, const Counts& counts, const std::string& isa) {
        if (counts.shape(0) != static_cast<std::size_t>(kMagnitudeBins))
          throw std::invalid_argument("count_magnitudes: wrong number of bins");
        const ChannelRows view = view_of(rows);
        const Isa chosen = isa_named(isa);
        nb::gil_scoped_release released;
        count_magnitudes(view, scale, counts.data(), chosen);
      },
      nb::arg("rows"), nb::arg("scale"), nb::arg("counts"), nb::arg("isa"),
      "Add the number of elements with integer part k of |x * scale| to counts[k]. All elements are finite.");
}

const Binding binding(bind_statistics);

}  // namespace

}  // namespace tpuconvert
