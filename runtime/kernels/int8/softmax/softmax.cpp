#include "int8/softmax/softmax.h"

#include <algorithm>
#include <stdexcept>

#include "core/extents.h"
#include "int8/elementwise/element_kernels.h"

namespace tpuconvert {

namespace {

class SoftmaxIntStep final : public Step {
 public:
  SoftmaxIntStep(const SoftmaxIntSpec& spec, Isa isa) : kernels_(element_kernels(isa)), spec_(spec) {
    if (spec.rows < 1 || spec.length < 1 || spec.table.size() != 256 || spec.zero < 0 || spec.zero > 255)
      throw std::invalid_argument("softmax_int: parameters that make no sense");
    product_of({spec.rows, spec.length});
  }

  void run(const Run& run) const override {
    const std::uint8_t* from = run.at<const std::uint8_t>(spec_.source);
    std::uint8_t* to = run.at<std::uint8_t>(spec_.target);
    const std::int64_t parts =
        run.threads() == 1 ? 1 : std::min(spec_.rows, static_cast<std::int64_t>(4 * run.threads()));
    run.parallel(static_cast<int>(parts), [&](int part, int worker) {
      auto* powers = reinterpret_cast<float*>(run.scratch(worker));
      const std::int64_t first = spec_.rows * part / parts, last = spec_.rows * (part + 1) / parts;
      kernels_.softmax(from + first * spec_.length, last - first, spec_.length, spec_.table.data(), spec_.scale,
                       spec_.zero, powers, to + first * spec_.length);
    });
  }

  std::vector<Span> spans() const override {
    const auto bytes = static_cast<std::size_t>(spec_.rows * spec_.length);
    return {Span::reads(spec_.source, bytes), Span::writes(spec_.target, bytes)};
  }
  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(spec_.length) * sizeof(float) * kSoftmaxRows;
  }
  const char* kind() const override { return "softmax_int"; }

 private:
  const ElementKernels& kernels_;
  SoftmaxIntSpec spec_;
};

}  // namespace

std::shared_ptr<Step> make_softmax_int(const SoftmaxIntSpec& spec, Isa isa) {
  return std::make_shared<SoftmaxIntStep>(spec, isa);
}

}  // namespace tpuconvert
