#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include "movement/copy.h"
#include "movement/gather.h"

namespace nb = nanobind;

namespace tpuconvert {

void bind_movement(nb::module_& module) {
  module.def(
      "copy",
      [](const Place& source, const Place& target, std::vector<std::int64_t> shape,
         std::vector<std::int64_t> source_strides, std::vector<std::int64_t> target_strides, int itemsize, int flip) {
        return make_copy({source, target, std::move(shape), std::move(source_strides), std::move(target_strides),
                          itemsize, flip});
      },
      nb::arg("source"), nb::arg("target"), nb::arg("shape"), nb::arg("source_strides"), nb::arg("target_strides"),
      nb::arg("itemsize"), nb::arg("flip"));
  module.def(
      "gather",
      [](const Place& source, const Place& target, std::int64_t outer, std::int64_t extent, std::int64_t inner_bytes,
         std::vector<std::int32_t> indices) {
        return make_gather({source, target, outer, extent, inner_bytes, std::move(indices)});
      },
      nb::arg("source"), nb::arg("target"), nb::arg("outer"), nb::arg("extent"), nb::arg("inner_bytes"),
      nb::arg("indices"));
}

}  // namespace tpuconvert
