#if defined(__x86_64__)

#include "int8/avx512_dense.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "int8/avx512_finish.h"
#include "int8/avx512_packing.h"
#include "int8/avx512_windows.h"

namespace tpuconvert::avx512 {
namespace {

constexpr std::size_t kCacheShare = 512 * 1024;  // of weights that stay in the second-level cache beside activations
constexpr std::size_t kGroupBytes = 320 * 1024;  // of weights that are used for all rows before the next are read
constexpr std::size_t kPassBytes = 16 * 1024;    // of inputs that all panels use before the next are read

TileKernel tile_kernel(const Panel& panel, int rows, bool adds_residual) {
  if (adds_residual) return tile_one_factor_residual(panel.full, rows);
  switch (panel.form) {
    case TileForm::kOneFactor: return tile_one_factor(panel.full, panel.half, rows);
    case TileForm::kTwoFactors: return tile_two_factors(panel.full, panel.half, rows);
    case TileForm::kKinked: return tile_kinked(panel.full, panel.half, rows);
    case TileForm::kSums: break;
  }
  return tile_sums(panel.full, panel.half, rows);
}

// Neighbouring panels of one shape, whose weights are used for all rows of a part before those of the next run.
struct PanelRun {
  int first, last;  // last is exclusive
};

std::vector<PanelRun> runs_of(const std::vector<Panel>& panels, std::size_t weight_bytes) {
  const std::size_t limit = weight_bytes > kCacheShare ? kGroupBytes : weight_bytes;
  std::vector<PanelRun> runs;
  std::size_t bytes = 0;
  for (int i = 0; i < static_cast<int>(panels.size()); ++i) {
    const Panel& panel = panels[static_cast<std::size_t>(i)];
    const Panel* before = i == 0 ? nullptr : &panels[static_cast<std::size_t>(i - 1)];
    if (before == nullptr || before->full != panel.full || before->half != panel.half ||
        bytes + panel.weight_bytes > limit) {
      runs.push_back({i, i});
      bytes = 0;
    }
    bytes += panel.weight_bytes;
    runs.back().last = i + 1;
  }
  return runs;
}

class Dense : public ConvInt8Kernel {
 public:
  explicit Dense(const ConvInt8Spec& spec)
      : g_(spec.geometry),
        epilogue_(spec.epilogue, spec.geometry.out_channels, Isa::kAvx512Vnni),
        packed_(pack(spec, epilogue_)),
        windows_(spec, packed_.layout),
        runs_(runs_of(packed_.panels, packed_.weights.size())),
        finish_(epilogue_),
        kind_(kind_of(spec.geometry)) {
    are_rows_adjacent_ = epilogue_.bytes() == 1 && g_.out_row == g_.out_width * g_.out_pixel &&
                         (g_.batch == 1 || g_.out_image == g_.out_height * g_.out_row);
    if (spec.residual) prepare_residual(spec);
    prepare_panels();
    if (packed_.weights.size() > kCacheShare) {
      rows_per_pass_ = std::numeric_limits<std::int64_t>::max();
    } else {
      // Results whose inputs stay in the first-level cache until all panels have used them.
      const std::size_t bytes = static_cast<std::size_t>(g_.in_channels) * static_cast<std::size_t>(g_.stride_w);
      rows_per_pass_ = std::max<std::int64_t>(84, static_cast<std::int64_t>(kPassBytes / bytes) / 84 * 84);
    }
  }

  int parts(int threads) const override {
    if (threads == 1) return 1;
    const int panels = static_cast<int>(packed_.panels.size());
    if (splits_panels(threads)) return std::min(threads, panels);
    const std::int64_t units = packed_.layout.is_padded_row ? rows() : (positions() + kMaxRows - 1) / kMaxRows;
    return static_cast<int>(std::min<std::int64_t>(threads, units));
  }

  void run(const ConvAddresses& at, int part, int parts, std::uint8_t* scratch) const override {
    if (parts > 1 && splits_panels(parts)) {
      const std::int64_t count = static_cast<std::int64_t>(packed_.panels.size());
      const int first = static_cast<int>(count * part / parts), last = static_cast<int>(count * (part + 1) / parts);
      run_part(at, first, last, 0, 1, scratch);
    } else {
      run_part(at, 0, static_cast<int>(packed_.panels.size()), part, parts, scratch);
    }
  }

  bool adds_residual() const override { return residual_.has_value(); }

  // Addresses of two tiles, sums, arguments and a band, in this order.
  std::size_t scratch_bytes() const override { return arguments_at() + argument_bytes() + windows_.band_bytes(); }
  std::size_t packed_bytes() const override {
    return packed_.weights.size() + packed_.parameters.size() + windows_.bytes() + (residual_ ? residual_->bytes() : 0);
  }
  const char* kind() const override { return kind_.c_str(); }

 private:
  static constexpr std::size_t kSumBytes = 28 * 64;  // of the largest tile

  std::size_t arguments_at() const { return 2 * windows_.address_bytes() + kSumBytes; }
  std::size_t argument_bytes() const { return (arguments_.size() * sizeof(TileArguments) + 63) / 64 * 64; }

