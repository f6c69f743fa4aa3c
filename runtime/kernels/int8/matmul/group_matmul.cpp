#include "int8/matmul/group_matmul.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <tuple>

#include "core/aligned.h"
#include "int8/matmul/group_matmul_kernel.h"

namespace tpuconvert {

namespace {

constexpr std::int64_t kFloat = sizeof(float);

// The sums of larger groups are not exact in float32.
constexpr int kMostGroup = 256;

// Minimum number of weights per part: below, starting another thread costs more than it gains.
constexpr std::int64_t kPartWeights = 1 << 16;

const Int8GroupKernels& int8_group_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512Vnni) return kInt8GroupAvx512Vnni;
  if (isa >= Isa::kAvxVnni && has_vex_dot_products()) return kInt8GroupAvxVnni;
  if (isa >= Isa::kAvx2) return kInt8GroupAvx2;
#elif defined(__aarch64__)
  if (isa == Isa::kI8mm) return kInt8GroupI8mm;
  if (isa == Isa::kDotprod) return kInt8GroupDotprod;
  if (isa == Isa::kNeon) return kInt8GroupNeon;
#else
  static_cast<void>(isa);
#endif
  return kInt8GroupScalar;
}

// Moves four codes of 4 bits to the low-order bits of the bytes of a word.
std::uint32_t spread(std::uint32_t codes) {
  codes = (codes | codes << 8) & 0x00FF00FFu;
  return (codes | codes << 4) & 0x0F0F0F0Fu;
}

class GroupMatmulInt8Step final : public Step {
 public:
  GroupMatmulInt8Step(const GroupMatmulSpec& spec, Isa isa)
      : kernels_(int8_group_kernels(isa)), x_(spec.x), y_(spec.y), rows_(spec.rows) {
    check_group_matmul(spec, "group_matmul_int8");
    if (spec.group > kMostGroup) throw std::invalid_argument("group_matmul_int8: the group size is above 256");
    task_.columns = spec.columns;
    task_.depth = spec.depth;
    task_.padded = (spec.depth + 7) / 8 * 8;
    task_.bits = spec.bits;
    task_.group = spec.group;
    task_.groups = (spec.depth + spec.group - 1) / spec.group;
    width_ = kInt8PanelVectors * kernels_.lanes;
    panels_ = (spec.columns + width_ - 1) / width_;
    const auto* like = dynamic_cast<const GroupMatmulInt8Step*>(spec.like.get());
    packed_ = like != nullptr && like->has_same_weights(*this) ? like->packed_ : pack(spec);
    task_.codes = packed_->codes.data();
    task_.scale = packed_->scale.as<float>();
    task_.zero = spec.zero.empty() ? nullptr : packed_->zero.as<float>();
    task_.bias = packed_->bias.as<float>();
  }

  void run(const Run& run) const override {
    const std::int64_t weights = task_.columns * task_.depth;
    const std::int64_t most = std::min({panels_, weights / kPartWeights + 1, std::int64_t{run.threads()} * 4});
    const int parts = run.threads() == 1 ? 1 : static_cast<int>(most);
    for (std::int64_t first = 0; first < rows_; first += kInt8RowBlock) {
      const std::int64_t count = std::min(kInt8RowBlock, rows_ - first);
      const float* x = run.at<const float>(x_) + first * task_.depth;
      float* y = run.at<float>(y_) + first * task_.columns;
      // All threads read the rows that are quantized here.
      const Int8Rows rows = rows_at(run.scratch(0));
      const int row_parts = static_cast<int>(std::min<std::int64_t>(count, parts));
      run.parallel(row_parts, [&, this](int part, int) {
        const std::int64_t begin = count * part / row_parts, end = count * (part + 1) / row_parts;
        kernels_.quantize(task_, x + begin * task_.depth, end - begin, skip(rows, begin));
      });
      run.parallel(parts, [&, this](int part, int) {
        kernels_.multiply(task_, panels_ * part / parts, panels_ * (part + 1) / parts, rows, count, y);
      });
    }
  }

