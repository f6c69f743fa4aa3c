#include "general/order.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "core/extents.h"

namespace tpuconvert {

namespace {

constexpr std::int64_t kLanes = 256;

// An integer with the order of a float: 0 and -0 are equal, and every NaN is the largest.
std::uint32_t sortable(float value) {
  if (std::isnan(value)) return 0xffffffffu;
  const float positive_zero = value + 0.0f;
  std::uint32_t bits;
  std::memcpy(&bits, &positive_zero, sizeof(bits));
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

std::int64_t first_extreme(const float* x, std::int64_t count, bool is_largest) {
  std::int64_t best = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (std::isnan(x[i])) return i;
    if (is_largest ? x[i] > x[best] : x[i] < x[best]) best = i;
  }
  return best;
}

class OrderStep final : public Step {
 public:
  explicit OrderStep(const OrderSpec& spec) : spec_(spec) {
    if (spec.outer < 1 || spec.extent < 1 || spec.inner < 1 || spec.count < 1 || spec.count > spec.extent)
      throw std::invalid_argument("order: an extent is below 1, or more elements than the axis has");
    if (spec.extent >= std::int64_t{1} << 31) throw std::invalid_argument("order: indices do not fit 32 bits");
    if (spec.is_extreme && (spec.count != 1 || spec.values)) throw std::invalid_argument("order: one index is one result");
    if (spec.type != AnyType::kF32 && spec.type != AnyType::kS8 && spec.type != AnyType::kU8)
      throw std::invalid_argument("order: the type is not supported");
    if (spec.index_type != AnyType::kF32 && spec.index_type != AnyType::kI32)
      throw std::invalid_argument("order: indices are INT32 or FLOAT32");
    const std::size_t item = static_cast<std::size_t>(size_of(spec.type));
    const auto bytes = [&](std::int64_t extent, std::int64_t size) {
      return static_cast<std::size_t>(product_of({spec.outer, extent, spec.inner, size}));
    };
    spans_.push_back(Span::reads(spec.source, bytes(spec.extent, size_of(spec.type)), item));
    if (spec.values) spans_.push_back(Span::writes(*spec.values, bytes(spec.count, size_of(spec.type)), item));
    if (spec.indices) spans_.push_back(Span::writes(*spec.indices, bytes(spec.count, 4), 4));
  }

  void run(const Run& run) const override {
    if (spec_.is_extreme && spec_.inner > 1) return find_extremes(run);
    const std::int64_t rows = spec_.outer * spec_.inner;
    const std::int64_t parts = run.threads() == 1 ? 1 : std::min<std::int64_t>(rows, 4 * run.threads());
    run.parallel(static_cast<int>(parts), [&](int part, int worker) {
      for (std::int64_t row = rows * part / parts; row < rows * (part + 1) / parts; ++row)
        compute(run, row / spec_.inner, row % spec_.inner, run.scratch(worker));
    });
  }

  std::vector<Span> spans() const override { return spans_; }
  std::size_t scratch_bytes() const override {
    return std::max(static_cast<std::size_t>(spec_.extent) * 12, static_cast<std::size_t>(kLanes) * 12);
  }
  const char* kind() const override { return spec_.is_extreme ? "order extreme" : "order"; }

 private:
  // Compares whole rows of the inner axes, which are contiguous.
  void find_extremes(const Run& run) const {
    const std::int64_t per_row = (spec_.inner + kLanes - 1) / kLanes, blocks = spec_.outer * per_row;
    const std::int64_t parts = run.threads() == 1 ? 1 : std::min<std::int64_t>(blocks, 4 * run.threads());
    run.parallel(static_cast<int>(parts), [&](int part, int worker) {
      for (std::int64_t block = blocks * part / parts; block < blocks * (part + 1) / parts; ++block)
        find_extremes_of_block(run, block / per_row, block % per_row * kLanes, run.scratch(worker));
    });
  }

  void find_extremes_of_block(const Run& run, std::int64_t o, std::int64_t start, std::uint8_t* scratch) const {
    const std::int64_t count = std::min(kLanes, spec_.inner - start);
    auto *best = reinterpret_cast<float*>(scratch), *x = best + kLanes;
    auto* places = reinterpret_cast<std::int32_t*>(x + kLanes);
    const std::uint8_t* from =
        run.at<const std::uint8_t>(spec_.source) + (o * spec_.extent * spec_.inner + start) * size_of(spec_.type);
    load_lanes(spec_.type, from, 1, count, best);
    std::fill(places, places + count, 0);
    for (std::int64_t k = 1; k < spec_.extent; ++k) {
      load_lanes(spec_.type, from + k * spec_.inner * size_of(spec_.type), 1, count, x);
      for (std::int64_t i = 0; i < count; ++i) {
        // The first NaN wins: nothing is better than a NaN, and a NaN is better than any number.
        const bool is_better = spec_.descending ? !(x[i] <= best[i]) : !(x[i] >= best[i]);
        const bool is_taken = is_better && best[i] == best[i];
        best[i] = is_taken ? x[i] : best[i];
        places[i] = is_taken ? static_cast<std::int32_t>(k) : places[i];
      }
    }
    for (std::int64_t i = 0; i < count; ++i) store_index(run, o * spec_.inner + start + i, places[i]);
  }

  void compute(const Run& run, std::int64_t o, std::int64_t i, std::uint8_t* scratch) const {
    auto* keys = reinterpret_cast<std::uint64_t*>(scratch);
    auto* x = reinterpret_cast<float*>(scratch + spec_.extent * 8);
    const std::uint8_t* from =
        run.at<const std::uint8_t>(spec_.source) + (o * spec_.extent * spec_.inner + i) * size_of(spec_.type);
    load_lanes(spec_.type, from, spec_.inner, spec_.extent, x);
    const std::int64_t first = o * spec_.count * spec_.inner + i;
    if (spec_.is_extreme) return store_index(run, first, first_extreme(x, spec_.extent, spec_.descending));
    // The index in the low bits makes keys unique, so that any sorting algorithm is stable.
    for (std::int64_t k = 0; k < spec_.extent; ++k) {
      const std::uint32_t key = sortable(x[k]);
      keys[k] = static_cast<std::uint64_t>(spec_.descending ? ~key : key) << 32 | static_cast<std::uint64_t>(k);
    }
    if (spec_.count < spec_.extent) std::nth_element(keys, keys + spec_.count, keys + spec_.extent);
    std::sort(keys, keys + spec_.count);
    for (std::int64_t k = 0; k < spec_.count; ++k) {
      const auto index = static_cast<std::int64_t>(keys[k] & 0xffffffffu);
      store_index(run, first + k * spec_.inner, index);
      if (spec_.values) copy_value(from + index * spec_.inner * size_of(spec_.type), run, first + k * spec_.inner);
    }
  }

  void store_index(const Run& run, std::int64_t place, std::int64_t index) const {
    if (!spec_.indices) return;
    if (spec_.index_type == AnyType::kI32) run.at<std::int32_t>(*spec_.indices)[place] = static_cast<std::int32_t>(index);
    else run.at<float>(*spec_.indices)[place] = static_cast<float>(index);
  }

  void copy_value(const std::uint8_t* from, const Run& run, std::int64_t place) const {
    const std::int64_t item = size_of(spec_.type);
    std::memcpy(run.at<std::uint8_t>(*spec_.values) + place * item, from, static_cast<std::size_t>(item));
  }

  OrderSpec spec_;
  std::vector<Span> spans_;
};

}  // namespace

std::shared_ptr<Step> make_order(const OrderSpec& spec) { return std::make_shared<OrderStep>(spec); }

}  // namespace tpuconvert
