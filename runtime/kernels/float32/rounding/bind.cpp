// Python binding of the rounding of weights. It is a function, not a step of a plan.
#include <stdexcept>
#include <string>

#include "core/bind_spec.h"
#include "float32/rounding/rounding.h"

namespace nb = nanobind;

namespace tpuconvert {

namespace {

using Matrices = nb::ndarray<float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

void bind_rounding(nb::module_& module) {
  module.def(
      "round_weights",
      [](const Matrices& covariance, const Matrices& wanted, const Matrices& result, float limit, const std::string& isa,
         int threads) {
        for (int axis = 0; axis < 3; ++axis)
          if (result.shape(axis) != wanted.shape(axis))
            throw std::invalid_argument("round_weights: the result does not have the extents of the weights");
        if (covariance.shape(0) != wanted.shape(0) || covariance.shape(1) != wanted.shape(1) ||
            covariance.shape(2) != wanted.shape(1))
          throw std::invalid_argument("round_weights: the covariance is not [groups, inputs, inputs]");
        if (!(limit > 0 && limit <= 4194303.0f)) throw std::invalid_argument("round_weights: limit is not below 2^22");
        const Isa chosen = isa_named(isa);
        nb::gil_scoped_release released;
        ThreadPool pool(threads);
        return round_weights(covariance.data(), wanted.data(), result.data(), static_cast<std::int64_t>(wanted.shape(0)),
                             static_cast<std::int64_t>(wanted.shape(1)), static_cast<std::int64_t>(wanted.shape(2)), limit,
                             chosen, pool);
      },
      nb::arg("covariance"), nb::arg("wanted"), nb::arg("result"), nb::arg("limit"), nb::arg("isa"), nb::arg("threads"),
      "Round weights [groups, inputs, outputs] so that their errors compensate each other. Replaces the covariance and "
      "the weights. Returns False if a covariance is not positive definite in float32.");
}

const Binding binding(bind_rounding);

}  // namespace

}  // namespace tpuconvert
