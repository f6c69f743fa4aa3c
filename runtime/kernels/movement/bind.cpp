// Python bindings of the data movement kernels.
#include "core/bind_spec.h"
#include "movement/copy.h"
#include "movement/gather.h"
#include "movement/index_select.h"

namespace nb = nanobind;

namespace tpuconvert {

namespace {

void bind_movement(nb::module_& module) {
  SpecClass<CopySpec>(module, "CopySpec")
      .required("source", &CopySpec::source)
      .required("target", &CopySpec::target)
      .required("shape", &CopySpec::shape)
      .required("source_strides", &CopySpec::source_strides)
      .required("target_strides", &CopySpec::target_strides)
      .required("itemsize", &CopySpec::itemsize)
      .field("flip", &CopySpec::flip);
  bind_kernel<CopySpec>(module, "copy", kScalarOnly, [](const CopySpec& spec, Isa) { return make_copy(spec); });

  SpecClass<GatherSpec>(module, "GatherSpec")
      .required("source", &GatherSpec::source)
      .required("target", &GatherSpec::target)
      .required("outer", &GatherSpec::outer)
      .required("extent", &GatherSpec::extent)
      .required("inner_bytes", &GatherSpec::inner_bytes)
      .required("indices", &GatherSpec::indices);
  bind_kernel<GatherSpec>(module, "gather", kScalarOnly, [](const GatherSpec& spec, Isa) { return make_gather(spec); });

  SpecClass<IndexSelectSpec>(module, "IndexSelectSpec")
      .required("source", &IndexSelectSpec::source)
      .required("indices", &IndexSelectSpec::indices)
      .required("target", &IndexSelectSpec::target)
      .required("outer", &IndexSelectSpec::outer)
      .required("extent", &IndexSelectSpec::extent)
      .required("inner_bytes", &IndexSelectSpec::inner_bytes)
      .required("count", &IndexSelectSpec::count)
      .field("bounds", &IndexSelectSpec::bounds);
  bind_kernel<IndexSelectSpec>(module, "index_select", kScalarOnly,
                               [](const IndexSelectSpec& spec, Isa) { return make_index_select(spec); });
}

const Binding binding(bind_movement);

}  // namespace

}  // namespace tpuconvert
