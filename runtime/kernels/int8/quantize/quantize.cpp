#include "int8/quantize/quantize.h"

#include <algorithm>
#include <stdexcept>

#include "core/extents.h"
#include "int8/elementwise/element_kernels.h"
#include "movement/transpose.h"

namespace tpuconvert {

namespace {

constexpr std::int64_t kBytesPerPart = 1 << 14;
constexpr std::int32_t kLargestOffset = (1 << 24) - 256;

std::int64_t parts_for(std::int64_t items, std::int64_t bytes, int threads) {
  const std::int64_t useful = std::max<std::int64_t>(1, bytes / kBytesPerPart);
  return threads == 1 ? 1 : std::min({items, useful, static_cast<std::int64_t>(2 * threads)});
}

class LookUpStep final : public Step {
 public:
  LookUpStep(const LookUpSpec& spec, Isa isa) : kernels_(element_kernels(isa)), spec_(spec) {
    if (spec.table.size() != 256) throw std::invalid_argument("look_up: a table has 256 entries");
    if (spec.rows < 1 || spec.length < 1 || spec.pitch < spec.length)
      throw std::invalid_argument("look_up: rows that make no sense");
    product_of({spec.rows, spec.pitch});
    if (spec_.pitch == spec_.length) {
      spec_.length *= spec_.rows;
      spec_.pitch = spec_.length;
      spec_.rows = 1;
    }
  }

  void run(const Run& run) const override {
    const std::uint8_t* from = run.at<const std::uint8_t>(spec_.source);
    std::uint8_t* to = run.at<std::uint8_t>(spec_.target);
    const bool is_one = spec_.rows == 1;
    const std::int64_t all = is_one ? spec_.length : spec_.rows;
    const std::int64_t parts = parts_for(all, spec_.rows * spec_.length, run.threads());
    run.parallel(static_cast<int>(parts), [&](int part, int) {
      const std::int64_t first = all * part / parts, last = all * (part + 1) / parts;
      if (is_one) return kernels_.look_up(from + first, to + first, last - first, spec_.table.data());
      for (std::int64_t row = first; row < last; ++row)
        kernels_.look_up(from + row * spec_.pitch, to + row * spec_.length, spec_.length, spec_.table.data());
    });
  }

  std::vector<Span> spans() const override {
    return {Span::reads(spec_.source, static_cast<std::size_t>((spec_.rows - 1) * spec_.pitch + spec_.length)),
            Span::writes(spec_.target, static_cast<std::size_t>(spec_.rows * spec_.length))};
  }
  const char* kind() const override { return "look_up"; }

 private:
  const ElementKernels& kernels_;
  LookUpSpec spec_;
};

class QuantizeStep final : public Step {
 public:
  QuantizeStep(const QuantizeSpec& spec, Isa isa) : kernels_(element_kernels(isa)), spec_(spec) {
    const auto fits = [&](std::size_t size) { return size == 1 || size == static_cast<std::size_t>(spec.channels); };
    if (spec.images < 1 || spec.channels < 1 || spec.pixels < 1 || !fits(spec.scale.size()) ||
        !fits(spec.offset.size()))
      throw std::invalid_argument("quantize: extents or parameters that make no sense");
    product_of({spec.images, spec.channels, spec.pixels, std::int64_t{sizeof(float)}});
    for (const std::int32_t offset : spec.offset)
      if (offset < -kLargestOffset || offset > kLargestOffset)
        throw std::invalid_argument("quantize: an offset is too large");
    if (spec.low < 0 || spec.high > 255 || spec.low > spec.high) throw std::invalid_argument("quantize: wrong limits");
    // The planes of a tile of this many pixels fit the first-level cache.
    tile_ = std::min<std::int64_t>(512, std::max<std::int64_t>(64, 16384 / spec.channels / 64 * 64));
    tiles_ = (spec.pixels + tile_ - 1) / tile_;
  }

  void run(const Run& run) const override {
    const float* from = run.at<const float>(spec_.source);
    std::uint8_t* to = run.at<std::uint8_t>(spec_.target);
    const std::int64_t all = spec_.images * tiles_;
    const std::int64_t parts = parts_for(all, spec_.images * spec_.channels * spec_.pixels, run.threads());
    run.parallel(static_cast<int>(parts), [&](int part, int worker) {
      for (std::int64_t index = all * part / parts; index < all * (part + 1) / parts; ++index)
        tile(from, to, index / tiles_, index % tiles_ * tile_, run.scratch(worker));
    });
  }

  std::vector<Span> spans() const override {
    const auto elements = static_cast<std::size_t>(spec_.images * spec_.channels * spec_.pixels);
    return {Span::reads(spec_.source, elements * sizeof(float), sizeof(float)), Span::writes(spec_.target, elements)};
  }
  std::size_t scratch_bytes() const override { return static_cast<std::size_t>(tile_ * spec_.channels); }
  const char* kind() const override { return "quantize"; }

 private:
  void tile(const float* from, std::uint8_t* to, std::int64_t image, std::int64_t first, std::uint8_t* planes) const {
    const auto count = static_cast<int>(std::min(tile_, spec_.pixels - first));
    std::uint8_t* target = to + (image * spec_.pixels + first) * spec_.channels;
    for (std::int64_t channel = 0; channel < spec_.channels; ++channel) {
      const float* plane = from + (image * spec_.channels + channel) * spec_.pixels + first;
      std::uint8_t* bytes = spec_.channels == 1 ? target : planes + channel * tile_;
      const auto index = static_cast<std::size_t>(channel);
      kernels_.quantize(plane, spec_.divisor, spec_.scale[spec_.scale.size() == 1 ? 0 : index],
                        spec_.offset[spec_.offset.size() == 1 ? 0 : index], spec_.low, spec_.high, bytes, count);
    }
    if (spec_.channels == 3) {
      const std::uint8_t* three[] = {planes, planes + tile_, planes + 2 * tile_};
      kernels_.interleave3(three, target, count);
    } else if (spec_.channels > 1) {
      transpose<std::uint8_t>(planes, target, {spec_.channels, count, tile_, spec_.channels}, 0);
    }
  }

  const ElementKernels& kernels_;
  QuantizeSpec spec_;
  std::int64_t tile_, tiles_;
};

}  // namespace

std::shared_ptr<Step> make_look_up(const LookUpSpec& spec, Isa isa) { return std::make_shared<LookUpStep>(spec, isa); }

std::shared_ptr<Step> make_quantize(const QuantizeSpec& spec, Isa isa) {
  return std::make_shared<QuantizeStep>(spec, isa);
}

}  // namespace tpuconvert
