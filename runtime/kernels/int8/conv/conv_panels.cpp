// Integer convolution by panels of 16 channels: packing, and the loops over positions and panels.
//
// With 16-bit multiplications (AVX2, NEON), the inputs of six positions are first widened to scratch memory. With byte dot
// products, inputs are read in place through one pointer per position and tap; if a tap is not a multiple of their
// unit, all taps of a position are first copied to contiguous scratch memory. Depthwise convolutions read 16 adjacent
// channels per tap.
#if defined(__x86_64__) || defined(__aarch64__)

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/aligned.h"
#include "int8/conv/conv.h"
#include "int8/conv/panel_kernels.h"
#include "int8/conv/panel_epilogue.h"

namespace tpuconvert {

namespace {

using panels::kColumns;
using panels::kRows;
using panels::kStepBytes;

constexpr std::size_t kCached = 320 * 1024;      // bytes of weights that stay in the second-level cache
constexpr std::size_t kAllCached = 512 * 1024;   // up to this weight size, positions are the outer loop

std::ptrdiff_t rounded_up(std::ptrdiff_t value, std::ptrdiff_t unit) { return (value + unit - 1) / unit * unit; }

#if defined(__x86_64__)
// Sets rounding towards minus infinity during its lifetime, in which only kernels perform float arithmetic.
class RoundingDown {
 public:
  explicit RoundingDown(bool is_wanted) : before_(_mm_getcsr()) {
    if (is_wanted) _mm_setcsr((before_ & ~static_cast<unsigned>(_MM_ROUND_MASK)) | _MM_ROUND_DOWN);
  }
  ~RoundingDown() { _mm_setcsr(before_); }
  RoundingDown(const RoundingDown&) = delete;
  RoundingDown& operator=(const RoundingDown&) = delete;

 private:
  unsigned before_;
};
#else
// AArch64 has no epilogues that need another rounding mode.
struct RoundingDown {
  explicit RoundingDown(bool) {}
};
#endif

// Summand `part` of a weight in -255..255, written as a sum of up to three signed bytes.
int byte_part(int weight, int part) {
  int taken = 0;
  for (int i = 0; i <= part; ++i) {
    taken = std::clamp(weight, -128, 127);
    weight -= taken;
  }
  return taken;
}

class ConvPanels : public ConvInt8Kernel {
 public:
  ConvPanels(const ConvInt8Spec& spec, const panels::Functions& functions)
      : g_(spec.geometry),
        functions_(functions),
        epilogue_(spec.epilogue, spec.geometry.out_channels, panels::kIsAarch64 ? Isa::kNeon : Isa::kAvx2),
        is_depthwise_(spec.geometry.is_depthwise()),
        kind_(kind_of(spec.geometry)) {
    const std::vector<int> parts = byte_parts(spec.weights);
    choose_layout(*std::max_element(parts.begin(), parts.end()));
    for (int group = 0; group < (is_depthwise_ ? 1 : g_.groups); ++group) {
      const int channels = is_depthwise_ ? g_.out_channels : g_.group_out();
      for (int first = 0; first < channels; first += kColumns)
        panels_.push_back({group * channels + first, std::min(kColumns, channels - first)});
    }
    epilogue_plan_ = panels::plan_panel_epilogue(spec, epilogue_, panels_);
    weights_ = AlignedBytes(panels_.size() * panel_bytes_);
    for (std::size_t panel = 0; panel < panels_.size(); ++panel) pack(spec, panel);
    pad_ = AlignedBytes(static_cast<std::size_t>(g_.in_channels) + kSlack);
    std::memset(pad_.data(), spec.input_zero, pad_.size());
    for (int y = 0; y < g_.kernel_h; ++y)
      for (int x = 0; x < g_.kernel_w; ++x)
        tap_offsets_.push_back(y * g_.dilation_h * g_.in_row + x * g_.dilation_w * g_.in_pixel);
    if (epilogue_plan_.common.lut != nullptr) epilogue_plan_.common.lut = epilogue_.spec().lut.data();
  }

  int parts(int threads) const override {
    if (threads == 1) return 1;
    const std::int64_t units = splits_panels() ? static_cast<std::int64_t>(panels_.size()) : tiles();
    return static_cast<int>(std::min<std::int64_t>(units, splits_panels() ? threads : 4 * threads));
  }

