#if defined(__x86_64__)

#include "int8/conv/conv_tiles.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "int8/conv/even_rows.h"
#include "int8/conv/panel_runs.h"
#include "int8/conv/tile_packing.h"
#include "int8/conv/tile_split.h"
#include "int8/conv/region_biases.h"
#include "int8/epilogue/subnormal_requant.h"
#include "int8/conv/windows.h"
#include "int8/tile/unit.h"

namespace tpuconvert::avx512 {
namespace {

constexpr std::size_t kPassBytes = 16 * 1024;    // bytes of inputs that all panels use before the next inputs
constexpr std::int64_t kAmxPassRows = 16 * kAmxRows;
constexpr int kFewTiles = 16;                    // for longer distances, in tiles, `begin` is faster than `advance`

// An image row is split into tiles of its own if they have at least this many rows: products take nearly as long with
// fewer rows, but rows of two image rows must be copied.
constexpr int kLeastLineRows = 12;

// Scratch memory and tile registers of the thread that computes a part.
struct Worker {
  std::uint8_t* scratch;
  TileRegisters registers;
};

class ConvTiles : public ConvInt8Kernel {
 public:
  ConvTiles(const ConvInt8Spec& spec, TileUnit unit)
      : unit_(unit),
        g_(spec.geometry),
        epilogue_(spec.epilogue, spec.geometry.out_channels, Isa::kAvx512Vnni),
        packed_(pack(spec, epilogue_, unit)),
        windows_(windows_of(spec, packed_, unit)),
        runs_(runs_of(packed_.panels, packed_.weights.size())),
        kind_(kind_of(spec.geometry)) {
    are_results_adjacent_ = epilogue_.bytes() <= 2 && !windows_.regions().front().runs_on() &&
                            g_.out_row == g_.out_width * g_.out_pixel &&
                            (g_.batch == 1 || g_.out_image == g_.out_height * g_.out_row);
    if (spec.residual) prepare_residual(spec);
    parameters_ = parameters_of_regions(&packed_, windows_);
    prepare_panels();
    if (unit == TileUnit::kAmx) prepare_amx();
    // Number of results whose inputs stay in the first-level cache until all panels have used them.
    const std::size_t bytes = static_cast<std::size_t>(g_.in_channels) * static_cast<std::size_t>(g_.stride_w);
    const std::int64_t step = line_ != 0 ? line_ : unit == TileUnit::kAmx ? kAmxPassRows : 84;
    rows_per_pass_ = std::max<std::int64_t>(step, static_cast<std::int64_t>(kPassBytes / bytes) / step * step);
  }

  int parts(int threads) const override {
    if (threads == 1) return 1;
    const int panels = static_cast<int>(packed_.panels.size());
    if (splits_panels(threads)) return std::min(threads, panels);
    const std::int64_t results = rows() * g_.out_width;
    const int tile = unit_ == TileUnit::kAmx ? kAmxRows : 12;
    const std::int64_t units = windows_.band() || line_ != 0 ? rows() : (results + tile - 1) / tile;
    return static_cast<int>(std::min<std::int64_t>(threads, units));
  }

  void run(const ConvAddresses& at, int part, int parts, std::uint8_t* scratch) const override {
    const WithSubnormals mode;
    Worker worker{scratch, TileRegisters(unit_)};
    if (parts > 1 && splits_panels(parts)) {
      const std::int64_t count = static_cast<std::int64_t>(packed_.panels.size());
      const int first = static_cast<int>(count * part / parts), last = static_cast<int>(count * (part + 1) / parts);
      run_part(at, first, last, 0, 1, worker);
    } else {
      run_part(at, 0, static_cast<int>(packed_.panels.size()), part, parts, worker);
    }
  }

  bool has_image_rows() const override { return windows_.regions().size() == 1 && !windows_.band(); }

  void run_image_rows(const ConvAddresses& at, int first, int last, std::uint8_t* scratch) const override {
    const WithSubnormals mode;
    Worker worker{scratch, TileRegisters(unit_)};
    const std::int64_t end = std::int64_t{last} * g_.out_width;
    const PanelRun panels{0, static_cast<int>(packed_.panels.size())};
    for (std::int64_t from = std::int64_t{first} * g_.out_width; from < end; from += rows_per_pass_)
      run_panels(at, panels, {0, from, std::min(end, from + rows_per_pass_), false}, worker);
  }

