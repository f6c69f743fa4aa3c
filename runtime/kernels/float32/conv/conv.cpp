#include "float32/conv/conv.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "core/aligned.h"
#include "core/variants.h"

namespace tpuconvert {

namespace {

// Limits for the packed weights of a run of panels, which is used for one tile of rows at a time: together with the
// rows, they should stay in the second-level cache.
constexpr std::size_t kResidentBytes = 512 * 1024;
constexpr std::size_t kRunBytes = 320 * 1024;

// Rows with this distance in bytes share a set of the first-level cache: more rows than the cache has ways evict each
// other.
constexpr std::ptrdiff_t kCacheAlias = 4096;

// Maximum size of the gathered rows for Gathers::kOnce, in bytes.
constexpr std::int64_t kGatherBytes = 1 << 20;

// With fewer input channels, the taps of tiles at the padding are too short to be read one by one.
constexpr int kShortDepth = 16;

constexpr char kName[] = "conv_float32";

// Everything that determines the layout of packed weights.
struct PackedShape {
  int out_channels = 0, groups = 0, depth = 0, kernel_h = 0, kernel_w = 0;
  const MatmulKernels* kernels = nullptr;

  bool operator==(const PackedShape& other) const {
    return out_channels == other.out_channels && groups == other.groups && depth == other.depth &&
           kernel_h == other.kernel_h && kernel_w == other.kernel_w && kernels == other.kernels;
  }
};

class ConvFloatStep final : public Step {
 public:
  ConvFloatStep(const ConvFloatSpec& spec, Isa isa)
      : kernels_(matmul_kernels(isa)),
        input_(spec.input),
        output_(spec.output),
        residual_(spec.residual),
        is_precise_(spec.is_precise),
        rows_(spec.is_precise ? kernels_.precise_rows : kernels_.tile_rows) {
    const ConvGeometry& g = spec.geometry;
    static_cast<Window&>(task_) = window_of(g, kName);
    check(spec.limits, kName);
    input_bytes_ = input_bytes(g, kName);
    output_bytes_ = output_bytes(g, kName);
    if (!spec.bias.empty() && spec.bias.size() != static_cast<std::size_t>(g.out_channels))
      throw std::invalid_argument("conv_float32: the bias does not fit");
    task_.depth = g.group_in();
    task_.is_dense = g.dilation_w == 1 && (g.kernel_w == 1 || task_.in_pixel == g.group_in());
    task_.limits = spec.limits;
    pack(spec);
    task_.gathers = gathers_of(g);
    if (!spec.tail.empty()) {
      check_tail(spec);
      tail_ = spec.tail;
      task_.tail = tail_.data();
      task_.tail_count = static_cast<int>(tail_.size());
      task_.run_tail = is_precise_ ? chain_kernels(isa).run_precise : chain_kernels(isa).run;
    }
    kind_ = std::string("conv_float32 ") + std::to_string(g.kernel_h) + "x" + std::to_string(g.kernel_w);
    if (is_precise_) kind_ += " binary64";
  }

  void run(const Run& run) const override {
    const auto* input = run.at<const float>(input_);
    const float* residual = residual_ ? run.at<const float>(*residual_) : nullptr;
    auto* output = run.at<float>(output_);
    const std::int64_t tiles = matmul_tiles(task_, rows_);
    const auto kernel = is_precise_ ? kernels_.run_precise : kernels_.run;
    const int threads = run.threads();
    const bool has_rows = tiles >= 4 * threads || tiles >= static_cast<std::int64_t>(panels_.size());
    MatmulConvTask task = task_;
    task.runs = has_rows ? runs_.data() : single_runs_.data();
    task.run_count = static_cast<int>(has_rows ? runs_.size() : single_runs_.size());
    const std::int64_t units = has_rows ? tiles : task.run_count;
    const int parts = threads == 1 ? 1 : static_cast<int>(std::min<std::int64_t>(units, threads));
    run.parallel(parts, [&](int part, int worker) {
      const std::int64_t begin = units * part / parts, end = units * (part + 1) / parts;
      MatmulPart range{0, task.run_count, 0, tiles};
      if (has_rows) {
        range.tile_begin = begin;
        range.tile_end = end;
      } else {
        range.run_begin = static_cast<int>(begin);
        range.run_end = static_cast<int>(end);
      }
      kernel(task, range, input, residual, output, run.scratch(worker));
    });
  }