  void run(const ConvAddresses& at, int part, int parts, std::uint8_t* scratch) const override {
    const std::uint8_t* input = at.input;
    std::uint8_t* output = at.output;
    const RoundingDown mode(epilogue_plan_.kind == panels::PanelEpilogue::kFloatRequant || epilogue_plan_.kind == panels::PanelEpilogue::kKinkedRequant);
    const auto count = static_cast<std::int64_t>(panels_.size());
    if (splits_panels()) {
      run_block(input, output, 0, tiles(), count * part / parts, count * (part + 1) / parts, scratch);
      return;
    }
    const std::int64_t first = tiles() * part / parts, last = tiles() * (part + 1) / parts;
    const auto step = weights_.size() <= kAllCached
                          ? count
                          : std::max<std::int64_t>(1, static_cast<std::int64_t>(kCached / panel_bytes_));
    for (std::int64_t panel = 0; panel < count; panel += step)
      run_block(input, output, first, last, panel, std::min(count, panel + step), scratch);
  }

  std::size_t scratch_bytes() const override { return pointer_bytes() + gathered_bytes() + sum_bytes(); }

  std::size_t packed_bytes() const override {
    return weights_.size() + epilogue_plan_.panels.size() * sizeof(panels::ColumnParameters) + pad_.size();
  }

  const char* kind() const override { return kind_.c_str(); }

 private:
  // One tile: up to kRows output positions that are computed together.
  struct Tile {
    int rows = 0;
    const std::uint8_t* image[kRows];
    int y[kRows], x[kRows];  // coordinates of the first tap, possibly in the padding
    std::uint8_t* out[kRows];
  };

  // --- layout --------------------------------------------------------------------------------------------------------

  std::int64_t positions() const { return std::int64_t{g_.batch} * g_.out_height * g_.out_width; }
  std::int64_t tiles() const { return (positions() + kRows - 1) / kRows; }
  // With few positions and many channels, threads divide the panels instead of the positions.
  bool splits_panels() const { return tiles() < 16 && static_cast<std::int64_t>(panels_.size()) > tiles(); }

  std::size_t pointer_bytes() const {
    return static_cast<std::size_t>(rounded_up(pointers_ * kRows * static_cast<std::ptrdiff_t>(sizeof(void*)), 64));
  }
  std::size_t gathered_bytes() const {
    if (is_concatenated_) return static_cast<std::size_t>(rounded_up(kRows * tap_bytes_, 64));
    // One extra word, because the last group may be read in pairs of words.
    return is_widened_ ? static_cast<std::size_t>(rounded_up(kRows * g_.taps() * widened_bytes() + 2, 64)) : 0;
  }
  std::ptrdiff_t widened_bytes() const { return 2 * std::ptrdiff_t{g_.in_channels}; }
  std::size_t sum_bytes() const { return kRows * kColumns * sizeof(std::int32_t); }

  // Number of signed bytes into which the weights of each channel are split; 1 for 16-bit multiplications.
  std::vector<int> byte_parts(const WeightView& w) const {
    std::vector<int> parts;
    for (int channel = 0; channel < g_.out_channels; ++channel) {
      int most = 1;
      const int zero = w.zero_of(channel);
      if (functions_.has_byte_dot && !(w.is_signed && zero == 0)) {
        for (int in = 0; in < g_.group_in(); ++in)
          for (int y = 0; y < g_.kernel_h; ++y)
            for (int x = 0; x < g_.kernel_w; ++x) {
              const int weight = w.at(channel, in, y, x);
              most = std::max(most, weight < -128 || weight > 127 ? (weight == 255 ? 3 : 2) : 1);
            }
      }
      parts.push_back(most);
    }
    return parts;
  }

  void choose_layout(int byte_parts) {
    if (is_depthwise_) {
      has_bytes_ = functions_.depthwise_bytes != nullptr && byte_parts == 1;
      unit_ = 4;
      pointers_ = rounded_up(g_.taps(), has_bytes_ ? 4 : 2);
      panel_bytes_ = static_cast<std::size_t>(pointers_ / (has_bytes_ ? 4 : 2)) * kStepBytes;
      return;
    }
    has_bytes_ = functions_.has_byte_dot;
    unit_ = functions_.byte_unit;
    repeats_ = byte_parts;
    // Kernels may read bytes after the last channel of a group, because the weights of these bytes are zero.
    is_concatenated_ = g_.groups == 1 && (!has_bytes_ || (g_.group_in() % unit_ != 0 && g_.taps() > 1));
    is_widened_ = g_.groups > 1 && !has_bytes_;
    const std::ptrdiff_t depth = is_concatenated_ ? std::ptrdiff_t{g_.taps()} * g_.group_in() : g_.group_in();
    tap_bytes_ = has_bytes_ ? rounded_up(depth, unit_) : rounded_up(depth, 2) * 2;
    pointers_ = (is_concatenated_ ? 1 : g_.taps()) * repeats_;
    panel_bytes_ = static_cast<std::size_t>(pointers_) * static_cast<std::size_t>(tap_bytes_ / 4) * kStepBytes;
  }