  bool adds_residual() const override { return residual_.has_value(); }

  // Contains the addresses of two tiles, sums, arguments, copied rows of two tiles, a result that
  // is not stored, and a band, in this order.
  std::size_t scratch_bytes() const override { return band_at() + (windows_.band() ? windows_.band()->bytes() : 0); }
  std::size_t packed_bytes() const override {
    return packed_.weights.size() + parameters_.size() + windows_.bytes() + (residual_ ? residual_->bytes() : 0);
  }
  const char* kind() const override { return kind_.c_str(); }

 private:
  // accumulators of the largest tile
  static constexpr std::size_t kSumBytes = 2 * kAmxRows * kAmxAccumulators * 64;

  std::int32_t* sums_at(std::uint8_t* scratch) const {
    return reinterpret_cast<std::int32_t*>(scratch + 2 * windows_.address_bytes());
  }
  std::size_t arguments_at() const { return 2 * windows_.address_bytes() + kSumBytes; }
  std::size_t copies_at() const { return arguments_at() + argument_bytes(); }
  std::size_t unused_at() const { return copies_at() + 2 * copy_bytes_; }
  std::size_t band_at() const { return unused_at() + unused_bytes_; }
  std::size_t argument_bytes() const { return (packed_.panels.size() * sizeof(TileArguments) + 63) / 64 * 64; }

  std::int64_t rows() const { return std::int64_t{g_.batch} * g_.out_height; }

  // Split by output channels if the weights are larger than the input and the panels divide evenly enough.
  bool splits_panels(int parts) const {
    const int panels = static_cast<int>(packed_.panels.size());
    if (panels < parts || (panels % parts != 0 && panels < 8 * parts)) return false;
    const std::int64_t input_bytes = std::int64_t{g_.batch} * g_.height * g_.width * g_.in_channels;
    return static_cast<std::int64_t>(packed_.weights.size()) > input_bytes;
  }

  // Computes panels first..last-1 for one part of the rows.
  void run_part(const ConvAddresses& at, int first, int last, int part, int parts, Worker& worker) const {
    if (!windows_.band()) {
      run_regions(at, first, last, part, parts, worker);
      return;
    }
    std::uint8_t* band = worker.scratch + band_at();
    const std::int64_t end = rows() * (part + 1) / parts;
    for (std::int64_t row = rows() * part / parts; row < end;) {
      const std::int64_t image = row / g_.out_height;
      const int y = static_cast<int>(row % g_.out_height);
      const int count = static_cast<int>(std::min<std::int64_t>({windows_.band()->results(), g_.out_height - y, end - row}));
      const std::uint8_t* input = windows_.band()->copy(at.input + image * g_.in_image, y, count, band);
      const RegionWindows& windows = windows_.regions().front();
      const std::int64_t width = windows.region().width, unused = width - windows.stored_width();
      const Results results{0, row * width, (row + count) * width - unused, row + count == end};
      run_panels({input, at.output, at.other}, {first, last}, results, worker);
      row += count;
    }
  }

  void run_regions(const ConvAddresses& at, int first, int last, int part, int parts, Worker& worker) const {
    const std::int64_t unit = line_ != 0 ? line_ : 1;
    const auto for_regions = [&](auto&& run) {
      for (std::size_t region = 0; region < windows_.regions().size(); ++region) {
        const std::int64_t units = windows_.regions()[region].results() / unit;
        run(Results{region, units * part / parts * unit, units * (part + 1) / parts * unit,
                    region + 1 == windows_.regions().size()});
      }
    };
    if (packed_.weights.size() > kCacheShare) {
      // Use the weights of a run in all regions before reading those of the next run.
      for (const PanelRun& run : runs_)
        for_regions([&](const Results& results) {
          run_positions(at, {std::max(run.first, first), std::min(run.last, last)}, results, worker);
        });
      return;
    }
    for_regions([&](const Results& results) {
      for (std::int64_t from = results.first; from < results.last; from += rows_per_pass_) {
        const std::int64_t to = std::min(results.last, from + rows_per_pass_);
        run_panels(at, {first, last}, {results.region, from, to, results.are_last && to == results.last}, worker);
      }
    });
  }

