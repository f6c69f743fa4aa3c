#include "general/regions.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/extents.h"

namespace tpuconvert {

namespace {

constexpr float kFar = 1e15f;  // coordinates that 64-bit integers represent without overflow
constexpr std::int64_t kMostSamples = 1 << 20;         // along one axis of a region
constexpr std::int64_t kMostSamplesOfRegion = 1 << 24;  // per channel, 16 per pixel of a region of 1,024 x 1,024 pixels

// Pixels first..last-1 of a cell along one axis.
struct Cell {
  std::int64_t first, last;
};

// One bilinear sample along one axis: two pixels and their weights, which are 0 outside of the image.
struct Tap {
  std::int64_t low, high;
  double low_weight, high_weight;
};

// Rounds a coordinate to a pixel, ties away from zero; far or undefined coordinates are clipped.
std::int64_t to_pixel(float scaled) {
  const float rounded = std::copysign(std::floor(std::fabs(scaled) + 0.5f), scaled);
  if (!(rounded > -kFar)) return -static_cast<std::int64_t>(kFar);
  return rounded < kFar ? static_cast<std::int64_t>(rounded) : static_cast<std::int64_t>(kFar);
}

Cell cell_of(std::int64_t first, std::int64_t last, std::int64_t index, std::int64_t count, std::int64_t extent) {
  const float size = static_cast<float>(std::max<std::int64_t>(last - first + 1, 1)) / static_cast<float>(count);
  const auto start = static_cast<std::int64_t>(std::floor(static_cast<float>(index) * size));
  const auto end = static_cast<std::int64_t>(std::ceil(static_cast<float>(index + 1) * size));
  return {std::clamp<std::int64_t>(first + start, 0, extent), std::clamp<std::int64_t>(first + end, 0, extent)};
}

// The samples of all cells along one axis.
struct Samples {
  std::vector<Tap> taps;
  std::int64_t per_cell = 0;
};

class RegionStep final : public Step {
 public:
  explicit RegionStep(const RegionSpec& spec) : spec_(spec) {
    const auto positive = {spec.batch, spec.channels, spec.height, spec.width, spec.regions, spec.out_height, spec.out_width};
    if (std::any_of(positive.begin(), positive.end(), [](std::int64_t extent) { return extent < 1; }) || spec.sampling_ratio < 0 ||
        spec.sampling_ratio > kMostSamples || spec.regions > std::numeric_limits<std::int32_t>::max())
      throw std::invalid_argument("regions: an extent is below 1");
    const auto bytes = [](std::initializer_list<std::int64_t> extents) { return static_cast<std::size_t>(product_of(extents)); };
    spans_ = {Span::reads(spec.source, bytes({spec.batch, spec.channels, spec.height, spec.width, 4}), 4),
              Span::reads(spec.rois, bytes({spec.regions, spec.images ? 4 : 5, 4}), 4),
              Span::writes(spec.target, bytes({spec.regions, spec.channels, spec.out_height, spec.out_width, 4}), 4)};
    if (spec.images) spans_.push_back(Span::reads(*spec.images, bytes({spec.regions, 4}), 4));
  }

  void run(const Run& run) const override {
    // Copy the regions before the checks: the caller may modify its buffer concurrently.
    auto* images = reinterpret_cast<std::int64_t*>(run.scratch(0));
    auto* rois = reinterpret_cast<float*>(images + spec_.regions);
    std::memcpy(rois, run.at<const float>(spec_.rois), static_cast<std::size_t>(spec_.regions * columns()) * 4);
    for (std::int64_t r = 0; r < spec_.regions; ++r) {
      images[r] = image_of(run, rois, r);
      if (spec_.images) check_size(rois + r * 4);
      if (images[r] < 0 || images[r] >= spec_.batch)
        throw std::out_of_range(std::string(spec_.images ? "roi_align" : "roi_max_pool") + ": image " + std::to_string(images[r]) +
                                " of a batch of " + std::to_string(spec_.batch));
    }
    run.parallel(static_cast<int>(spec_.regions), [&](int r, int) { compute(run, rois + r * columns(), r, images[r]); });
  }

  std::vector<Span> spans() const override { return spans_; }
  std::size_t scratch_bytes() const override { return static_cast<std::size_t>(spec_.regions * (8 + 4 * columns())); }
  const char* kind() const override { return spec_.images ? "regions align" : "regions max"; }

 private:
  std::int64_t columns() const { return spec_.images ? 4 : 5; }

  std::int64_t image_of(const Run& run, const float* rois, std::int64_t region) const {
    if (spec_.images) return *static_cast<const volatile std::int32_t*>(run.at<const std::int32_t>(*spec_.images) + region);
    const float image = rois[region * 5];
    if (!(std::fabs(image) < kFar)) return std::numeric_limits<std::int64_t>::min();
    return static_cast<std::int64_t>(image);
  }

  // Throws for regions with too many samples, such as those that are not finite.
  void check_size(const float* corners) const {
    for (int k = 0; k < 2; ++k) {
      const double size = (static_cast<double>(corners[k + 2]) - static_cast<double>(corners[k])) * spec_.scale;
      const bool is_small = size < static_cast<double>(kMostSamples) && std::fabs(corners[k]) < kFar && std::fabs(corners[k + 2]) < kFar;
      if (!is_small) refuse(size);
    }
  }

  [[noreturn]] static void refuse(double size) {
    throw std::out_of_range("roi_align: a region of " + std::to_string(size) + " pixels has too many samples");
  }

