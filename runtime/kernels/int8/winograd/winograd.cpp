#include "int8/winograd/winograd.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "core/aligned.h"
#include "int8/winograd/winograd_kernels.h"
#include "int8/winograd/winograd_panels.h"
#include "int8/winograd/winograd_weights.h"

namespace tpuconvert {
namespace winograd {
namespace {

constexpr std::size_t kLine = 64;

constexpr std::size_t rounded_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

// Rounds up to an odd number of cache lines, so that the positions do not compete for the same sets of a cache.
constexpr std::size_t odd_lines(std::size_t bytes) { return ((bytes + kLine - 1) / kLine | 1) * kLine; }

// Memory of a block of tiles in the scratch area.
struct BlockMemory {
  BlockMemory(const ConvGeometry& g, const Functions& functions, std::int64_t all_tiles) {
    depth = static_cast<std::ptrdiff_t>(rounded_up(static_cast<std::size_t>(g.in_channels), kChannelBlock));
    const std::size_t patch = static_cast<std::size_t>(depth) * sizeof(std::int16_t);
    tiles = static_cast<int>(std::min<std::int64_t>(block_tiles(functions), all_tiles));
    const auto count = static_cast<std::size_t>(tiles);
    columns = functions.lanes * functions.vectors;
    const std::size_t v_bytes = odd_lines(count * patch), m_bytes = odd_lines(count * static_cast<std::size_t>(columns) * 4);
    v_stride = static_cast<std::ptrdiff_t>(v_bytes / sizeof(std::int16_t));
    m_stride = static_cast<std::ptrdiff_t>(m_bytes / sizeof(std::int32_t));
    m_at = kPositions * v_bytes;
    sums_at = m_at + kPositions * m_bytes;
    bytes = sums_at + rounded_up(static_cast<std::size_t>(kResults * columns) * 4, kLine);
  }

  int tiles;                 // most tiles of a block
  int columns;               // columns of the widest panel
  std::ptrdiff_t depth;      // padded channels of a transformed patch
  std::ptrdiff_t v_stride;   // elements from one position to the next
  std::ptrdiff_t m_stride;
  std::size_t m_at, sums_at, bytes;
};

class WinogradConv final : public ConvInt8Kernel {
 public:
  WinogradConv(const ConvInt8Spec& spec, Isa isa)
      : g_(spec.geometry),
        functions_(functions_of(isa)),
        rows_((g_.out_height + kTile - 1) / kTile),
        columns_((g_.out_width + kTile - 1) / kTile),
        memory_(g_, functions_, tiles()),
        panels_(panels_of(g_, functions_)),
        padding_(static_cast<std::size_t>(g_.in_channels)) {
    std::fill_n(padding_.data(), g_.in_channels, static_cast<std::uint8_t>(spec.input_zero));
    if (spec.residual) other_ = *spec.residual;
    const std::vector<ChannelSums> sums = channel_sums(spec);
#if defined(__x86_64__)
    if (isa >= Isa::kAvx512Vnni) epilogue_ = make_tile_epilogue(spec, panels_, sums);
#endif
    if (!epilogue_) epilogue_ = make_row_epilogue(spec, panels_, functions_.lanes, sums, isa);
    weights_ = pack_weights(spec, functions_, panels_, *epilogue_);
  }

  int parts(int threads) const override {
    if (threads == 1) return 1;
    if (splits_panels(threads)) return std::min(threads, static_cast<int>(panels_.size()));
    return static_cast<int>(std::min<std::int64_t>(threads, (tiles() + functions_.rows - 1) / functions_.rows));
  }

  void run(const ConvAddresses& at, int part, int parts, std::uint8_t* scratch) const override {
    const auto share = [&](std::int64_t count, int end, bool is_split) { return is_split ? count * end / parts : end == part ? 0 : count; };
    const bool by_panels = parts > 1 && splits_panels(parts);
    const auto panels = static_cast<std::int64_t>(panels_.size());
    const auto first_panel = static_cast<std::size_t>(share(panels, part, by_panels));
    const auto last_panel = static_cast<std::size_t>(share(panels, part + 1, by_panels));
    const std::int64_t first = share(tiles(), part, !by_panels), count = share(tiles(), part + 1, !by_panels) - first;
    const std::int64_t blocks = (count + memory_.tiles - 1) / memory_.tiles;
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t from = first + count * block / blocks, to = first + count * (block + 1) / blocks;
      run_block(at, from, static_cast<int>(to - from), first_panel, last_panel, scratch);
    }
  }

  bool adds_residual() const override { return epilogue_->adds_residual(); }
  std::size_t scratch_bytes() const override { return memory_.bytes; }
  std::size_t packed_bytes() const override { return weights_.size() + epilogue_->bytes() + padding_.size(); }
  const char* kind() const override { return "winograd_int8 3x3"; }

 private:
  std::int64_t tiles() const { return std::int64_t{g_.batch} * rows_ * columns_; }

  // Split by output channels if every thread would have few tiles. Each thread then transforms all patches.
  bool splits_panels(int parts) const {
    const int panels = static_cast<int>(panels_.size());
    return panels >= parts && (panels % parts == 0 || panels >= 4 * parts) && tiles() < std::int64_t{28} * parts;
  }

