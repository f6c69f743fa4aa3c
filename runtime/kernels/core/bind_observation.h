// Observations as Python holds them.
#pragma once

#include <memory>
#include <vector>

#include "core/bind_spec.h"
#include "core/program.h"

namespace tpuconvert {

// Base of the Python classes of observations.
struct ObservationHolder {
  std::shared_ptr<Observation> observation;
};

template <>
struct FromPython<std::shared_ptr<Observation>> {
  static std::shared_ptr<Observation> of(nanobind::handle value) {
    return value.is_none() ? nullptr : nanobind::cast<const ObservationHolder&>(value).observation;
  }
};

// The values of an observed plan, checked for one program.
struct Observations {
  std::uint64_t program = 0;
  std::vector<Observed> values;
};

}  // namespace tpuconvert