  std::int64_t rows() const { return std::int64_t{g_.batch} * g_.out_height; }
  std::int64_t positions() const { return rows() * g_.out_width; }

  // By output channels where the weights are the larger share of what is read, and they divide evenly enough.
  bool splits_panels(int parts) const {
    const int panels = static_cast<int>(packed_.panels.size());
    if (panels < parts || (panels % parts != 0 && panels < 8 * parts)) return false;
    const std::int64_t input_bytes = std::int64_t{g_.batch} * g_.height * g_.width * g_.in_channels;
    return static_cast<std::int64_t>(packed_.weights.size()) > input_bytes;
  }

  // Panels first..last-1, one part of the rows.
  void run_part(const ConvAddresses& at, int first, int last, int part, int parts, std::uint8_t* scratch) const {
    if (!packed_.layout.is_padded_row) {
      const std::int64_t end = positions() * (part + 1) / parts;
      std::int64_t position = positions() * part / parts;
      while (position < end) {
        const std::int64_t count = std::min(end - position, rows_per_pass_);
        run_panels(at, first, last, position, position + count, scratch);
        position += count;
      }
      return;
    }
    std::uint8_t* band = scratch + arguments_at() + argument_bytes();
    const std::int64_t end = rows() * (part + 1) / parts;
    for (std::int64_t row = rows() * part / parts; row < end;) {
      const std::int64_t image = row / g_.out_height;
      const int y = static_cast<int>(row % g_.out_height);
      const int count = static_cast<int>(std::min<std::int64_t>({windows_.band_rows(), g_.out_height - y, end - row}));
      windows_.copy_band(at.input + image * g_.in_image, y, count, band);
      run_panels({band, at.output, at.other}, first, last, row * g_.out_width, (row + count) * g_.out_width, scratch);
      row += count;
    }
  }

  void run_panels(const ConvAddresses& at, int first, int last, std::int64_t first_position,
                  std::int64_t last_position, std::uint8_t* scratch) const {
    for (const PanelRun& run : runs_) {
      const PanelRun cut{std::max(run.first, first), std::min(run.last, last)};
      if (cut.first >= cut.last) continue;
      const Panel& shape = packed_.panels[static_cast<std::size_t>(cut.first)];
      run_positions(at, cut, largest_rows(shape.full, shape.half), first_position, last_position, scratch);
    }
  }

  // Results first..last-1 of all images in rows. For padded rows `input` is a band that begins at the row of `first`.
  void run_positions(const ConvAddresses& at, PanelRun run, int most, std::int64_t first, std::int64_t last,
                     std::uint8_t* scratch) const {
    const std::int64_t count = last - first;
    if (count <= 0) return;
    const std::int64_t tiles = (count + most - 1) / most;
    const int fewer = static_cast<int>(count / tiles);
    const std::int64_t with_one_more = count % tiles;  // so that no tile is much smaller than the others

    std::int32_t* sums = reinterpret_cast<std::int32_t*>(scratch + 2 * windows_.address_bytes());
    TileArguments* arguments = reinterpret_cast<TileArguments*>(scratch + arguments_at());
    for (int i = run.first; i < run.last; ++i) {
      arguments[i] = arguments_[static_cast<std::size_t>(i)];
      arguments[i].sums = sums;
    }
    // The addresses of a tile are stored long before they are read: it would wait for them.
    struct {
      Walk walk;
      const std::uint8_t** inputs;
      Segments segments;
    } places[2];
    places[0].inputs = reinterpret_cast<const std::uint8_t**>(scratch);
    places[1].inputs = reinterpret_cast<const std::uint8_t**>(scratch + windows_.address_bytes());
    windows_.begin(at, first, &places[0].walk);
    const auto rows_of = [&](std::int64_t tile) { return fewer + (tile < with_one_more ? 1 : 0); };
    places[0].segments = windows_.place(places[0].walk, rows_of(0), places[0].inputs);
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      auto& here = places[tile % 2];
      const int rows = rows_of(tile);
      if (tile + 1 < tiles) {
        auto& next = places[(tile + 1) % 2];
        windows_.advance(here.walk, rows, &next.walk);
        next.segments = windows_.place(next.walk, rows_of(tile + 1), next.inputs);
      }
      if (residual_) fetch_others(run, rows, here.walk.other);
      for (int i = run.first; i < run.last; ++i) {
        const PanelKernels& kernels = kernels_[static_cast<std::size_t>(i)];
        arguments[i].inputs = here.inputs;
        arguments[i].segments = here.segments.count;
        arguments[i].segment_bytes = here.segments.bytes;
        arguments[i].outputs = here.walk.output;
        arguments[i].residual.others = here.walk.other;
        kernels.of_rows[rows - 1](arguments[i]);
        if (kernels.are_complete) continue;
        const Panel& panel = packed_.panels[static_cast<std::size_t>(i)];
        if (panel.form == TileForm::kSums)
          finish_.run(panel.first, panel.columns, rows, sums, panel.accumulators() * kLanes, here.walk.output);
        if (residual_) add_residual(i, panel, rows, here.walk.output, here.walk.other);
      }
    }
  }