  std::vector<Span> spans() const override {
    const auto bytes = [this](std::int64_t extent) { return static_cast<std::size_t>(rows_ * extent * kFloat); };
    return {Span::reads(x_, bytes(task_.depth), kFloat), Span::writes(y_, bytes(task_.columns), kFloat)};
  }
  std::size_t scratch_bytes() const override { return static_cast<std::size_t>(block() * (values_bytes() + 3 * group_bytes())); }
  std::size_t packed_bytes() const override { return packed_->bytes(); }
  const char* kind() const override { return rows_ == 1 ? "group_matmul_int8 decode" : "group_matmul_int8"; }

 private:
  std::int64_t block() const { return std::min(rows_, kInt8RowBlock); }
  std::int64_t values_bytes() const { return task_.padded; }
  std::int64_t group_bytes() const { return task_.groups * kFloat; }

  Int8Rows rows_at(std::uint8_t* scratch) const {
    Int8Rows rows;
    rows.values = reinterpret_cast<std::int8_t*>(scratch);
    scratch += block() * values_bytes();  // a multiple of 8
    rows.scale = reinterpret_cast<float*>(scratch);
    rows.start = reinterpret_cast<std::int32_t*>(scratch + block() * group_bytes());
    rows.sum = reinterpret_cast<float*>(scratch + 2 * block() * group_bytes());
    return rows;
  }
  Int8Rows skip(const Int8Rows& rows, std::int64_t count) const {
    const std::int64_t groups = count * task_.groups;
    return {rows.values + count * task_.padded, rows.scale + groups, rows.start + groups, rows.sum + groups};
  }

  bool has_same_weights(const GroupMatmulInt8Step& other) const {
    const auto shape = [](const GroupMatmulInt8Step& step) {
      const Int8GroupTask& task = step.task_;
      return std::tuple(step.kernels_.lanes, task.columns, task.depth, task.bits, task.group);
    };
    return shape(*this) == shape(other);
  }

  std::shared_ptr<const PackedGroups> pack(const GroupMatmulSpec& spec) const {
    auto packed = std::make_shared<PackedGroups>();
    packed->codes = pack_codes(spec);
    packed->scale = pack_groups(spec.scale);
    if (!spec.zero.empty()) packed->zero = pack_groups(spec.zero);
    packed->bias = AlignedBytes(static_cast<std::size_t>(panels_ * width_ * kFloat));
    std::copy(spec.bias.begin(), spec.bias.end(), packed->bias.as<float>());
    return packed;
  }

  AlignedBytes pack_codes(const GroupMatmulSpec& spec) const {
    const std::int64_t words = task_.column_bytes() / 4, row = spec.code_bytes / spec.columns;
    AlignedBytes codes(static_cast<std::size_t>(panels_ * width_ * words * 4));
    for (std::int64_t column = 0; column < spec.columns; ++column) {
      const std::uint8_t* from = spec.codes + column * row;
      std::uint8_t* to = codes.data() + (column / width_ * width_ * words + column % width_) * 4;
      for (std::int64_t index = 0; index < words; ++index) {
        std::uint32_t word;
        std::memcpy(&word, from + 4 * index, sizeof word);
        if (spec.bits == 4) word = spread(word & 0xFFFFu) | spread(word >> 16) << 4;
        std::memcpy(to + index * width_ * 4, &word, sizeof word);
      }
    }
    return codes;
  }

  // Packs a value per column and group.
  AlignedBytes pack_groups(const std::vector<float>& from) const {
    AlignedBytes bytes(static_cast<std::size_t>(panels_ * width_ * group_bytes()));
    for (std::int64_t column = 0; column < task_.columns; ++column) {
      float* to = bytes.as<float>() + column / width_ * width_ * task_.groups + column % width_;
      const float* values = from.data() + column * task_.groups;
      for (std::int64_t group = 0; group < task_.groups; ++group) to[group * width_] = values[group];
    }
    return bytes;
  }

  const Int8GroupKernels& kernels_;
  Place x_, y_;
  std::int64_t rows_;
  Int8GroupTask task_;
  std::int64_t width_ = 1, panels_ = 0;
  std::shared_ptr<const PackedGroups> packed_;
};

}  // namespace

std::shared_ptr<Step> make_group_matmul_int8(const GroupMatmulSpec& spec, Isa isa) {
  return std::make_shared<GroupMatmulInt8Step>(spec, isa);
}

}  // namespace tpuconvert
