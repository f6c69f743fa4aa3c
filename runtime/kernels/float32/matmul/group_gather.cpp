// Gather rows of a table of codes with 4 or 8 bits and one scale per group of columns, in float32.
#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>

#include "core/bind_spec.h"
#include "core/extents.h"

namespace tpuconvert {

namespace {

constexpr std::int64_t kFloat = sizeof(float);

// Elements per part, below which another thread costs more than it gains.
constexpr std::int64_t kPartElements = 1 << 14;

// y[i, k] = (code[indices[i], k] - zero[indices[i], k / group]) * scale[indices[i], k / group]
struct GroupGatherSpec {
  Place indices;               // INT32 [count]
  Place codes;                 // [extent, groups * group * bits / 8]
  Place scale;                 // float32 [extent, groups]
  std::optional<Place> zeros;  // like `scale`; otherwise 2^(bits - 1)
  Place target;                // float32 [count, depth]
  std::int64_t count = 1, extent = 1, depth = 1;
  int bits = 4, group = 32;
};

class GroupGatherStep final : public Step {
 public:
  explicit GroupGatherStep(const GroupGatherSpec& spec) : spec_(spec) {
    if (spec.count < 1 || spec.extent < 1 || spec.depth < 1) throw std::invalid_argument("group_gather_float32: an extent is below 1");
    if (spec.bits != 4 && spec.bits != 8) throw std::invalid_argument("group_gather_float32: a code has neither 4 nor 8 bits");
    if (spec.group < 2 || spec.group % 2 != 0) throw std::invalid_argument("group_gather_float32: the group size is not even");
    groups_ = spec.depth / spec.group + (spec.depth % spec.group != 0);
    product_of({spec.extent, groups_, std::int64_t{spec.group}, kFloat});
    product_of({spec.count, spec.depth, kFloat});
    row_bytes_ = groups_ * spec.group * spec.bits / 8;
  }

  void run(const Run& run) const override {
    // Copy the indices before the bounds check: the caller may modify its buffer concurrently.
    auto* indices = reinterpret_cast<std::int32_t*>(run.scratch(0));
    std::memcpy(indices, run.at<const std::uint8_t>(spec_.indices), static_cast<std::size_t>(spec_.count) * sizeof *indices);
    for (std::int64_t i = 0; i < spec_.count; ++i)
      if (indices[i] < 0 || indices[i] >= spec_.extent)
        throw std::out_of_range("group_gather_float32: index " + std::to_string(indices[i]) + " is outside of 0.." +
                                std::to_string(spec_.extent - 1));
    const std::int64_t useful = spec_.count * spec_.depth / kPartElements + 1;
    const std::int64_t parts = run.threads() == 1 ? 1 : std::min({spec_.count, useful, std::int64_t{2} * run.threads()});
    const std::uint8_t* codes = run.at<const std::uint8_t>(spec_.codes);
    const float* scale = run.at<const float>(spec_.scale);
    const float* zeros = spec_.zeros ? run.at<const float>(*spec_.zeros) : nullptr;
    float* to = run.at<float>(spec_.target);
    run.parallel(static_cast<int>(parts), [&, this](int part, int) {
      for (std::int64_t i = spec_.count * part / parts; i < spec_.count * (part + 1) / parts; ++i) {
        const std::int64_t row = indices[i];
        dequantize(codes + row * row_bytes_, scale + row * groups_, zeros == nullptr ? nullptr : zeros + row * groups_,
                   to + i * spec_.depth);
      }
    });
  }

  std::vector<Span> spans() const override {
    const auto bytes = [](std::int64_t count, std::int64_t size) { return static_cast<std::size_t>(count * size); };
    const std::size_t tables = bytes(spec_.extent * groups_, kFloat);
    std::vector<Span> all{Span::reads(spec_.indices, bytes(spec_.count, sizeof(std::int32_t)), sizeof(std::int32_t)),
                          Span::reads(spec_.codes, bytes(spec_.extent, row_bytes_)), Span::reads(spec_.scale, tables, kFloat),
                          Span::writes(spec_.target, bytes(spec_.count, spec_.depth * kFloat), kFloat)};
    if (spec_.zeros) all.push_back(Span::reads(*spec_.zeros, tables, kFloat));
    return all;
  }
  std::size_t scratch_bytes() const override { return static_cast<std::size_t>(spec_.count) * sizeof(std::int32_t); }
  const char* kind() const override { return "group_gather_float32"; }

 private:
  void dequantize(const std::uint8_t* codes, const float* scale, const float* zeros, float* to) const {
    const float middle = spec_.bits == 4 ? 8.0f : 128.0f;
    for (std::int64_t group = 0; group < groups_; ++group) {
      const std::int64_t first = group * spec_.group;
      const std::int64_t length = std::min<std::int64_t>(spec_.group, spec_.depth - first);
      const float zero = zeros == nullptr ? middle : zeros[group];
      const std::uint8_t* from = codes + first * spec_.bits / 8;
      for (std::int64_t k = 0; k < length; ++k) {
        const int code = spec_.bits == 8 ? from[k] : from[k / 2] >> (k % 2 * 4) & 15;
        to[first + k] = (static_cast<float>(code) - zero) * scale[group];
      }
    }
  }

  GroupGatherSpec spec_;
  std::int64_t groups_ = 1, row_bytes_ = 1;
};

void bind(nanobind::module_& module) {
  using Spec = GroupGatherSpec;
  SpecClass<Spec>(module, "GroupGatherSpec")
      .required("indices", &Spec::indices)
      .required("codes", &Spec::codes)
      .required("scale", &Spec::scale)
      .field_as<Place>("zeros", [](Spec* spec, const Place& place) { spec->zeros = place; })
      .required("target", &Spec::target)
      .required("count", &Spec::count)
      .required("extent", &Spec::extent)
      .required("depth", &Spec::depth)
      .required("bits", &Spec::bits)
      .required("group", &Spec::group);
  bind_kernel<Spec>(module, "group_gather_float32", kScalarOnly, [](const Spec& spec, Isa) {
    return std::shared_ptr<Step>(std::make_shared<GroupGatherStep>(spec));
  });
}

const Binding binding(bind);

}  // namespace

}  // namespace tpuconvert