  // --- packing -------------------------------------------------------------------------------------------------------

  // Reads the weights of one channel as [tap][input channel], minus the zero point.
  template <typename Element>
  void read_channel(const WeightView& w, int channel, std::int16_t* to) const {
    const int zero = w.zero_of(channel);
    const Element* first = static_cast<const Element*>(w.data) + channel * w.stride_out;
    for (int y = 0; y < g_.kernel_h; ++y) {
      for (int x = 0; x < g_.kernel_w; ++x) {
        const Element* from = first + y * w.stride_y + x * w.stride_x;
        for (int in = 0; in < g_.group_in(); ++in) *to++ = static_cast<std::int16_t>(from[in * w.stride_in] - zero);
      }
    }
  }

  // Packs `count` weights of the lane `place`, starting at weight index `depth`.
  void put(const std::int16_t* weights, std::ptrdiff_t count, std::ptrdiff_t depth, std::uint8_t* panel, int place,
           int part) const {
    for (std::ptrdiff_t i = 0; i < count; ++i, ++depth) {
      if (!has_bytes_) {
        std::memcpy(panel + panels::word_place(depth, place), weights + i, sizeof(*weights));
      } else {
        const int weight = repeats_ == 1 ? weights[i] : byte_part(weights[i], part);
        panel[panels::byte_place(depth, place, unit_)] = static_cast<std::uint8_t>(weight);
      }
    }
  }

  void pack(const ConvInt8Spec& spec, std::size_t index) {
    std::uint8_t* panel = weights_.data() + index * panel_bytes_;
    panels::ColumnParameters& parameters = epilogue_plan_.panels[index];
    const std::ptrdiff_t unit = has_bytes_ ? 1 : 2;  // bytes of a packed weight
    const bool is_one_run = is_depthwise_ || is_concatenated_;
    const std::ptrdiff_t runs = is_one_run ? 1 : g_.taps();
    const std::ptrdiff_t per_run = std::ptrdiff_t{g_.group_in()} * (is_one_run ? g_.taps() : 1);
    std::vector<std::int16_t> weights(static_cast<std::size_t>(g_.taps()) * g_.group_in());
    for (int half = 0; half < 2; ++half) {
      for (int lane = 0; lane < 8; ++lane) {
        const int column = panels::column_of(half, lane);
        if (column >= panels_[index].columns) continue;
        const int channel = panels_[index].channel + column;
        if (spec.weights.is_signed) {
          read_channel<std::int8_t>(spec.weights, channel, weights.data());
        } else {
          read_channel<std::uint8_t>(spec.weights, channel, weights.data());
        }
        const int place = half * 8 + lane;
        for (int part = 0; part < repeats_; ++part)
          for (std::ptrdiff_t run = 0; run < runs; ++run)
            put(weights.data() + run * per_run, per_run, (part * runs + run) * (tap_bytes_ / unit), panel, place, part);

        std::uint32_t sum = 0;
        for (const std::int16_t weight : weights) sum += static_cast<std::uint32_t>(weight);
        const std::uint32_t bias =
            spec.bias.empty() ? 0 : static_cast<std::uint32_t>(spec.bias[static_cast<std::size_t>(channel)]);
        const int zero = spec.input_zero - (has_bytes_ ? functions_.byte_offset : 0);
        parameters.bias[place] = static_cast<std::int32_t>(bias - sum * static_cast<std::uint32_t>(zero));
      }
    }
  }

  // --- running -------------------------------------------------------------------------------------------------------

  Tile locate(const std::uint8_t* input, std::uint8_t* output, std::int64_t first) const {
    Tile tile;
    tile.rows = static_cast<int>(std::min<std::int64_t>(kRows, positions() - first));
    int x = static_cast<int>(first % g_.out_width);
    const std::int64_t line = first / g_.out_width;
    int y = static_cast<int>(line % g_.out_height);
    std::int64_t image = line / g_.out_height;
    for (int row = 0; row < tile.rows; ++row) {
      tile.image[row] = input + image * g_.in_image;
      tile.y[row] = y * g_.stride_h - g_.pad_top;
      tile.x[row] = x * g_.stride_w - g_.pad_left;
      tile.out[row] = output + image * g_.out_image + y * g_.out_row + x * g_.out_pixel;
      if (++x < g_.out_width) continue;
      x = 0;
      if (++y < g_.out_height) continue;
      y = 0;
      ++image;
    }
    return tile;
  }