  std::vector<Span> spans() const override {
    std::vector<Span> all{Span::reads(input_, input_bytes_, sizeof(float)),
                          Span::writes(output_, output_bytes_, sizeof(float))};
    if (residual_) all.push_back(Span::reads(*residual_, output_bytes_, sizeof(float)));
    return all;
  }
  std::size_t scratch_bytes() const override { return matmul_scratch(task_, rows_); }
  std::size_t packed_bytes() const override { return weights_->size() + bias_.size() + zeros_.size(); }
  const char* kind() const override { return kind_.c_str(); }

 private:
  Gathers gathers_of(const ConvGeometry& g) const {
    if (g.taps() > 1 && g.group_in() < kShortDepth && task_.is_dense) return Gathers::kBorder;
    if (g.in_pixel * g.stride_w % kCacheAlias != 0 || panels_.size() < 2 || g.groups > 1) return Gathers::kNone;
    const std::int64_t rows = matmul_tiles(task_, rows_) * rows_;
    const std::int64_t row_bytes = static_cast<std::int64_t>(g.taps()) * task_.depth * static_cast<std::int64_t>(sizeof(float));
    if (runs_.size() > 1 && row_bytes <= kGatherBytes / rows) return Gathers::kOnce;
    return g.taps() == 1 ? Gathers::kTile : Gathers::kNone;
  }

  void pack(const ConvFloatSpec& spec) {
    const ConvGeometry& g = spec.geometry;
    const int wide = kernels_.panel_vectors * kernels_.lanes, lanes = kernels_.lanes;
    const std::size_t depth = static_cast<std::size_t>(g.group_in()) * static_cast<std::size_t>(g.taps());
    const std::size_t whole_panels = static_cast<std::size_t>((g.group_out() + wide - 1) / wide * wide);
    const std::size_t group_bytes = depth * whole_panels * sizeof(float);
    const std::size_t run_limit = group_bytes <= kResidentBytes ? group_bytes : kRunBytes;
    std::size_t floats = 0;
    for (int group = 0; group < g.groups; ++group)
      for (int first = 0; first < g.group_out(); first += wide) {
        MatmulPanel panel;
        panel.first = group * g.group_out() + first;
        panel.columns = std::min(wide, g.group_out() - first);
        panel.vectors = panel.columns <= lanes ? 1 : kernels_.panel_vectors;
        panel.weights = floats;
        floats += depth * static_cast<std::size_t>(panel.vectors * lanes);
        add_to_run(static_cast<std::ptrdiff_t>(group) * g.group_in(), depth, panel, run_limit);
      }
    const auto* like = dynamic_cast<const ConvFloatStep*>(spec.like.get());
    const PackedShape shape{g.out_channels, g.groups, g.group_in(), g.kernel_h, g.kernel_w, &kernels_};
    const bool is_shared = like != nullptr && like->packed_shape_ == shape;
    packed_shape_ = shape;
    weights_ = is_shared ? like->weights_ : std::make_shared<AlignedBytes>(floats * sizeof(float));
    bias_ = AlignedBytes(panels_.size() * static_cast<std::size_t>(wide) * sizeof(float));
    zeros_ = AlignedBytes(static_cast<std::size_t>(g.group_in()) * static_cast<std::size_t>(g.kernel_w) * sizeof(float));
    for (std::size_t p = 0; p < panels_.size(); ++p) {
      const MatmulPanel& panel = panels_[p];
      const int stride = panel.vectors * lanes;
      float* to = weights_->as<float>() + panel.weights;
      for (int y = 0; !is_shared && y < g.kernel_h; ++y)
        for (int x = 0; x < g.kernel_w; ++x)
          for (int in = 0; in < g.group_in(); ++in, to += stride)
            for (int column = 0; column < panel.columns; ++column) to[column] = spec.weights.at(panel.first + column, in, y, x);
      if (spec.bias.empty()) continue;
      for (int column = 0; column < panel.columns; ++column)
        bias_.as<float>()[p * static_cast<std::size_t>(wide) + static_cast<std::size_t>(column)] =
            spec.bias[static_cast<std::size_t>(panel.first + column)] + 0.0f;  // adding 0 turns -0 into +0
    }
    task_.panels = panels_.data();
    task_.weights = weights_->as<float>();
    task_.bias = bias_.as<float>();
    task_.zeros = zeros_.as<float>();
  }

