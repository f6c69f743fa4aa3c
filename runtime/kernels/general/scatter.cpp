#include "general/scatter.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "core/extents.h"

namespace tpuconvert {

namespace {

// NumPy's integer arithmetic wraps, and its maximum and minimum return a NaN operand.
template <typename Lane>
Lane combine(const std::string& reduction, Lane old, Lane update) {
  if (reduction == "none") return update;
  if constexpr (std::is_same_v<Lane, std::int64_t>) {  // wraps instead of overflowing
    const auto a = static_cast<std::uint64_t>(old), b = static_cast<std::uint64_t>(update);
    if (reduction == "add") return static_cast<Lane>(a + b);
    if (reduction == "mul") return static_cast<Lane>(a * b);
  }
  if (reduction == "add") return old + update;
  if (reduction == "mul") return old * update;
  if (old != old) return old;
  if (update != update) return update;
  if (reduction == "max") return old >= update ? old : update;
  return old <= update ? old : update;
}

class ScatterStep final : public Step {
 public:
  explicit ScatterStep(const ScatterSpec& spec) : spec_(spec) {
    const std::size_t columns = spec.index_steps.size();
    if (spec.elements < 1 || spec.count < 1 || spec.block < 1 || columns < 1 || spec.extents.size() != columns ||
        spec.axes.size() != columns)
      throw std::invalid_argument("scatter: an extent is invalid");
    if (!spec.offsets.empty() && static_cast<std::int64_t>(spec.offsets.size()) != spec.count)
      throw std::invalid_argument("scatter: one offset per update is needed");
    const char* const kReductions[] = {"none", "add", "mul", "max", "min"};
    if (std::find(std::begin(kReductions), std::end(kReductions), spec.reduction) == std::end(kReductions))
      throw std::invalid_argument("scatter: unknown reduction '" + spec.reduction + "'");
    std::int64_t last = spec.block - 1;
    for (std::size_t k = 0; k < columns; ++k) {
      if (spec.extents[k] < 1) throw std::invalid_argument("scatter: an extent is invalid");
      last += product_of({spec.extents[k] - 1, spec.index_steps[k]});
      if (last > kMostBytes) throw std::invalid_argument("scatter: extents are too large");
    }
    for (const std::int64_t offset : spec.offsets)
      if (offset < 0 || offset >= spec.elements - last) throw std::invalid_argument("scatter: an offset leaves the data");
    if (last >= spec.elements) throw std::invalid_argument("scatter: an index leaves the data");
    item_ = size_of(spec.type);
    const auto bytes = [](std::int64_t count, std::int64_t size) { return static_cast<std::size_t>(product_of({count, size})); };
    const auto item = static_cast<std::size_t>(item_);
    spans_ = {Span::reads(spec.data, bytes(spec.elements, item_), item),
              Span::reads(spec.indices, bytes(product_of({spec.count, static_cast<std::int64_t>(columns)}), 4), 4),
              Span::reads(spec.updates, bytes(product_of({spec.count, spec.block}), item_), item),
              Span::writes(spec.target, bytes(spec.elements, item_), item)};
    if (spec.data.buffer == spec.target.buffer || spec.updates.buffer == spec.target.buffer || spec.indices.buffer == spec.target.buffer)
      throw std::invalid_argument("scatter: the target buffer is also read");
  }

  void run(const Run& run) const override {
    auto* places = reinterpret_cast<std::int64_t*>(run.scratch(0));
    find_places(run.at<const std::int32_t>(spec_.indices), places);
    std::uint8_t* to = run.at<std::uint8_t>(spec_.target);
    std::memcpy(to, run.at<const std::uint8_t>(spec_.data), static_cast<std::size_t>(spec_.elements * item_));
    const std::uint8_t* from = run.at<const std::uint8_t>(spec_.updates);
    for (std::int64_t k = 0; k < spec_.count; ++k, from += spec_.block * item_) {
      std::uint8_t* place = to + places[k] * item_;
      if (spec_.reduction == "none") std::memcpy(place, from, static_cast<std::size_t>(spec_.block * item_));
      else if (is_float(spec_.type)) update<float>(from, place);
      else update<std::int64_t>(from, place);
    }
  }

  std::vector<Span> spans() const override { return spans_; }
  std::size_t scratch_bytes() const override { return static_cast<std::size_t>(spec_.count) * 8; }
  const char* kind() const override { return "scatter"; }

 private:
  // Positions of all updates, before anything is written. An index is read once: the caller may modify its buffer.
  void find_places(const std::int32_t* indices, std::int64_t* places) const {
    const std::size_t columns = spec_.index_steps.size();
    for (std::size_t j = 0; j < columns; ++j) {
      for (std::int64_t k = 0; k < spec_.count; ++k) {
        const std::int32_t* place = indices + k * static_cast<std::int64_t>(columns) + static_cast<std::int64_t>(j);
        const std::int64_t given = *static_cast<const volatile std::int32_t*>(place);
        const std::int64_t extent = spec_.extents[j], index = given < 0 ? given + extent : given;
        if (index < 0 || index >= extent)
          throw std::out_of_range(spec_.name + ": index " + std::to_string(given) + " is outside of -" + std::to_string(extent) + ".." +
                                  std::to_string(extent - 1) + ", axis " + std::to_string(spec_.axes[j]));
        const std::int64_t start = j > 0 ? places[k] : spec_.offsets.empty() ? 0 : spec_.offsets[static_cast<std::size_t>(k)];
        places[k] = start + index * spec_.index_steps[j];
      }
    }
  }

  template <typename Lane>
  void update(const std::uint8_t* from, std::uint8_t* place) const {
    for (std::int64_t i = 0; i < spec_.block; ++i) {
      Lane old, update;
      load_lanes(spec_.type, place + i * item_, 1, 1, &old);
      load_lanes(spec_.type, from + i * item_, 1, 1, &update);
      const Lane combined = combine(spec_.reduction, old, update);
      store_lanes(spec_.type, place + i * item_, 1, 1, &combined);
    }
  }

  ScatterSpec spec_;
  std::int64_t item_ = 4;
  std::vector<Span> spans_;
};

}  // namespace

std::shared_ptr<Step> make_scatter(const ScatterSpec& spec) { return std::make_shared<ScatterStep>(spec); }

}  // namespace tpuconvert
