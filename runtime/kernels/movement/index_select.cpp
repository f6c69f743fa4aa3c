#include "movement/index_select.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "core/extents.h"

namespace tpuconvert {

namespace {

constexpr std::int64_t kBytesPerPart = 1 << 15;

// Copies slices first..last-1 of the result, counted along `outer` and then along the indices.
template <typename T>
void take_elements(const IndexSelectSpec& spec, const std::int32_t* indices, const std::uint8_t* from, std::uint8_t* to,
                   std::int64_t first, std::int64_t last) {
  T* out = reinterpret_cast<T*>(to);
  for (std::int64_t slice = first; slice < last;) {
    const T* row = reinterpret_cast<const T*>(from) + slice / spec.count * spec.extent;
    for (std::int64_t k = slice % spec.count; k < spec.count && slice < last; ++k, ++slice) out[slice] = row[indices[k]];
  }
}

void take_blocks(const IndexSelectSpec& spec, const std::int32_t* indices, const std::uint8_t* from, std::uint8_t* to,
                 std::int64_t first, std::int64_t last) {
  for (std::int64_t slice = first; slice < last; ++slice) {
    const std::int64_t row = slice / spec.count * spec.extent + indices[slice % spec.count];
    std::memcpy(to + slice * spec.inner_bytes, from + row * spec.inner_bytes, static_cast<std::size_t>(spec.inner_bytes));
  }
}

class IndexSelectStep final : public Step {
 public:
  explicit IndexSelectStep(const IndexSelectSpec& spec) : spec_(spec) {
    if (spec.outer < 1 || spec.extent < 1 || spec.inner_bytes < 1 || spec.count < 1)
      throw std::invalid_argument("index_select: an extent is below 1");
    if (spec.source.buffer == spec.target.buffer) throw std::invalid_argument("index_select: the target buffer is also read");
    product_of({spec.outer, spec.extent, spec.inner_bytes});
    product_of({spec.outer, spec.count, spec.inner_bytes});
    product_of({spec.count, std::int64_t{sizeof(std::int32_t)}});
    function_ = spec.inner_bytes == 1   ? take_elements<std::uint8_t>
                : spec.inner_bytes == 2 ? take_elements<std::uint16_t>
                : spec.inner_bytes == 4 ? take_elements<std::uint32_t>
                                        : take_blocks;
  }

  void run(const Run& run) const override {
    // Copy the indices before the bounds check: the caller may modify its buffer concurrently.
    auto* indices = reinterpret_cast<std::int32_t*>(run.scratch(0));
    std::memcpy(indices, run.at<const std::uint8_t>(spec_.indices), static_cast<std::size_t>(spec_.count) * 4);
    check(indices);
    const std::uint8_t* from = run.at<const std::uint8_t>(spec_.source);
    std::uint8_t* to = run.at<std::uint8_t>(spec_.target);
    const std::int64_t all = spec_.outer * spec_.count;
    const std::int64_t useful = std::max<std::int64_t>(1, all * spec_.inner_bytes / kBytesPerPart);
    const std::int64_t parts = run.threads() == 1 ? 1 : std::min({all, useful, std::int64_t{2} * run.threads()});
    run.parallel(static_cast<int>(parts), [&](int part, int) {
      function_(spec_, indices, from, to, all * part / parts, all * (part + 1) / parts);
    });
  }

  std::vector<Span> spans() const override {
    const bool is_element = spec_.inner_bytes == 2 || spec_.inner_bytes == 4;
    const std::size_t item = is_element ? static_cast<std::size_t>(spec_.inner_bytes) : 1;
    return {Span::reads(spec_.source, static_cast<std::size_t>(spec_.outer * spec_.extent * spec_.inner_bytes), item),
            Span::reads(spec_.indices, static_cast<std::size_t>(spec_.count) * 4, 4),
            Span::writes(spec_.target, static_cast<std::size_t>(spec_.outer * spec_.count * spec_.inner_bytes), item)};
  }
  std::size_t scratch_bytes() const override { return static_cast<std::size_t>(spec_.count) * 4; }
  const char* kind() const override { return "index_select"; }

 private:
  using Function = void (*)(const IndexSelectSpec&, const std::int32_t*, const std::uint8_t*, std::uint8_t*, std::int64_t,
                            std::int64_t);

  void check(const std::int32_t* indices) const {
    for (std::int64_t k = 0; k < spec_.count; ++k)
      if (indices[k] < 0 || indices[k] >= spec_.extent)
        throw std::out_of_range("index_select: index " + std::to_string(indices[k]) + " is outside of " + spec_.bounds);
  }

  IndexSelectSpec spec_;
  Function function_;
};

}  // namespace

std::shared_ptr<Step> make_index_select(const IndexSelectSpec& spec) { return std::make_shared<IndexSelectStep>(spec); }

}  // namespace tpuconvert