  void run_panels(const ConvAddresses& at, PanelRun panels, const Results& results, Worker& worker) const {
    for (const PanelRun& run : runs_)
      run_positions(at, {std::max(run.first, panels.first), std::min(run.last, panels.last)}, results, worker);
  }

  // With a band, `at.input` is the start of the window of the first result.
  void run_positions(const ConvAddresses& at, PanelRun run, const Results& results, Worker& worker) const {
    const std::int64_t count = results.last - results.first;
    if (run.first >= run.last || count <= 0) return;
    const Panel& shape = packed_.panels[static_cast<std::size_t>(run.first)];
    const Tiles tiles(count, largest_rows(unit_, shape.full, shape.half), line_);
    TileArguments* arguments = reinterpret_cast<TileArguments*>(worker.scratch + arguments_at());
    bool are_complete = true;
    for (int i = run.first; i < run.last; ++i) {
      arguments[i] = arguments_[results.region * packed_.panels.size() + static_cast<std::size_t>(i)];
      arguments[i].sums = sums_at(worker.scratch);
      are_complete &= kernels_[static_cast<std::size_t>(i)].are_complete;
    }
    if (unit_ == TileUnit::kAmx)
      run_amx_tiles(at, run, results, tiles, worker);
    else
      run_tiles(at, run, results, tiles, are_complete, worker.scratch);
  }

  void run_tiles(const ConvAddresses& at, PanelRun run, const Results& results, const Tiles& tiles, bool are_complete,
                 std::uint8_t* scratch) const {
    const RegionWindows& windows = windows_.regions()[results.region];
    const TileArguments* constants = arguments_.data() + results.region * packed_.panels.size();
    TileArguments* arguments = reinterpret_cast<TileArguments*>(scratch + arguments_at());
    // Addresses of a tile; the next `tiles` - 1 tiles have constant distances from it. Addresses are computed ahead of
    // their use to avoid a store-to-load stall.
    struct {
      Walk walk;
      const std::uint8_t** inputs;
      Segments segments;
      int tiles;
    } places[2];
    places[0].inputs = reinterpret_cast<const std::uint8_t**>(scratch);
    places[1].inputs = reinterpret_cast<const std::uint8_t**>(scratch + windows_.address_bytes());
    // Number of results per line, within which strides are constant; 0 if every tile needs its own addresses.
    const std::int64_t line = are_complete ? windows.even_results() : 0;
    const auto even_tiles = [&](std::int64_t tile, std::int64_t result) {
      if (line == 0) return 1;
      const std::int64_t fitting = (line - result % line) / tiles.rows_of(tile);
      return static_cast<int>(std::clamp<std::int64_t>(fitting, 1, tiles.same_from(tile)));
    };
    windows.begin(at, results.first, &places[0].walk);
    places[0].segments = windows.place(places[0].walk, tiles.rows_of(0), places[0].inputs);
    places[0].tiles = even_tiles(0, results.first);
    std::int64_t result = results.first;
    for (std::int64_t tile = 0, current = 0; tile < tiles.count(); current = 1 - current) {
      auto& here = places[current];
      const int rows = tiles.rows_of(tile);
      const std::ptrdiff_t input_step = rows * windows.input_step(), output_step = rows * windows.output_step();
      result += std::int64_t{rows} * here.tiles;
      for (int i = run.first; i < run.last; ++i) {
        set_places(here.inputs, here.segments, here.walk.output, here.walk.other, &arguments[i]);
        arguments[i].input_offset = constants[i].input_offset;
        arguments[i].output_offset = constants[i].output_offset;
      }
      for (int even = 0; even < here.tiles; ++even, ++tile) {
        if (even + 1 == here.tiles && tile + 1 < tiles.count()) {
          auto& next = places[1 - current];
          // `advance` takes time proportional to the number of result rows, `begin` does not.
          if (here.tiles > kFewTiles && !windows_.band())
            windows.begin(at, result, &next.walk);
          else
            windows.advance(here.walk, rows * here.tiles, &next.walk);
          next.segments = windows.place(next.walk, tiles.rows_of(tile + 1), next.inputs);
          next.tiles = even_tiles(tile + 1, result);
        }
        if (residual_) fetch_others(run, rows, here.walk.other, even * output_step);
        const std::ptrdiff_t ahead = ahead_of(run, results, tiles, tile);
        for (int i = run.first; i < run.last; ++i) {
          const PanelKernels& kernels = kernels_[static_cast<std::size_t>(i)];
          arguments[i].ahead = ahead;
          kernels.of_rows[rows - 1](arguments[i]);
          arguments[i].input_offset += static_cast<std::size_t>(input_step);
          arguments[i].output_offset += static_cast<std::size_t>(output_step);
          if (!kernels.are_complete) complete_tile(i, rows, sums_at(scratch), here.walk.output, here.walk.other);
        }
      }
    }
  }