  bool is_interior(const Tile& tile, int row) const {
    return tile.y[row] >= 0 && tile.x[row] >= 0 && tile.y[row] + (g_.kernel_h - 1) * g_.dilation_h < g_.height &&
           tile.x[row] + (g_.kernel_w - 1) * g_.dilation_w < g_.width;
  }

  const std::uint8_t* corner(const Tile& tile, int row) const {
    return tile.image[row] + tile.y[row] * g_.in_row + tile.x[row] * g_.in_pixel;
  }

  // Address of the input under a tap, or of the padding.
  const std::uint8_t* pixel(const Tile& tile, int row, int ky, int kx) const {
    const int y = tile.y[row] + ky * g_.dilation_h, x = tile.x[row] + kx * g_.dilation_w;
    if (y < 0 || y >= g_.height || x < 0 || x >= g_.width) return pad_.data();
    return tile.image[row] + y * g_.in_row + x * g_.in_pixel;
  }

  // Sets pointers[tap * rows + row], repeated for every summand of the weights.
  void point(const Tile& tile, const std::uint8_t** pointers) const {
    const int rows = tile.rows;
    const auto taps = static_cast<std::ptrdiff_t>(g_.taps());
    for (int row = 0; row < rows; ++row) {
      const std::uint8_t** to = pointers + row;
      if (is_interior(tile, row)) {
        const std::uint8_t* first = corner(tile, row);
        for (const std::ptrdiff_t offset : tap_offsets_) {
          *to = first + offset;
          to += rows;
        }
      } else {
        for (int ky = 0; ky < g_.kernel_h; ++ky)
          for (int kx = 0; kx < g_.kernel_w; ++kx, to += rows) *to = pixel(tile, row, ky, kx);
      }
    }
    if (is_depthwise_) {
      std::fill(pointers + taps * rows, pointers + pointers_ * rows, pad_.data());  // the weights of these taps are 0
    } else {
      for (int part = 1; part < repeats_; ++part)
        std::memcpy(pointers + part * taps * rows, pointers, sizeof(*pointers) * static_cast<std::size_t>(taps * rows));
    }
  }

  // Copies or widens `count` bytes and returns the end of the written data.
  std::uint8_t* take(const std::uint8_t* from, std::ptrdiff_t count, std::uint8_t* to) const {
    if (has_bytes_) {
      std::memcpy(to, from, static_cast<std::size_t>(count));
      return to + count;
    }
    functions_.widen(from, count, to);
    return to + 2 * count;
  }

  // Copies inputs to [row][tap][channel], with contiguous taps, and sets one pointer per row.
  void concat_taps(const Tile& tile, std::uint8_t* joined, const std::uint8_t** pointers) const {
    const std::ptrdiff_t depth = g_.in_channels;
    const bool is_contiguous = g_.in_pixel == g_.in_channels && g_.dilation_w == 1;
    for (int row = 0; row < tile.rows; ++row) {
      std::uint8_t* to = joined + row * tap_bytes_;
      for (int part = 0; part < repeats_; ++part) pointers[part * tile.rows + row] = to;
      std::uint8_t* const end = to + tap_bytes_;
      if (is_contiguous && is_interior(tile, row)) {
        const std::uint8_t* from = corner(tile, row);
        for (int ky = 0; ky < g_.kernel_h; ++ky, from += g_.dilation_h * g_.in_row)
          to = take(from, g_.kernel_w * depth, to);
      } else {
        for (int ky = 0; ky < g_.kernel_h; ++ky)
          for (int kx = 0; kx < g_.kernel_w; ++kx) to = take(pixel(tile, row, ky, kx), depth, to);
      }
      std::fill(to, end, std::uint8_t{0});
    }
  }

  // Widens inputs to [row][tap][channel] and sets one pointer per row and tap.
  void widen(const Tile& tile, std::uint8_t* widened, const std::uint8_t** pointers) const {
    for (int row = 0; row < tile.rows; ++row) {
      const std::uint8_t** pointer = pointers + row;
      for (int ky = 0; ky < g_.kernel_h; ++ky) {
        for (int kx = 0; kx < g_.kernel_w; ++kx, widened += widened_bytes(), pointer += tile.rows) {
          functions_.widen(pixel(tile, row, ky, kx), g_.in_channels, widened);
          *pointer = widened;
        }
      }
    }
  }

