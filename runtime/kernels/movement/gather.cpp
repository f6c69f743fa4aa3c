#include "movement/gather.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "core/extents.h"

namespace tpuconvert {

namespace {

constexpr std::int64_t kBytesPerPart = 1 << 15;

template <typename T>
void take(const std::uint8_t* from, std::uint8_t* to, const std::vector<std::int32_t>& indices) {
  for (std::size_t k = 0; k < indices.size(); ++k)
    reinterpret_cast<T*>(to)[k] = reinterpret_cast<const T*>(from)[indices[k]];
}

class GatherStep final : public Step {
 public:
  explicit GatherStep(const GatherSpec& spec) : spec_(spec) {
    if (spec.outer < 0 || spec.extent < 0 || spec.inner_bytes < 0) throw std::invalid_argument("gather: negative extent");
    if (spec.source.buffer == spec.target.buffer) throw std::invalid_argument("gather: into the buffer that is read");
    product_of({spec.outer, spec.extent, spec.inner_bytes});
    product_of({spec.outer, static_cast<std::int64_t>(spec.indices.size()), spec.inner_bytes});
    for (const std::int32_t index : spec.indices)
      if (index < 0 || index >= spec.extent) throw std::invalid_argument("gather: an index is outside of the axis");
  }

  void run(const Run& run) const override {
    const std::uint8_t* from = run.at<const std::uint8_t>(spec_.source);
    std::uint8_t* to = run.at<std::uint8_t>(spec_.target);
    const std::int64_t row = spec_.extent * spec_.inner_bytes;
    const auto count = static_cast<std::int64_t>(spec_.indices.size());
    // Split along `outer` if it is long enough, otherwise along the indices (the lines of a single image).
    const std::int64_t useful = std::max<std::int64_t>(1, spec_.outer * count * spec_.inner_bytes / kBytesPerPart);
    const bool by_rows = spec_.outer >= count || is_element();
    const std::int64_t parts =
        run.threads() == 1 ? 1 : std::min({by_rows ? spec_.outer : count, useful, std::int64_t{2} * run.threads()});
    run.parallel(static_cast<int>(parts), [&](int part, int) {
      const std::int64_t all = by_rows ? spec_.outer : count;
      const std::int64_t first = all * part / parts, last = all * (part + 1) / parts;
      for (std::int64_t i = by_rows ? first : 0; i < (by_rows ? last : spec_.outer); ++i)
        copy_row(from + i * row, to + i * count * spec_.inner_bytes, by_rows ? 0 : first, by_rows ? count : last);
    });
  }

  std::vector<Span> spans() const override {
    const auto bytes = [&](std::int64_t extent) {
      return static_cast<std::size_t>(spec_.outer * extent * spec_.inner_bytes);
    };
    const std::size_t item = is_element() ? static_cast<std::size_t>(spec_.inner_bytes) : 1;
    return {Span::reads(spec_.source, bytes(spec_.extent), item),
            Span::writes(spec_.target, bytes(static_cast<std::int64_t>(spec_.indices.size())), item)};
  }
  const char* kind() const override { return "gather"; }

 private:
  bool is_element() const { return spec_.inner_bytes == 1 || spec_.inner_bytes == 2 || spec_.inner_bytes == 4; }

  void copy_row(const std::uint8_t* from, std::uint8_t* to, std::int64_t first, std::int64_t last) const {
    if (spec_.inner_bytes == 1) return take<std::uint8_t>(from, to, spec_.indices);
    if (spec_.inner_bytes == 2) return take<std::uint16_t>(from, to, spec_.indices);
    if (spec_.inner_bytes == 4) return take<std::uint32_t>(from, to, spec_.indices);
    const auto bytes = static_cast<std::size_t>(spec_.inner_bytes);
    for (std::int64_t k = first; k < last; ++k)
      std::memcpy(to + k * spec_.inner_bytes, from + spec_.indices[static_cast<std::size_t>(k)] * spec_.inner_bytes,
                  bytes);
  }

  GatherSpec spec_;
};

}  // namespace

std::shared_ptr<Step> make_gather(const GatherSpec& spec) { return std::make_shared<GatherStep>(spec); }

}  // namespace tpuconvert