  // Tiles of one or two blocks of rows, each of which is a tile of `tiles`.
  void run_amx_tiles(const ConvAddresses& at, PanelRun run, const Results& results, const Tiles& tiles, Worker& worker) const {
    const RegionWindows& windows = windows_.regions()[results.region];
    TileArguments* arguments = reinterpret_cast<TileArguments*>(worker.scratch + arguments_at());
    const std::uint8_t** inputs[2];
    std::uint8_t* copies[2];
    for (std::size_t block = 0; block < 2; ++block) {
      inputs[block] = reinterpret_cast<const std::uint8_t**>(worker.scratch + block * windows_.address_bytes());
      copies[block] = worker.scratch + copies_at() + block * copy_bytes_;
    }
    TileAddresses addresses;
    Walk walks[2];
    windows.begin(at, results.first, &walks[0]);
    for (std::int64_t tile = 0; tile < tiles.count(); tile += 2) {
      const int blocks = tile + 1 < tiles.count() ? 2 : 1;
      const int rows[2] = {tiles.rows_of(tile), blocks == 2 ? tiles.rows_of(tile + 1) : 0};
      if (blocks == 2) windows.advance(walks[0], rows[0], &walks[1]);
      const Segments segments = place_blocks(windows, walks, rows, blocks, inputs);
      for (int block = 0; block < blocks; ++block) {
        if (copy_bytes_ != 0)
          make_rows_even(inputs[block], segments.count, rows[block],
                         segments.bytes + packed_.panels.back().input_offset, copies[block]);
        place_results(walks[block], windows.stored_width(), worker.scratch + unused_at(), block == 0 ? 0 : rows[0], &addresses);
      }
      windows.advance(walks[blocks - 1], rows[blocks - 1], &walks[0]);
      worker.registers.configure(rows[0], rows[1], packed_.layout.chunk);
      if (residual_) fetch_others(run, rows[0] + rows[1], addresses.others, 0);
      const Distance ahead = results.are_last ? amx_ahead_of(packed_, run, (tiles.count() + 1) / 2, tile / 2) : Distance{0, 0};
      for (int i = run.first; i < run.last; ++i) {
        const PanelKernels& kernels = kernels_[static_cast<std::size_t>(i)];
        TileArguments& to = arguments[i];
        set_places(inputs[0], segments, addresses.outputs, addresses.others, &to);
        to.second_inputs = inputs[1];
        to.first_rows = rows[0];
        to.rows = rows[0] + rows[1];
        to.ahead = ahead.first;
        to.ahead_end = ahead.end;
        kernels.of_rows[blocks - 1](to);
        if (!kernels.are_complete) complete_tile(i, to.rows, sums_at(worker.scratch), addresses.outputs, addresses.others);
      }
    }
  }

  // Places the windows of one or two blocks, in segments of the same size: a kernel row is one segment only if it is
  // inside the input for the results of both.
  static Segments place_blocks(const RegionWindows& windows, const Walk* walks, const int* rows, int blocks,
                               const std::uint8_t** const* inputs) {
    const Segments first = windows.place(walks[0], rows[0], inputs[0]);
    if (blocks == 1) return first;
    const Segments second = windows.place(walks[1], rows[1], inputs[1]);
    if (first.count == second.count) return first;
    const int joined = first.count < second.count ? 0 : 1;
    return windows.place(walks[joined], rows[joined], inputs[joined], false);
  }