  TileArguments arguments_of(const Panel& panel) const {
    TileArguments arguments{};
    arguments.input_offset = panel.input_offset;
    arguments.weights = packed_.weights.as<std::int8_t>() + panel.weights;
    arguments.parameters = packed_.lanes(panel);
    arguments.output_offset = static_cast<std::size_t>(panel.first) * static_cast<std::size_t>(epilogue_.bytes());
    arguments.mask = ~std::uint64_t{0} >> (64 - panel.columns);
    arguments.offset = panel.offset;
    arguments.is_adjacent = are_rows_adjacent_ && panel.columns == kLanes * panel.accumulators() &&
                            g_.out_pixel == panel.columns;
    arguments.lut = epilogue_.spec().lut.empty() ? nullptr : epilogue_.spec().lut.data();
    arguments.low = static_cast<int>(epilogue_.spec().low);
    arguments.high = static_cast<int>(epilogue_.spec().high);
    return arguments;
  }

  void prepare_panels() {
    for (const Panel& panel : packed_.panels) {
      TileArguments arguments = arguments_of(panel);
      PanelKernels kernels{};
      const bool adds = residual_ && is_residual_in_tile(panel);
      kernels.are_complete = panel.form != TileForm::kSums && (adds || !residual_);
      for (int rows = 1; rows <= largest_rows(panel.full, panel.half); ++rows)
        kernels.of_rows[rows - 1] = tile_kernel(panel, rows, adds);
      if (adds) {
        const Residual::Panel& parameters = residual_panels_[kernels_.size()];
        arguments.residual = {residual_->factors(parameters), residual_->offsets(parameters), nullptr,
                              residual_->shift(), residual_->low(), residual_->high(), is_one_run_};
      }
      kernels_.push_back(kernels);
      arguments_.push_back(arguments);
    }
  }

  void prepare_residual(const ConvInt8Spec& spec) {
    residual_spec_ = *spec.residual;
    residual_.emplace(residual_spec_, g_.out_channels, Isa::kAvx512Vnni);
    const bool are_others_adjacent = residual_spec_.pixel == g_.out_pixel && residual_spec_.row == g_.out_row &&
                                     (g_.batch == 1 || residual_spec_.image == g_.out_image);
    is_one_run_ = are_rows_adjacent_ && are_others_adjacent && packed_.panels.size() == 1 &&
                  g_.out_pixel == g_.out_channels;
    for (const Panel& panel : packed_.panels) {
      const bool repeats = is_residual_in_tile(panel) ? panel.accumulators() <= 2 : is_one_run_;
      residual_panels_.push_back(residual_->add_panel(panel.first, panel.columns, repeats));
    }
  }

  static bool is_residual_in_tile(const Panel& panel) {
    if (panel.form != TileForm::kOneFactor || panel.half) return false;
    return panel.accumulators() > 2 || panel.columns == kLanes * panel.accumulators();
  }

  // Brings the other tensor near while sums are computed.
  void fetch_others(PanelRun run, int rows, const std::uint8_t* const* others) const {
    const Panel& last_panel = packed_.panels[static_cast<std::size_t>(run.last - 1)];
    const int first = packed_.panels[static_cast<std::size_t>(run.first)].first;
    const int last = last_panel.first + last_panel.columns;
    for (int row = 0; row < rows; ++row)
      for (int byte = first; byte < last; byte += 64) __builtin_prefetch(others[row] + byte);
  }

  void add_residual(int index, const Panel& panel, int rows, std::uint8_t* const* outputs,
                    const std::uint8_t* const* others) const {
    const auto columns = static_cast<std::size_t>(panel.columns), first = static_cast<std::size_t>(panel.first);
    const Residual::Panel& parameters = residual_panels_[static_cast<std::size_t>(index)];
    if (is_one_run_)
      residual_->run(parameters, 1, columns * static_cast<std::size_t>(rows), 0, outputs, others);
    else
      residual_->run(parameters, rows, columns, first, outputs, others);
  }

  struct PanelKernels {
    bool are_complete;  // nothing is left to be done with their results
    TileKernel of_rows[kMaxRows];
  };

  ConvGeometry g_;
  Epilogue epilogue_;
  PackedConv packed_;
  Windows windows_;
  std::vector<PanelRun> runs_;
  std::vector<PanelKernels> kernels_;     // of the panels
  std::vector<TileArguments> arguments_;  // of the panels, less what changes from tile to tile
  Finish finish_;
  std::int64_t rows_per_pass_ = 0;   // results that all panels are computed for before the next ones
  bool are_rows_adjacent_ = false;   // results follow each other at out_pixel bytes
  std::string kind_;
  ResidualSpec residual_spec_;
  std::optional<Residual> residual_;
  std::vector<Residual::Panel> residual_panels_;  // of the panels of weights
  bool is_one_run_ = false;                       // all bytes of a tile follow each other, in both tensors
};

}  // namespace

std::unique_ptr<ConvInt8Kernel> make_dense(const ConvInt8Spec& spec) { return std::make_unique<Dense>(spec); }

}  // namespace tpuconvert::avx512

#endif