  // Panels of one group share a run as long as the weights of the run fit `limit`.
  void add_to_run(std::ptrdiff_t input, std::size_t depth, const MatmulPanel& panel, std::size_t limit) {
    const int index = static_cast<int>(panels_.size());
    const std::size_t row = depth * static_cast<std::size_t>(kernels_.lanes) * sizeof(float);
    panels_.push_back(panel);
    single_runs_.push_back({index, index + 1, input});
    const std::size_t bytes = row * static_cast<std::size_t>(panel.vectors);
    run_bytes_ += bytes;
    if (!runs_.empty() && runs_.back().input == input && run_bytes_ <= limit) {
      runs_.back().end = index + 1;
    } else {
      runs_.push_back({index, index + 1, input});
      run_bytes_ = bytes;
    }
  }

  const MatmulKernels& kernels_;
  Place input_, output_;
  std::optional<Place> residual_;
  bool is_precise_;
  int rows_;
  std::size_t input_bytes_ = 0, output_bytes_ = 0;
  MatmulConvTask task_;
  std::vector<MatmulPanel> panels_;
  std::vector<PanelRun> runs_, single_runs_;
  std::size_t run_bytes_ = 0;
  PackedShape packed_shape_;
  std::shared_ptr<AlignedBytes> weights_;  // not changed after the constructor
  AlignedBytes bias_, zeros_;
  std::vector<ChainOp> tail_;
  std::string kind_;
};

}  // namespace

void check_tail(const ConvFloatSpec& spec) {
  for (const ChainOp& op : spec.tail)
    if (op.operand > 1 || op.operand == 0 || (op.operand == 1 && !spec.residual))
      throw std::invalid_argument("conv_float32: there is no such operand");
  if (spec.limits.are_set) throw std::invalid_argument("conv_float32: limits are part of what follows");
}

std::shared_ptr<Step> make_conv_float(const ConvFloatSpec& spec, Isa isa) {
  if (spec.geometry.groups > 0 && spec.geometry.is_depthwise()) return make_depthwise_float(spec, isa);
  return std::make_shared<ConvFloatStep>(spec, isa);
}

const MatmulKernels& matmul_kernels(Isa isa) {
  return TPU_SELECT(isa, kMatmulScalar, kMatmulAvx2, kMatmulAvx512, kMatmulNeon);
}

std::int64_t matmul_tiles(const MatmulConvTask& task, int tile_rows) {
  const bool is_linear = task.out_row == task.out_width * task.out_pixel &&
                         (task.batch == 1 || task.out_image == task.out_height * task.out_row);
  const std::int64_t lines = is_linear ? 1 : static_cast<std::int64_t>(task.batch) * task.out_height;
  const std::int64_t line = static_cast<std::int64_t>(task.batch) * task.out_height * task.out_width / lines;
  return lines * ((line + tile_rows - 1) / tile_rows);
}

std::size_t matmul_scratch(const MatmulConvTask& task, int tile_rows) {
  const std::size_t rows = static_cast<std::size_t>(tile_rows), taps = static_cast<std::size_t>(task.taps());
  const std::size_t addresses = (taps * rows * sizeof(float*) + 63) / 64 * 64;
  if (task.gathers == Gathers::kNone) return addresses;
  const std::size_t depth = taps * static_cast<std::size_t>(task.depth);
  const std::int64_t tiles = task.gathers == Gathers::kOnce ? matmul_tiles(task, tile_rows) : 1;
  return addresses + static_cast<std::size_t>(tiles) * rows * ((depth + 15) / 16 + 1) * 64;
}

}  // namespace tpuconvert
