#include "int8/reduce/reduce.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "core/extents.h"
#include "int8/elementwise/element_kernels.h"
#include "int8/pool/average.h"

namespace tpuconvert {

namespace {

constexpr std::int64_t kInnerPerPart = 4096;

class ReduceStep final : public Step {
 public:
  ReduceStep(const ReduceSpec& spec, Isa isa) : kernels_(element_kernels(isa)), spec_(spec) {
    if (spec.outer < 1 || spec.count < 1 || spec.inner < 1) throw std::invalid_argument("reduce: an extent is below 1");
    if (spec.count > std::numeric_limits<std::int32_t>::max() / 512)
      throw std::invalid_argument("reduce: a sum may leave 32 bits");
    product_of({spec.outer, spec.count, spec.inner});
    average_.divides = true;
    average_.bias = spec.bias;
    check_average(average_);
    slices_ = (spec.inner + kInnerPerPart - 1) / kInnerPerPart;
  }

  void run(const Run& run) const override {
    const std::uint8_t* from = run.at<const std::uint8_t>(spec_.source);
    std::uint8_t* to = run.at<std::uint8_t>(spec_.target);
    const std::int64_t all = spec_.outer * slices_;
    const std::int64_t parts = run.threads() == 1 ? 1 : std::min(all, static_cast<std::int64_t>(4 * run.threads()));
    run.parallel(static_cast<int>(parts), [&](int part, int worker) {
      for (std::int64_t index = all * part / parts; index < all * (part + 1) / parts; ++index) {
        const std::int64_t outer = index / slices_, start = index % slices_ * kInnerPerPart;
        const std::int64_t width = std::min(kInnerPerPart, spec_.inner - start);
        slice(from + outer * spec_.count * spec_.inner + start, to + outer * spec_.inner + start, width,
              run.scratch(worker));
      }
    });
  }

  std::vector<Span> spans() const override {
    return {Span::reads(spec_.source, static_cast<std::size_t>(spec_.outer * spec_.count * spec_.inner)),
            Span::writes(spec_.target, static_cast<std::size_t>(spec_.outer * spec_.inner))};
  }
  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(std::min(kInnerPerPart, spec_.inner)) * 4;
  }
  const char* kind() const override { return "reduce_int"; }

 private:
  void slice(const std::uint8_t* from, std::uint8_t* to, std::int64_t width, std::uint8_t* scratch) const {
    if (spec_.inner == 1) {
      *to = row(from);
      return;
    }
    if (spec_.reduction == Reduction::kMaximum || spec_.reduction == Reduction::kMinimum) {
      const auto choose = spec_.reduction == Reduction::kMaximum ? kernels_.maximum_u8 : kernels_.minimum_u8;
      std::memcpy(to, from, static_cast<std::size_t>(width));
      for (std::int64_t k = 1; k < spec_.count; ++k) choose(to, from + k * spec_.inner, to, width);
      return;
    }
    auto* sums = reinterpret_cast<std::int32_t*>(scratch);
    std::memset(sums, 0, static_cast<std::size_t>(width) * 4);
    for (std::int64_t k = 0; k < spec_.count; ++k) kernels_.accumulate_u8(from + k * spec_.inner, sums, width);
    store_results(sums, to, width);
  }

  std::uint8_t row(const std::uint8_t* from) const {
    if (spec_.reduction == Reduction::kMaximum) return kernels_.largest_of_row(from, spec_.count);
    if (spec_.reduction == Reduction::kMinimum) return kernels_.smallest_of_row(from, spec_.count);
    const std::int32_t sum = kernels_.sum_of_row(from, spec_.count);
    std::uint8_t result;
    store_results(&sum, &result, 1);
    return result;
  }

  void store_results(const std::int32_t* sums, std::uint8_t* to, std::int64_t size) const {
    const auto count = static_cast<std::int32_t>(spec_.count);
    store_averages(kernels_, average_, sums, count, spec_.reduction == Reduction::kMean ? count : 1, to, size);
  }

  const ElementKernels& kernels_;
  ReduceSpec spec_;
  AverageSpec average_;
  std::int64_t slices_;
};

}  // namespace

std::shared_ptr<Step> make_reduce(const ReduceSpec& spec, Isa isa) { return std::make_shared<ReduceStep>(spec, isa); }

}  // namespace tpuconvert