  // The place of a tile: its image, and its first row and column of results.
  struct TilePlace {
    std::int64_t image;
    int y, x;
  };

  TilePlace place_of(std::int64_t tile) const {
    const std::int64_t line = tile / columns_;
    return {line / rows_, static_cast<int>(line % rows_) * kTile, static_cast<int>(tile % columns_) * kTile};
  }

  void run_block(const ConvAddresses& at, std::int64_t first, int count, std::size_t first_panel, std::size_t last_panel,
                 std::uint8_t* scratch) const {
    auto* v = reinterpret_cast<std::int16_t*>(scratch);
    auto* m = reinterpret_cast<std::int32_t*>(scratch + memory_.m_at);
    auto* sums = reinterpret_cast<std::int32_t*>(scratch + memory_.sums_at);
    for (int tile = 0; tile < count; ++tile)
      transform(at.input, place_of(first + tile), v + tile * memory_.depth);
    for (std::size_t i = first_panel; i < last_panel; ++i) {
      const Panel& panel = panels_[i];
      const std::ptrdiff_t pitch = panel.vectors * functions_.lanes;
      const int pairs = pairs_of(g_);
      const std::int16_t* u = weights_.as<std::int16_t>() + panel.weights;
      for (int position = 0; position < kPositions; ++position, u += 2 * pairs * pitch)
        functions_.multiply({v + position * memory_.v_stride, memory_.depth, u, 2 * pairs * pitch, pairs,
                             m + position * memory_.m_stride, pitch, count, panel.vectors});
      for (int tile = 0; tile < count; ++tile) {
        functions_.transform_output({m + tile * pitch, memory_.m_stride, epilogue_->biases(i), sums, panel.vectors});
        finish(at, place_of(first + tile), i, sums, pitch);
      }
    }
  }

  void transform(const std::uint8_t* input, const TilePlace& place, std::int16_t* v) const {
    const std::uint8_t* pixels[kPositions];
    const std::uint8_t* image = input + place.image * g_.in_image;
    const int top = place.y - g_.pad_top, left = place.x - g_.pad_left;
    for (int i = 0; i < kPatch; ++i) {
      const int y = top + i;
      for (int j = 0; j < kPatch; ++j) {
        const int x = left + j;
        const bool is_inside = y >= 0 && y < g_.height && x >= 0 && x < g_.width;
        pixels[i * kPatch + j] = is_inside ? image + y * g_.in_row + x * g_.in_pixel : padding_.data();
      }
    }
    functions_.transform_input({pixels, g_.in_channels, v, memory_.v_stride});
  }

  // Stores the results of a tile that are inside the image. `sums` is [result][lane].
  void finish(const ConvAddresses& at, const TilePlace& place, std::size_t panel, std::int32_t* sums,
              std::ptrdiff_t pitch) const {
    const int height = std::min(kTile, g_.out_height - place.y), width = std::min(kTile, g_.out_width - place.x);
    std::uint8_t* outputs[kResults];
    const std::uint8_t* others[kResults] = {};
    std::uint8_t* output = at.output + place.image * g_.out_image + place.y * g_.out_row + place.x * g_.out_pixel;
    int count = 0;
    for (int y = 0; y < height; ++y) {
      if (count != y * kTile) std::copy_n(sums + y * kTile * pitch, width * pitch, sums + count * pitch);
      for (int x = 0; x < width; ++x, ++count) {
        outputs[count] = output + y * g_.out_row + x * g_.out_pixel;
        if (at.other != nullptr)
          others[count] = at.other + place.image * other_.image + (place.y + y) * other_.row + (place.x + x) * other_.pixel;
      }
    }
    epilogue_->run(panel, sums, count, outputs, others);
  }

  ConvGeometry g_;
  const Functions& functions_;
  int rows_, columns_;  // tiles of an image
  BlockMemory memory_;
  std::vector<Panel> panels_;
  AlignedBytes padding_;   // a pixel of padding
  AlignedBytes weights_;
  std::unique_ptr<PanelEpilogue> epilogue_;
  ResidualSpec other_;     // strides of the second operand of the residual add
};

}  // namespace

const Functions& functions_of(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512Vnni) return functions_avx512vnni();
  if (isa >= Isa::kAvxVnni) return has_vex_dot_products() ? functions_avxvnni_vex() : functions_avxvnni_evex();
  if (isa >= Isa::kAvx2) return functions_avx2();
#elif defined(__aarch64__)
  if (isa != Isa::kScalar) return functions_neon();
#else
  static_cast<void>(isa);
#endif
  return functions_scalar();
}

}  // namespace winograd

std::shared_ptr<Step> make_conv_int8_winograd(const ConvInt8Spec& spec, Isa isa) {
  return make_conv_int8_step(spec, isa, [](const ConvInt8Spec& checked, Isa best) -> std::unique_ptr<ConvInt8Kernel> {
    if (!winograd_cost(checked.geometry, best))
      throw std::invalid_argument("conv_int8_winograd: expected a 3x3 window with stride 1, dilation 1 and one group");
    if (!is_winograd_exact(checked)) throw std::invalid_argument("conv_int8_winograd: a sum may reach 2^25");
    return std::make_unique<winograd::WinogradConv>(checked, best);
  });
}

}  // namespace tpuconvert