  static void set_places(const std::uint8_t* const* inputs, const Segments& segments, std::uint8_t* const* outputs,
                         const std::uint8_t* const* others, TileArguments* arguments) {
    arguments->inputs = inputs;
    arguments->segments = segments.count;
    arguments->segment_bytes = segments.bytes;
    arguments->skips = segments.skips;
    arguments->outputs = outputs;
    arguments->residual.others = others;
  }

  // Applies the epilogue or residual add that the kernel of a tile does not include.
  void complete_tile(int index, int rows, std::int32_t* sums, std::uint8_t* const* outputs,
                     const std::uint8_t* const* others) const {
    const Panel& panel = packed_.panels[static_cast<std::size_t>(index)];
    if (panel.epilogue == TileEpilogue::kSums) {
      const std::size_t offset = static_cast<std::size_t>(panel.first) * static_cast<std::size_t>(epilogue_.bytes());
      epilogue_.apply_rows({sums, panel.accumulators() * kLanes, rows, outputs, offset}, panel.first, panel.columns);
    }
    if (residual_) add_residual(index, panel, rows, outputs, others);
  }

  // Prefetch distance: each of the last four tiles prefetches a share of the next weights; 0 for other tiles.
  std::ptrdiff_t ahead_of(PanelRun run, const Results& results, const Tiles& tiles, std::int64_t tile) const {
    const std::int64_t left = tiles.count() - 1 - tile;
    if (!results.are_last || left >= 4) return 0;
    const Panel& first = packed_.panels[static_cast<std::size_t>(run.first)];
    const Panel& last = packed_.panels[static_cast<std::size_t>(run.last - 1)];
    return static_cast<std::ptrdiff_t>(last.weights + last.weight_bytes - first.weights) + 64 * left;
  }

  TileArguments arguments_of(const Panel& panel, std::size_t region) const {
    const RegionWindows& windows = windows_.regions()[region];
    TileArguments arguments{};
    arguments.input_offset = panel.input_offset;
    arguments.weights = packed_.weights.as<std::int8_t>() + panel.weights + windows.first_step() * panel.step_bytes();
    arguments.parameters = parameters_.as<LaneParameters>() + region * packed_.lane_groups() + panel.parameters;
    arguments.output_offset = static_cast<std::size_t>(panel.first) * static_cast<std::size_t>(epilogue_.bytes());
    arguments.mask = ~std::uint64_t{0} >> (64 - panel.columns);
    arguments.offset = panel.offset;
    arguments.is_adjacent = are_results_adjacent_ && windows.is_contiguous() &&
                            panel.columns == kLanes * panel.accumulators() && g_.out_pixel == panel.columns * epilogue_.bytes();
    arguments.lut = epilogue_.spec().lut.empty() ? nullptr : epilogue_.spec().lut.data();
    arguments.low = static_cast<int>(epilogue_.spec().low);
    arguments.high = static_cast<int>(epilogue_.spec().high);
    arguments.chunk_bytes = packed_.layout.chunk;
    return arguments;
  }

  void prepare_panels() {
    for (const Panel& panel : packed_.panels) {
      PanelKernels kernels{};
      const bool adds = residual_ && is_residual_in_tile(panel);
      kernels.are_complete = panel.epilogue != TileEpilogue::kSums && (adds || !residual_);
      const int most = unit_ == TileUnit::kAmx ? 2 : largest_rows(panel.full, panel.half);
      for (int rows = 1; rows <= most; ++rows)
        kernels.of_rows[rows - 1] = tile_kernel(panel, unit_, rows, adds);
      kernels_.push_back(kernels);
    }
    for (std::size_t region = 0; region < windows_.regions().size(); ++region) {
      for (std::size_t i = 0; i < packed_.panels.size(); ++i) {
        const Panel& panel = packed_.panels[i];
        arguments_.push_back(arguments_of(panel, region));
        if (!residual_ || !is_residual_in_tile(panel)) continue;
        const Residual::Panel& parameters = residual_panels_[i];
        arguments_.back().residual = {residual_->factors(parameters), residual_->offsets(parameters), nullptr,
                                      residual_->shift(), residual_->low(), residual_->high(), is_one_run_};
      }
    }
  }