  void compute(const Run& run, const float* roi, std::int64_t region, std::int64_t image) const {
    const float* x = run.at<const float>(spec_.source) + image * spec_.channels * spec_.height * spec_.width;
    float* y = run.at<float>(spec_.target) + region * spec_.channels * spec_.out_height * spec_.out_width;
    if (spec_.images) align(roi, x, y);
    else take_maxima(roi + 1, x, y);
  }

  void take_maxima(const float* corners, const float* x, float* y) const {
    std::int64_t pixels[4];
    for (int k = 0; k < 4; ++k) pixels[k] = to_pixel(corners[k] * static_cast<float>(spec_.scale));
    for (std::int64_t c = 0; c < spec_.channels; ++c, x += spec_.height * spec_.width)
      for (std::int64_t i = 0; i < spec_.out_height; ++i)
        for (std::int64_t j = 0; j < spec_.out_width; ++j) {
          const Cell rows = cell_of(pixels[1], pixels[3], i, spec_.out_height, spec_.height);
          const Cell columns = cell_of(pixels[0], pixels[2], j, spec_.out_width, spec_.width);
          *y++ = largest(x, rows, columns);
        }
  }

  float largest(const float* x, const Cell& rows, const Cell& columns) const {
    if (rows.first >= rows.last || columns.first >= columns.last) return 0;
    float most = -std::numeric_limits<float>::infinity();
    for (std::int64_t h = rows.first; h < rows.last; ++h)
      for (std::int64_t w = columns.first; w < columns.last; ++w) {
        const float value = x[h * spec_.width + w];
        if (std::isnan(value)) return value;
        most = std::max(most, value);
      }
    return most;
  }

  Samples samples_of(double start, double end, std::int64_t cells, std::int64_t extent) const {
    const double size = spec_.half_pixel ? end - start : std::max(end - start, 1.0);
    const double wanted = std::ceil(size / static_cast<double>(cells));
    Samples found;
    // check_size() bounds the size above only: a region may be empty by 10^45 pixels, or by infinity minus infinity.
    const std::int64_t samples = wanted > 0 ? static_cast<std::int64_t>(wanted) : 0;
    found.per_cell = spec_.sampling_ratio != 0 ? spec_.sampling_ratio : samples;
    if (found.per_cell > kMostSamples / cells) refuse(size);
    for (std::int64_t cell = 0; cell < cells; ++cell)
      for (std::int64_t k = 0; k < found.per_cell; ++k) {
        const double step = (static_cast<double>(k) + 0.5) / static_cast<double>(found.per_cell);
        found.taps.push_back(tap_at(start + (static_cast<double>(cell) + step) * (size / static_cast<double>(cells)), extent));
      }
    return found;
  }

  static Tap tap_at(double place, std::int64_t extent) {
    const double counts = place >= -1 && place <= static_cast<double>(extent) ? 1 : 0;
    const double inside = place > 0 ? std::min(place, static_cast<double>(extent - 1)) : 0;
    const double floor = std::floor(inside), part = inside - floor;
    const auto low = static_cast<std::int64_t>(floor);
    return {low, std::min(low + 1, extent - 1), (1 - part) * counts, part * counts};
  }

  void align(const float* corners, const float* x, float* y) const {
    const double shift = spec_.half_pixel ? 0.5 : 0.0;
    double place[4];
    for (int k = 0; k < 4; ++k) place[k] = static_cast<double>(corners[k]) * spec_.scale - shift;
    const Samples rows = samples_of(place[1], place[3], spec_.out_height, spec_.height);
    const Samples columns = samples_of(place[0], place[2], spec_.out_width, spec_.width);
    if (static_cast<std::int64_t>(rows.taps.size()) * static_cast<std::int64_t>(columns.taps.size()) > kMostSamplesOfRegion)
      refuse(std::max(place[2] - place[0], place[3] - place[1]));
    for (std::int64_t c = 0; c < spec_.channels; ++c, x += spec_.height * spec_.width)
      for (std::int64_t i = 0; i < spec_.out_height; ++i)
        for (std::int64_t j = 0; j < spec_.out_width; ++j)
          *y++ = static_cast<float>(pool_samples(x, rows, i, columns, j));
  }

  double pool_samples(const float* x, const Samples& rows, std::int64_t i, const Samples& columns, std::int64_t j) const {
    const std::int64_t count = rows.per_cell * columns.per_cell;
    if (count == 0) return 0;
    double sum = 0, most = -std::numeric_limits<double>::infinity();
    for (std::int64_t a = 0; a < rows.per_cell; ++a)
      for (std::int64_t b = 0; b < columns.per_cell; ++b) {
        const Tap& row = rows.taps[static_cast<std::size_t>(i * rows.per_cell + a)];
        const Tap& column = columns.taps[static_cast<std::size_t>(j * columns.per_cell + b)];
        const float *low = x + row.low * spec_.width, *high = x + row.high * spec_.width;
        const double parts[4] = {low[column.low] * row.low_weight * column.low_weight,
                                 low[column.high] * row.low_weight * column.high_weight,
                                 high[column.low] * row.high_weight * column.low_weight,
                                 high[column.high] * row.high_weight * column.high_weight};
        sum += parts[0] + parts[1] + parts[2] + parts[3];
        most = std::max({most, parts[0], parts[1], parts[2], parts[3]});
      }
    return spec_.is_maximum ? most : sum / static_cast<double>(count);
  }

  RegionSpec spec_;
  std::vector<Span> spans_;
};

}  // namespace

std::shared_ptr<Step> make_regions(const RegionSpec& spec) { return std::make_shared<RegionStep>(spec); }

}  // namespace tpuconvert
