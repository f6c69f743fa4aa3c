// Python bindings of the statistics. They are functions, not steps of a plan.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <tuple>

#include "core/bind_observation.h"
#include "core/bind_spec.h"
#include "float32/statistics/statistics.h"
#include "float32/statistics/tensor_statistics.h"

namespace nb = nanobind;

namespace tpuconvert {

namespace {

using Rows = nb::ndarray<const float, nb::ndim<3>, nb::device::cpu>;
template <typename T>
using Result = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
struct StatisticsHolder : ObservationHolder {
  TensorStatistics& statistics() const { return static_cast<TensorStatistics&>(*observation); }
};

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
T* checked(const Result<T>& result, const TensorStatistics& statistics) {
  if (static_cast<std::int64_t>(result.shape(0)) != statistics.runs() * statistics.outer() ||
      static_cast<std::int64_t>(result.shape(1)) != statistics.channels())
    throw std::invalid_argument("TensorStatistics: a result is not [runs * outer, channels]");
  return result.data();
}

void bind_tensor_statistics(nb::module_& module) {
  nb::class_<StatisticsHolder, ObservationHolder>(
      module, "TensorStatistics",
      "Statistics of a tensor of a program's memory, over several runs: summaries as those of `channel_statistics`, the "
      "smallest and the largest element, and counts of magnitudes.")
      .def(
          "__init__",
          [](StatisticsHolder* self, const Place& place, const Rows& rows, bool has_histogram, const std::string& isa) {
            new (self) StatisticsHolder{
                {std::make_shared<TensorStatistics>(place, view_of(rows), has_histogram, isa_named(isa))}};
          },
          nb::arg("place"), nb::arg("rows"), nb::arg("has_histogram"), nb::arg("isa"))
      .def_prop_ro("runs", [](const StatisticsHolder& held) { return held.statistics().runs(); })
      .def_prop_ro("low", [](const StatisticsHolder& held) { return held.statistics().low(); })
      .def_prop_ro("high", [](const StatisticsHolder& held) { return held.statistics().high(); })
      .def_prop_ro("exponent", [](const StatisticsHolder& held) { return held.statistics().histogram().exponent(); })
      .def(
          "take",
          [](const StatisticsHolder& held, const Result<double>& sum, const Result<double>& square,
             const Result<float>& highest, const Result<float>& lowest, const Counts& counts) {
            TensorStatistics& found = held.statistics();
            const std::vector<std::int64_t>& known = found.histogram().counts();
            if (counts.shape(0) != static_cast<std::size_t>(kMagnitudeBins))
              throw std::invalid_argument("TensorStatistics: wrong number of bins");
            found.copy_to({checked(sum, found), checked(square, found), checked(highest, found), checked(lowest, found)});
            std::copy(known.begin(), known.end(), counts.data());
            found.clear();
          },
          nb::arg("sum"), nb::arg("square"), nb::arg("highest"), nb::arg("lowest"), nb::arg("counts"),
          "Copy the summaries, [runs * outer, channels], and the counts, if there are any; then forget all runs.");
}

template <typename T>
T* checked(const Result<T>& result, const Rows& rows) {
  if (result.shape(0) != rows.shape(0) || result.shape(1) != rows.shape(1))
    throw std::invalid_argument("channel_statistics: a result does not have the first two extents of the rows");
  return result.data();
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
        const SummaryTotal total = total_of(summary, view.outer * view.channels);
        return std::tuple(total.lowest, total.highest, total.is_finite);
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

const Binding binding(bind_statistics), of_tensors(bind_tensor_statistics);

}  // namespace

}  // namespace tpuconvert
