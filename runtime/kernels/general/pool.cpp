#include "general/pool.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <vector>

#include "core/extents.h"
#include "general/shifts.h"

namespace tpuconvert {

namespace {

std::int64_t divide_half_away(std::int64_t total, std::int64_t count) {
  const std::int64_t quotient = (2 * (total < 0 ? -total : total) + count) / (2 * count);
  return total < 0 ? -quotient : quotient;
}

// Elements first..last-1 of one window along an axis.
struct Range {
  std::int64_t first, last;
};

class AnyPoolStep final : public Step {
 public:
  explicit AnyPoolStep(const AnyPoolSpec& spec) : spec_(spec) {
    for (std::size_t axis = 0; axis < 3; ++axis) {
      if (spec.kernel[axis] < 1 || spec.strides[axis] < 1 || spec.pads[axis] < 0 || spec.out_extents[axis] < 1)
        throw std::invalid_argument("any_pool: an extent is invalid");
      product_of({spec.kernel[axis], spec.strides[axis], spec.out_extents[axis]});
      // The first window reaches furthest before the first element, the last one furthest beyond the last element.
      const std::int64_t last = (spec.out_extents[axis] - 1) * spec.strides[axis] - spec.pads[axis];
      if (spec.pads[axis] >= spec.kernel[axis] || last >= spec.extents[axis])
        throw std::invalid_argument("any_pool: a window is empty");
    }
    if (is_float(spec.source.type) || spec.source.type != spec.result.type) throw std::invalid_argument("any_pool: invalid types");
    if (spec.places && (spec.places->type != AnyType::kI32 || !spec.is_maximum))
      throw std::invalid_argument("any_pool: positions are INT32 and those of maxima");
    if (spec.shift < 0 || spec.low > spec.high) throw std::invalid_argument("any_pool: invalid rescaling");
    // |sum| * |scale| must fit 64 bits.
    const std::int64_t elements = product_of({spec.kernel[0], spec.kernel[1], spec.kernel[2]});
    if (product_of({spec.extents[0], spec.extents[1], spec.extents[2]}) > std::numeric_limits<std::int32_t>::max() ||
        spec.scale > std::numeric_limits<std::int32_t>::max() || spec.scale < std::numeric_limits<std::int32_t>::min() ||
        elements > 1 << 16)
      throw std::invalid_argument("any_pool: sums may overflow");
    const auto& [d, h, w] = spec.extents;
    const auto& [od, oh, ow] = spec.out_extents;
    const std::size_t item = static_cast<std::size_t>(size_of(spec.source.type));
    spans_.push_back(Span::reads(spec.source.place, bytes_of(spec.source, {spec.batch, spec.channels, d, h, w}), item));
    spans_.push_back(Span::writes(spec.result.place, bytes_of(spec.result, {spec.batch, spec.channels, od, oh, ow}), item));
    if (spec.places)
      spans_.push_back(Span::writes(spec.places->place, bytes_of(*spec.places, {spec.batch, spec.channels, od, oh, ow}), 4));
  }

  void run(const Run& run) const override {
    const std::int64_t planes = spec_.batch * spec_.channels * spec_.out_extents[0];
    const std::int64_t parts = run.threads() == 1 ? 1 : std::min<std::int64_t>(planes, 4 * run.threads());
    run.parallel(static_cast<int>(parts), [&](int part, int worker) {
      for (std::int64_t plane = planes * part / parts; plane < planes * (part + 1) / parts; ++plane)
        for (std::int64_t row = 0; row < spec_.out_extents[1]; ++row) compute(run, plane, row, run.scratch(worker));
    });
  }

  std::vector<Span> spans() const override { return spans_; }
  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(spec_.extents[2] + 2 * spec_.out_extents[2]) * sizeof(std::int64_t);
  }
  const char* kind() const override { return "any_pool"; }

 private:
  Range range(std::size_t axis, std::int64_t o) const {
    const std::int64_t first = o * spec_.strides[axis] - spec_.pads[axis];
    return {std::max<std::int64_t>(first, 0), std::min(first + spec_.kernel[axis], spec_.extents[axis])};
  }

  static std::int64_t offset(const AnyTensor& tensor, std::int64_t n, std::int64_t c, std::int64_t d, std::int64_t h) {
    const auto& steps = tensor.strides;
    return (n * steps[0] + c * steps[1] + d * steps[2] + h * steps[3]) * size_of(tensor.type);
  }

  // Computes one row of the result; planes are counted along (image, channel, depth).
  void compute(const Run& run, std::int64_t plane, std::int64_t row, std::uint8_t* scratch) const {
    const std::int64_t od = plane % spec_.out_extents[0], c = plane / spec_.out_extents[0] % spec_.channels;
    const std::int64_t n = plane / spec_.out_extents[0] / spec_.channels;
    const std::int64_t width = spec_.extents[2], columns = spec_.out_extents[2];
    auto* line = reinterpret_cast<std::int64_t*>(scratch);
    std::int64_t *results = line + width, *places = results + columns;
    std::fill(results, results + columns, spec_.is_maximum ? std::numeric_limits<std::int64_t>::min() : 0);
    const Range depths = range(0, od), rows = range(1, row);
    for (std::int64_t d = depths.first; d < depths.last; ++d)
      for (std::int64_t h = rows.first; h < rows.last; ++h) {
        load_lanes(spec_.source.type, run.at<const std::uint8_t>(spec_.source.place) + offset(spec_.source, n, c, d, h),
                   spec_.source.strides[4], width, line);
        reduce(line, (d * spec_.extents[1] + h) * width, results, places);
      }
    if (!spec_.is_maximum) average((depths.last - depths.first) * (rows.last - rows.first), results);
    store(run, spec_.result, n, c, od, row, results);
    if (spec_.places) store(run, *spec_.places, n, c, od, row, places);
  }

  void reduce(const std::int64_t* line, std::int64_t place, std::int64_t* results, std::int64_t* places) const {
    for (std::int64_t o = 0; o < spec_.out_extents[2]; ++o) {
      const Range columns = range(2, o);
      for (std::int64_t w = columns.first; w < columns.last; ++w) {
        if (!spec_.is_maximum) {
          results[o] += line[w];
        } else if (line[w] > results[o]) {
          results[o] = line[w];
          places[o] = place + w;
        }
      }
    }
  }

  void average(std::int64_t lines, std::int64_t* results) const {
    for (std::int64_t o = 0; o < spec_.out_extents[2]; ++o) {
      const Range columns = range(2, o);
      const std::int64_t mean = spec_.divides ? divide_half_away(results[o], lines * (columns.last - columns.first))
                                              : shift_right(results[o] * spec_.scale, spec_.shift, Rounding::kHalfUp);
      results[o] = std::clamp(mean, spec_.low, spec_.high);
    }
  }

  void store(const Run& run, const AnyTensor& tensor, std::int64_t n, std::int64_t c, std::int64_t d, std::int64_t h,
             const std::int64_t* lanes) const {
    store_lanes(tensor.type, run.at<std::uint8_t>(tensor.place) + offset(tensor, n, c, d, h), tensor.strides[4],
                spec_.out_extents[2], lanes);
  }

  AnyPoolSpec spec_;
  std::vector<Span> spans_;
};

}  // namespace

std::shared_ptr<Step> make_any_pool(const AnyPoolSpec& spec) { return std::make_shared<AnyPoolStep>(spec); }

}  // namespace tpuconvert
