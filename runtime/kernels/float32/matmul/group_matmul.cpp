#include "float32/matmul/group_matmul.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <tuple>

#include "core/aligned.h"
#include "core/bind_spec.h"
#include "core/variants.h"
#include "float32/matmul/group_matmul_kernel.h"
#include "int8/matmul/group_matmul.h"

namespace tpuconvert {

namespace {

constexpr std::int64_t kFloat = sizeof(float);

// Up to this number of rows, weights are dequantized in registers once per block of rows. With more rows, a panel is
// dequantized once to memory for all rows.
constexpr std::int64_t kMostDecodedRows = 8;

// Minimum number of weights per part: below, starting another thread costs more than it gains.
constexpr std::int64_t kPartWeights = 1 << 14;

const GroupMatmulKernels& group_matmul_kernels(Isa isa) {
  return *TPU_SELECT(isa, &kGroupMatmulScalar, &kGroupMatmulAvx2, &kGroupMatmulAvx512, &kGroupMatmulNeon);
}

class GroupMatmulStep final : public Step {
 public:
  GroupMatmulStep(const GroupMatmulSpec& spec, Isa isa)
      : kernels_(group_matmul_kernels(isa)), float_kernels_(matmul_kernels(isa)), x_(spec.x), y_(spec.y) {
    check_group_matmul(spec, "group_matmul_float32");
    is_precise_ = spec.is_precise;
    MatmulTask& matmul = task_.matmul;
    matmul.rows = spec.rows;
    matmul.columns = spec.columns;
    matmul.depth = spec.depth;
    matmul.left_row = spec.depth;
    matmul.left_depth = 1;
    matmul.out_row = spec.columns;
    task_.bits = spec.bits;
    task_.group = spec.group;
    task_.groups = (spec.depth + spec.group - 1) / spec.group;
    padded_ = (spec.columns + kernels_.lanes - 1) / kernels_.lanes * kernels_.lanes;
    const std::int64_t width = kGroupPanelVectors * kernels_.lanes;
    panels_ = (spec.columns + width - 1) / width;
    const auto* like = dynamic_cast<const GroupMatmulStep*>(spec.like.get());
    packed_ = like != nullptr && like->has_same_weights(*this) ? like->packed_ : pack(spec);
    task_.codes = packed_->codes.data();
    task_.scale = packed_->scale.as<float>();
    task_.zero = spec.zero.empty() ? nullptr : packed_->zero.as<float>();
    matmul.bias = packed_->bias.as<float>();
  }

  void run(const Run& run) const override {
    const std::int64_t weights = task_.matmul.columns * task_.matmul.depth;
    const std::int64_t most = std::min({panels_, weights / kPartWeights + 1, std::int64_t{run.threads()} * 4});
    const int parts = run.threads() == 1 ? 1 : static_cast<int>(most);
    const float* x = run.at<const float>(x_);
    float* y = run.at<float>(y_);
    run.parallel(parts, [&, this](int part, int worker) {
      const std::int64_t first = panels_ * part / parts, last = panels_ * (part + 1) / parts;
      if (is_decoding()) {
        kernels_.decode(task_, first, last, x, y);
      } else {
        multiply(first, last, x, y, reinterpret_cast<float*>(run.scratch(worker)));
      }
    });
  }

  std::vector<Span> spans() const override {
    const auto bytes = [this](std::int64_t extent) { return static_cast<std::size_t>(task_.matmul.rows * extent * kFloat); };
    return {Span::reads(x_, bytes(task_.matmul.depth), kFloat), Span::writes(y_, bytes(task_.matmul.columns), kFloat)};
  }
  std::size_t scratch_bytes() const override {
    const std::int64_t width = float_kernels_.panel_vectors * kernels_.lanes;
    return is_decoding() ? 0 : static_cast<std::size_t>(task_.matmul.depth * width * kFloat);
  }
  std::size_t packed_bytes() const override { return packed_->bytes(); }
  const char* kind() const override { return is_decoding() ? "group_matmul_float32 decode" : "group_matmul_float32"; }

 private:
  bool is_decoding() const { return task_.matmul.rows <= kMostDecodedRows && !is_precise_; }

  // Dequantizes the columns of some panels to `packed`, and multiplies all rows by them.
  void multiply(std::int64_t first, std::int64_t last, const float* x, float* y, float* packed) const {
    const auto function = is_precise_ ? float_kernels_.panel_precise : float_kernels_.panel;
    const int lanes = kernels_.lanes, most = float_kernels_.panel_vectors;
    for (std::int64_t panel = first; panel < last; ++panel) {
      const auto vectors = static_cast<int>(width_of(panel) / lanes);
      for (int start = 0; start < vectors; start += most) {
        const int count = std::min(vectors - start, most);
        kernels_.dequantize(task_, panel, start, count, (count == 1 ? 1 : most) * lanes, packed);
        function(task_.matmul, x, packed, (panel * kGroupPanelVectors + start) * lanes, y, nullptr);
      }
    }
  }

  // Packed columns of a panel.
  std::int64_t width_of(std::int64_t panel) const {
    const std::int64_t width = kGroupPanelVectors * kernels_.lanes;
    return std::min(width, padded_ - panel * width);
  }

  bool has_same_weights(const GroupMatmulStep& other) const {
    const auto shape = [](const GroupMatmulStep& step) {
      const GroupMatmulTask& task = step.task_;
      return std::tuple(step.kernels_.lanes, task.matmul.columns, task.matmul.depth, task.bits, task.group);
    };
    return shape(*this) == shape(other);
  }