  // Decides if image rows are split into tiles separately, and the space for copied rows.
  void prepare_amx() {
    const RegionWindows& windows = windows_.regions().front();
    if (windows.runs_on()) {
      unused_bytes_ = static_cast<std::size_t>((g_.out_channels * epilogue_.bytes() + 63) / 64 * 64) + kSlack;
      return;
    }
    if (windows.even_results() == windows.results()) return;
    const int width = windows.region().width;
    if (width / Tiles::pieces(width, kAmxRows) >= kLeastLineRows) line_ = width;
    const std::size_t row = copied_row_bytes(packed_.layout.bytes + packed_.panels.back().input_offset);
    copy_bytes_ = static_cast<std::size_t>(packed_.layout.count * packed_.layout.copies) * kAmxRows * row;
  }

  void prepare_residual(const ConvInt8Spec& spec) {
    residual_spec_ = *spec.residual;
    residual_.emplace(residual_spec_, g_.out_channels, Isa::kAvx512Vnni);
    const bool are_others_adjacent = residual_spec_.pixel == g_.out_pixel && residual_spec_.row == g_.out_row &&
                                     (g_.batch == 1 || residual_spec_.image == g_.out_image);
    is_one_run_ = are_results_adjacent_ && are_others_adjacent && packed_.panels.size() == 1 &&
                  g_.out_pixel == g_.out_channels && windows_.are_regions_contiguous();
    for (const Panel& panel : packed_.panels) {
      const bool repeats = is_residual_in_tile(panel) ? panel.accumulators() <= 2 : is_one_run_;
      residual_panels_.push_back(residual_->add_panel(panel.first, panel.columns, repeats));
    }
  }

  static bool is_residual_in_tile(const Panel& panel) {
    if ((panel.epilogue != TileEpilogue::kSubnormal && panel.epilogue != TileEpilogue::kOneFactor) || panel.half) return false;
    return panel.accumulators() > 2 || panel.columns == kLanes * panel.accumulators();
  }

  // Prefetches the second operand of the residual add during the multiplication.
  void fetch_others(PanelRun run, int rows, const std::uint8_t* const* others, std::ptrdiff_t distance) const {
    const Panel& last_panel = packed_.panels[static_cast<std::size_t>(run.last - 1)];
    const int first = packed_.panels[static_cast<std::size_t>(run.first)].first;
    const int last = last_panel.first + last_panel.columns;
    for (int row = 0; row < rows; ++row)
      for (int byte = first; byte < last; byte += 64) __builtin_prefetch(others[row] + distance + byte);
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
    bool are_complete;  // kernels include epilogue and residual add
    TileKernel of_rows[kMaxRows];  // for AMX: of one and two blocks of rows
  };

  TileUnit unit_;
  ConvGeometry g_;
  Epilogue epilogue_;
  PackedConv packed_;
  Windows windows_;
  std::vector<PanelRun> runs_;
  std::vector<PanelKernels> kernels_;     // [panel]
  AlignedBytes parameters_;               // [region][panel][accumulator]
  std::vector<TileArguments> arguments_;  // [region][panel], without the arguments that depend on the tile
  std::int64_t rows_per_pass_ = 0;     // results that all panels compute before the next results
  std::int64_t line_ = 0;              // results of an image row if no tile extends over two of them, or 0
  std::size_t unused_bytes_ = 0;       // space for a result that is not stored
  std::size_t copy_bytes_ = 0;         // copied rows of a tile, see make_rows_even
  bool are_results_adjacent_ = false;  // consecutive results are out_pixel bytes apart
  std::string kind_;
  ResidualSpec residual_spec_;
  std::optional<Residual> residual_;
  std::vector<Residual::Panel> residual_panels_;  // [panel]
  bool is_one_run_ = false;                       // the bytes of a tile are contiguous in both tensors
};

}  // namespace

std::unique_ptr<ConvInt8Kernel> make_conv_tiles(const ConvInt8Spec& spec, TileUnit unit) {
  return std::make_unique<ConvTiles>(spec, unit);
}

}  // namespace tpuconvert::avx512

#endif