  void run_block(const std::uint8_t* input, std::uint8_t* output, std::int64_t first_tile, std::int64_t last_tile,
                 std::int64_t first_panel, std::int64_t last_panel, std::uint8_t* scratch) const {
    auto** pointers = reinterpret_cast<const std::uint8_t**>(scratch);
    std::uint8_t* gathered = scratch + pointer_bytes();
    auto* sums = reinterpret_cast<std::int32_t*>(gathered + gathered_bytes());
    for (std::int64_t index = first_tile; index < last_tile; ++index) {
      const Tile tile = locate(input, output, index * kRows);
      if (is_concatenated_) {
        concat_taps(tile, gathered, pointers);
      } else if (is_widened_) {
        widen(tile, gathered, pointers);
      } else {
        point(tile, pointers);
      }
      for (std::int64_t panel = first_panel; panel < last_panel; ++panel) {
        const int channel = panels_[static_cast<std::size_t>(panel)].channel;
        const int group = channel / g_.group_out();
        const std::ptrdiff_t offset = std::ptrdiff_t{group} * g_.group_in() * (is_widened_ ? 2 : 1);
        const std::uint8_t* weights = weights_.data() + static_cast<std::size_t>(panel) * panel_bytes_;
        if (is_depthwise_) {
          (has_bytes_ ? functions_.depthwise_bytes : functions_.depthwise_words)(pointers, tile.rows, pointers_, offset,
                                                                                 weights, sums);
        } else {
          functions_.multiply[tile.rows - 1](pointers, pointers_, tap_bytes_, offset, weights, sums);
        }
        apply_epilogue(tile, static_cast<std::size_t>(panel), sums);
      }
    }
  }

  void apply_epilogue(const Tile& tile, std::size_t panel, std::int32_t* sums) const {
    const auto [channel, columns] = panels_[panel];
    const panels::ColumnParameters& parameters = epilogue_plan_.panels[panel];
    if (epilogue_plan_.kind != panels::PanelEpilogue::kSums) {
      functions_.apply_epilogue(epilogue_plan_.kind, sums, tile.rows, parameters, epilogue_plan_.common, tile.out, channel, columns);
      return;
    }
    functions_.add_bias(sums, tile.rows, parameters);
    for (int row = 0; row < tile.rows; ++row)
      epilogue_.apply_row(sums + row * kColumns, channel, columns,
                          tile.out[row] + std::ptrdiff_t{channel} * epilogue_.bytes());
  }

  ConvGeometry g_;
  const panels::Functions& functions_;
  Epilogue epilogue_;
  bool is_depthwise_;
  bool has_bytes_ = false;    // operands are bytes, not 16-bit words
  bool is_concatenated_ = false;    // taps of a position are copied to contiguous scratch memory
  bool is_widened_ = false;   // taps with the channels of all groups are widened to scratch memory
  int unit_ = 4;              // depth of a dot product of bytes
  int repeats_ = 1;           // summands of each weight
  std::ptrdiff_t tap_bytes_ = 0;
  std::ptrdiff_t pointers_ = 0;  // pointers per position
  std::size_t panel_bytes_ = 0;
  std::vector<panels::PanelChannels> panels_;
  std::vector<std::ptrdiff_t> tap_offsets_;
  panels::PanelEpiloguePlan epilogue_plan_;
  AlignedBytes weights_;
  AlignedBytes pad_;
  std::string kind_;
};

}  // namespace

#if defined(__x86_64__)
const panels::Functions& panels::functions_of(Isa isa) {
  if (isa < Isa::kAvxVnni) return functions_avx2();
  return has_vex_dot_products() ? functions_avxvnni_vex() : functions_avxvnni_evex();
}
#else
const panels::Functions& panels::functions_of(Isa isa) {
  return isa == Isa::kI8mm ? functions_i8mm() : isa == Isa::kDotprod ? functions_dotprod() : functions_neon();
}
#endif

std::unique_ptr<ConvInt8Kernel> make_conv_int8_panels(const ConvInt8Spec& spec, Isa isa) {
  return std::make_unique<ConvPanels>(spec, panels::functions_of(isa));
}

}  // namespace tpuconvert

#endif