  std::shared_ptr<const PackedGroups> pack(const GroupMatmulSpec& spec) const {
    auto packed = std::make_shared<PackedGroups>();
    packed->codes = pack_codes(spec);
    packed->scale = pack_groups(spec.scale);
    if (!spec.zero.empty()) packed->zero = pack_groups(spec.zero);
    packed->bias = AlignedBytes(static_cast<std::size_t>(panels_ * kGroupPanelVectors * kernels_.lanes * kFloat));
    // Adding 0 to a bias turns -0 into +0.
    std::transform(spec.bias.begin(), spec.bias.end(), packed->bias.as<float>(), [](float x) { return x + 0.0f; });
    return packed;
  }

  AlignedBytes pack_codes(const GroupMatmulSpec& spec) const {
    const std::int64_t column_bytes = task_.column_bytes(), width = kGroupPanelVectors * kernels_.lanes;
    const std::int64_t row = spec.code_bytes / spec.columns, item = spec.bits == 4 ? 4 : 1;
    AlignedBytes codes(static_cast<std::size_t>(padded_ * column_bytes));
    for (std::int64_t panel = 0; panel < panels_; ++panel) {
      std::uint8_t* to = codes.data() + panel * width * column_bytes;
      const std::int64_t packed = width_of(panel), columns = std::min(packed, spec.columns - panel * width);
      const std::uint8_t* from = spec.codes + panel * width * row;
      for (std::int64_t k = 0; k < column_bytes; k += item)
        for (std::int64_t column = 0; column < columns; ++column)
          std::memcpy(to + k * packed + column * item, from + column * row + k, static_cast<std::size_t>(item));
    }
    return codes;
  }

  // Packs a value per column and group.
  AlignedBytes pack_groups(const std::vector<float>& from) const {
    AlignedBytes bytes(static_cast<std::size_t>(padded_ * task_.groups * kFloat));
    const std::int64_t width = kGroupPanelVectors * kernels_.lanes;
    for (std::int64_t column = 0; column < task_.matmul.columns; ++column) {
      const std::int64_t panel = column / width;
      float* to = bytes.as<float>() + panel * width * task_.groups + column % width;
      const float* values = from.data() + column * task_.groups;
      for (std::int64_t group = 0; group < task_.groups; ++group) to[group * width_of(panel)] = values[group];
    }
    return bytes;
  }

  const GroupMatmulKernels& kernels_;
  const MatmulKernels& float_kernels_;
  Place x_, y_;
  GroupMatmulTask task_;
  bool is_precise_ = false;
  std::int64_t padded_ = 0, panels_ = 0;
  std::shared_ptr<const PackedGroups> packed_;
};

using CodeArray = nanobind::ndarray<const std::uint8_t, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;

// The codes belong to Python: `code_array` keeps them alive until the step has packed them.
struct GroupMatmulArguments : GroupMatmulSpec {
  CodeArray code_array;
};

template <std::shared_ptr<Step> (*kMake)(const GroupMatmulSpec&, Isa)>
std::shared_ptr<Step> make(const GroupMatmulArguments& arguments, Isa isa) {
  GroupMatmulSpec spec = arguments;
  spec.codes = arguments.code_array.data();
  spec.code_bytes = static_cast<std::int64_t>(arguments.code_array.size());
  nanobind::gil_scoped_release released;
  return kMake(spec, isa);
}

void bind(nanobind::module_& module) {
  using Spec = GroupMatmulArguments;
  SpecClass<Spec>(module, "GroupMatmulSpec")
      .required("x", &Spec::x)
      .required("y", &Spec::y)
      .required("rows", &Spec::rows)
      .required("columns", &Spec::columns)
      .required("depth", &Spec::depth)
      .required("bits", &Spec::bits)
      .required("group", &Spec::group)
      .required("codes", &Spec::code_array)
      .required("scale", &Spec::scale)
      .field("zero", &Spec::zero)
      .field("bias", &Spec::bias)
      .field("is_precise", &Spec::is_precise)
      .field("like", &Spec::like);
  bind_kernel<Spec>(module, "group_matmul_float32", kVectorWidths, make<make_group_matmul>);
  bind_kernel<Spec>(module, "group_matmul_int8", kAllIsas, make<make_group_matmul_int8>);
}

const Binding binding(bind);

}  // namespace

void check_group_matmul(const GroupMatmulSpec& spec, const char* kernel) {
  const auto refuse = [kernel](const char* what) { throw std::invalid_argument(std::string(kernel) + ": " + what); };
  if (spec.bits != 4 && spec.bits != 8) refuse("bits must be 4 or 8");
  if (spec.group < 8 || spec.group % 8 != 0 || spec.group > 1 << 20) refuse("the group size is not possible");
  if (spec.rows < 1 || spec.columns < 1 || spec.depth < 1 ||
      std::max({spec.rows, spec.columns, spec.depth}) > INT32_MAX / 64)
    refuse("an extent is not possible");
  const std::int64_t groups = (spec.depth + spec.group - 1) / spec.group;
  const auto of_groups = static_cast<std::size_t>(spec.columns * groups);  // < 2^50
  if (spec.code_bytes != spec.columns * groups * (spec.group * spec.bits / 8)) refuse("the codes do not fit");
  if (spec.scale.size() != of_groups) refuse("the scales do not fit");
  if (!spec.zero.empty() && spec.zero.size() != of_groups) refuse("the zero points do not fit");
  if (!spec.bias.empty() && spec.bias.size() != static_cast<std::size_t>(spec.columns)) refuse("the bias does not fit");
}

std::shared_ptr<Step> make_group_matmul(const GroupMatmulSpec& spec, Isa isa) {
  return std::make_shared<GroupMatmulStep>(spec, isa);
}

}  // namespace tpuconvert
