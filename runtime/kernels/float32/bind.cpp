#include <nanobind/nanobind.h>

namespace tpuconvert {

void bind_float32(nanobind::module_&) {}

}  // namespace tpuconvert
