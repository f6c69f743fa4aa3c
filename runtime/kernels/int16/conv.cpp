// The step of a 16-bit convolution: it expands bands of input rows to pairs of words or planes of bytes, and computes
// their results.
#include "int16/conv.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/aligned.h"
#include "int16/conv_kernels.h"
#include "int8/conv/geometry_checks.h"
#include "int8/tile/unit.h"

namespace tpuconvert {

namespace {

using int16::ByteFunctions;
using int16::Finish;
using int16::Functions;
using int16::kPanel;
using int16::Panel;
using int16::Requantization;
using int16::Second;
using int16::Segment;
using int16::Store;

constexpr const char* kKernel = "conv_int16";
// Elements of a band, if a single row has fewer: 64 KB of pairs, or 32 KB of two planes.
constexpr std::int64_t kBandElements = 16 * 1024;
constexpr std::ptrdiff_t kLargestChunk = 64;
constexpr int kMostRows = 32;  // of a tile
constexpr std::ptrdiff_t kStepBytes = 2 * kPanel * 4;  // of weights per four bytes of depth: high and low bytes
constexpr int kLargestPeriod = 1 << 12;         // lanes after which the parameters of a depthwise row repeat
constexpr std::int64_t kWordMagnitude = 1 << 15, kByteMagnitude = 1 << 7;

void require(bool is_true, const char* message) { require_of(kKernel, is_true, message); }

const Functions& functions_of(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512Vnni) return int16::functions_avx512vnni();
  if (isa >= Isa::kAvxVnni)
    return has_vex_dot_products() ? int16::functions_avxvnni_vex() : int16::functions_avxvnni_evex();
  if (isa >= Isa::kAvx2) return int16::functions_avx2();
#elif defined(__aarch64__)
  if (isa != Isa::kScalar) return int16::functions_neon();
#else
  static_cast<void>(isa);
#endif
  return int16::functions_scalar();
}

// Null if products of pairs are faster.
const ByteFunctions* byte_functions_of(Isa isa) {
#if defined(TPUCONVERT_HAS_AMX)
  if (isa == Isa::kAmx) return &int16::byte_functions_amx();
#endif
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512Vnni) return &int16::byte_functions_avx512vnni();
#endif
  static_cast<void>(isa);
  return nullptr;
}

// Largest magnitude of every sum that the operators of a channel compute, of 256 * top and middle separately.
std::int64_t largest_sum(const ConvInt16Spec& spec, int channel) {
  const ConvGeometry& g = spec.geometry;
  std::int64_t high = 0, low = 0;
  for (int in = 0; in < g.group_in(); ++in)
    for (int y = 0; y < g.kernel_h; ++y)
      for (int x = 0; x < g.kernel_w; ++x) {
        high += std::abs(spec.high.at(channel, in, y, x));
        low += std::abs(spec.low.at(channel, in, y, x));
      }
  const std::int64_t bias =
      spec.bias.empty() ? 0 : std::abs(std::int64_t{spec.bias[static_cast<std::size_t>(channel)]});
  if (spec.is_wide) return high * (kWordMagnitude + kByteMagnitude) + low * kByteMagnitude + bias;
  const std::int64_t magnitude = std::max(spec.input_zero, 255 - spec.input_zero);
  return (256 * high + low) * magnitude + bias;
}

void check_epilogue(const EpilogueSpec& epilogue) {
  require(epilogue.rescale == Rescale::kOneRounding && epilogue.rounding == Rounding::kHalfUp,
          "only requantization with one rounding, half up, is supported");
  require(epilogue.lut.empty(), "a lookup table is not supported");
  require(epilogue.is_dequantized || epilogue.bytes <= 2, "results have 8 or 16 bits, or are dequantized");
  require(epilogue.low >= -(1 << 16) && epilogue.high <= (1 << 16) && epilogue.low <= epilogue.high,
          "the limits of a result exceed 16 bits");
}

// Sets the parameters of a lane. `largest` bounds the magnitude of the values.
void set_lane(const Epilogue& epilogue, int channel, std::int64_t largest, int lane, Requantization* r) {
  const std::int64_t multiplier = epilogue.multiplier(channel);
  const int shift = -epilogue.shift(channel);
  require(multiplier >= 0 && shift >= 1 && shift <= 60, "a multiplier or shift is not supported");
  // |x * multiplier| < 2^62. The shifted product and its sum with the offset must fit 32 bits.
  const std::int64_t offset = epilogue.offset(channel);
  require(std::abs(offset) <= (1 << 24) && (largest * multiplier >> shift) < (std::int64_t{1} << 30),
          "a requantized value may exceed 31 bits");
  constexpr std::int64_t kLift = std::int64_t{1} << 62;
  const auto odd = static_cast<std::size_t>(lane % 2), at = static_cast<std::size_t>(lane / 2);
  r->half[odd][at] = kLift + (std::int64_t{1} << (shift - 1));
  r->shift[odd][at] = shift;
  r->multiplier[lane] = static_cast<std::int32_t>(multiplier);
  r->addend[lane] = static_cast<std::int32_t>(static_cast<std::uint32_t>(offset) - static_cast<std::uint32_t>(kLift >> shift));
}

// Words of the weights that are multiplied with a pair of the operand.
std::int32_t weight_pair(const ConvInt16Spec& spec, int out, int in, int y, int x) {
  const int high = spec.high.at(out, in, y, x), low = spec.low.at(out, in, y, x);
  const int first = spec.is_wide ? high : 256 * high + low, second = spec.is_wide ? low : 0;
  return static_cast<std::int32_t>((static_cast<std::uint32_t>(first) & 0xFFFFu) | static_cast<std::uint32_t>(second) << 16);
}

// A window of one element with a stride becomes one without, on every second row and pixel.
ConvGeometry without_steps(ConvGeometry g) {
  if (g.taps() != 1 || g.pad_top != 0 || g.pad_left != 0) return g;
  // Windows that end in the padding after the image keep their stride.
  if ((g.out_height - 1) * g.stride_h >= g.height || (g.out_width - 1) * g.stride_w >= g.width) return g;
  g.height = g.out_height;
  g.width = g.out_width;
  g.in_row *= g.stride_h;
  g.in_pixel *= g.stride_w;
  g.stride_h = g.stride_w = 1;
  return g;
}

class ConvInt16Step : public Step {
 public:
  ConvInt16Step(const ConvInt16Spec& spec, Isa isa)
      : g_(without_steps(spec.geometry)),
        functions_(functions_of(isa)),
        is_wide_(spec.is_wide),
        zero_(spec.input_zero),
        unit_(avx512::tile_unit(isa)),
        bytes_(spec.second ? spec.second->bytes : spec.epilogue.bytes),
        kind_(kind_name(spec.geometry)) {
    const std::size_t element = is_wide_ ? 2 : 1;
    input_ = Span::reads_slack(spec.input, static_cast<std::size_t>(input_extent(kKernel, g_, static_cast<int>(element))), element);
    output_ = Span::writes(spec.output, static_cast<std::size_t>(output_extent(kKernel, g_, bytes_)),
                           static_cast<std::size_t>(bytes_));
    period_ = std::lcm(g_.out_channels, kPanel);
    is_by_lanes_ = g_.is_depthwise() && period_ <= kLargestPeriod;
    if (!is_by_lanes_) products_ = byte_functions_of(isa);
    set_finish(spec);
    set_band();
    pack(spec);
  }

  void run(const Run& run) const override {
    const auto* input = run.at<const std::uint8_t>(input_.place);
    auto* output = run.at<std::uint8_t>(output_.place);
    const std::int64_t blocks = std::int64_t{g_.batch} * row_blocks_ * column_blocks_;
    const int parts = static_cast<int>(std::min<std::int64_t>(blocks, run.threads() == 1 ? 1 : run.threads() * 4));
    run.parallel(parts, [&](int part, int worker) {
      avx512::TileRegisters registers(unit_);
      for (std::int64_t block = blocks * part / parts; block < blocks * (part + 1) / parts; ++block)
        run_block(block, input, output, run.scratch(worker), &registers);
    });
  }

  std::vector<Span> spans() const override { return {input_, output_}; }
  std::size_t scratch_bytes() const override { return band_bytes() + row_bytes(); }
  std::size_t packed_bytes() const override { return weights_.size() + panels_.size(); }
  const char* kind() const override { return kind_.c_str(); }

 private:
  // Results of a block: rows first_row..first_row+rows-1 and columns first_column..first_column+columns-1 of an image.
  struct Block {
    std::int64_t image;
    int first_row, rows, first_column, columns;
  };

  static std::string kind_name(const ConvGeometry& g) {
    if (g.taps() == 1 && g.groups == 1 && g.height == 1) return "matmul_int16";
    return (g.is_depthwise() ? "depthwise_int16 " : "conv_int16 ") + std::to_string(g.kernel_h) + "x" +
           std::to_string(g.kernel_w);
  }

  static std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
  std::size_t band_bytes() const {
    const auto elements = static_cast<std::size_t>(band_elements_);
    if (products_ == nullptr) return aligned(elements * 4 + kSlack);
    return aligned(elements * (is_wide_ ? 2 : 1) + static_cast<std::size_t>(kLargestChunk));
  }
  // Results of a depthwise row in whole periods.
  std::size_t row_bytes() const {
    return is_by_lanes_ ? aligned(static_cast<std::size_t>(row_lanes(columns_)) * static_cast<std::size_t>(bytes_)) : 0;
  }

  int repeats(int columns) const {
    return static_cast<int>((std::int64_t{columns} * g_.out_channels + period_ - 1) / period_);
  }
  std::int64_t row_lanes(int columns) const { return std::int64_t{repeats(columns)} * period_; }

  void set_finish(const ConvInt16Spec& spec) {
    const EpilogueSpec& last = spec.second ? *spec.second : spec.epilogue;
    finish_.low = static_cast<std::int32_t>(spec.epilogue.low);
    finish_.high = static_cast<std::int32_t>(spec.epilogue.high);
    finish_.second = !spec.second                        ? Second::kNone
                     : !has_exact_factors(*spec.second)  ? Second::kExact
                     : covers_limits(spec, *spec.second) ? Second::kFactorAlone
                                                         : Second::kFactor;
    finish_.store = last.is_dequantized ? Store::kReal : last.bytes == 1 ? Store::kByte : Store::kWord;
    finish_.zero = last.output_zero;
    finish_.scale = last.output_scale;
    if (!spec.second) return;
    finish_.second_low = static_cast<std::int32_t>(spec.second->low);
    finish_.second_high = static_cast<std::int32_t>(spec.second->high);
  }

  // True if the limits of the first results are also limits of the second ones, which grow with them. Without the first
  // limits, the values have up to 30 bits, and float32 rounds those that are far beyond the limits.
  bool covers_limits(const ConvInt16Spec& spec, const EpilogueSpec& second) const {
    const Epilogue epilogue(second, g_.out_channels);
    for (int channel = 0; channel < g_.out_channels; ++channel) {
      const auto lowest = static_cast<std::int32_t>(spec.epilogue.low), highest = static_cast<std::int32_t>(spec.epilogue.high);
      const bool is_small = std::ldexp(epilogue.multiplier(channel), epilogue.shift(channel)) <= 1.0;
      if (!is_small || epilogue.before_table(lowest, channel) > second.low || epilogue.before_table(highest, channel) < second.high)
        return false;
    }
    return true;
  }

  // True if floor(x * factor + offset + 1/2) is exact in float32 where it is within the limits, for x of 17 bits.
  bool has_exact_factors(const EpilogueSpec& second) const {
    constexpr int kLargestOffset = 1 << 22;
    const auto is_exact = [](std::int32_t multiplier) {
      return static_cast<double>(static_cast<float>(multiplier)) == static_cast<double>(multiplier);
    };
    const auto is_small = [](std::int32_t offset) { return std::abs(std::int64_t{offset}) <= kLargestOffset; };
    return std::all_of(second.multiplier.begin(), second.multiplier.end(), is_exact) &&
           std::all_of(second.offset.begin(), second.offset.end(), is_small);
  }

  int group_panels() const { return (g_.group_out() + kPanel - 1) / kPanel; }

  void pack(const ConvInt16Spec& spec) {
    const Epilogue epilogue(spec.epilogue, g_.out_channels);
    std::optional<Epilogue> second;
    if (spec.second) second.emplace(*spec.second, g_.out_channels);
    const std::int64_t largest_result = std::max(std::abs(spec.epilogue.low), std::abs(spec.epilogue.high));
    std::vector<std::int64_t> largest(static_cast<std::size_t>(g_.out_channels));
    for (int channel = 0; channel < g_.out_channels; ++channel)
      if ((largest[static_cast<std::size_t>(channel)] = largest_sum(spec, channel)) > kLargestIndex)
        throw std::overflow_error(std::string(kKernel) + ": a sum may leave 32 bits");
    const int count = is_by_lanes_ ? period_ / kPanel : g_.groups * group_panels();
    pairs_ = static_cast<std::ptrdiff_t>(g_.taps()) * (is_by_lanes_ ? 1 : g_.group_in());
    panel_bytes_ = pairs_ * kPanel * 4;
    if (products_ != nullptr) panel_bytes_ = static_cast<std::ptrdiff_t>(segments_.size()) * segments_[0].count / 4 * kStepBytes;
    panels_ = AlignedBytes(static_cast<std::size_t>(count) * sizeof(Panel));
    weights_ = AlignedBytes(static_cast<std::size_t>(count) * static_cast<std::size_t>(panel_bytes_));
    for (int index = 0; index < count; ++index) {
      Panel& panel = panels_.as<Panel>()[index];
      for (int lane = 0; lane < kPanel; ++lane) {
        const int channel = channel_of(index, lane);
        if (channel < 0) continue;
        if (!spec.bias.empty()) panel.bias[lane] = spec.bias[static_cast<std::size_t>(channel)];
        set_lane(epilogue, channel, largest[static_cast<std::size_t>(channel)], lane, &panel.rescale);
        if (second) {
          set_lane(*second, channel, largest_result, lane, &panel.second);
          panel.factor[lane] = std::ldexp(static_cast<float>(second->multiplier(channel)), second->shift(channel));
          panel.addend[lane] = static_cast<float>(second->offset(channel)) + 0.5f;
        }
        if (products_ != nullptr) {
          pack_bytes(spec, channel, lane, weights_.as<std::int8_t>() + index * panel_bytes_, &panel);
        } else {
          pack_pairs(spec, channel, weights_.as<std::int32_t>() + index * pairs_ * kPanel + lane);
        }
      }
    }
  }

  void pack_pairs(const ConvInt16Spec& spec, int channel, std::int32_t* to) const {
    for (int y = 0; y < g_.kernel_h; ++y)
      for (int x = 0; x < g_.kernel_w; ++x)
        for (int in = 0; in < g_.group_in(); ++in, to += kPanel) *to = weight_pair(spec, channel, in, y, x);
  }

  // The bias includes the zero points of the bytes, modulo 2^32.
  void pack_bytes(const ConvInt16Spec& spec, int channel, int lane, std::int8_t* to, Panel* panel) const {
    const int taps = g_.taps() / static_cast<int>(segments_.size());  // of a segment
    std::int64_t highs = 0, lows = 0;
    for (int tap = 0; tap < g_.taps(); ++tap) {
      const std::ptrdiff_t segment = tap / taps * segments_[0].count;
      for (int in = 0; in < g_.group_in(); ++in) {
        const int high = spec.high.at(channel, in, tap / g_.kernel_w, tap % g_.kernel_w);
        const int low = spec.low.at(channel, in, tap / g_.kernel_w, tap % g_.kernel_w);
        const std::ptrdiff_t depth = segment + std::ptrdiff_t{tap % taps} * g_.group_in() + in;
        std::int8_t* at = to + depth / 4 * kStepBytes + lane * 4 + depth % 4;
        at[0] = static_cast<std::int8_t>(high);
        at[kStepBytes / 2] = static_cast<std::int8_t>(low);
        highs += high;
        lows += low;
      }
    }
    const std::int64_t zeros = (256 * highs + lows) * first_zero() + (is_wide_ ? highs * kByteMagnitude : 0);
    panel->bias[lane] = static_cast<std::int32_t>(panel->bias[lane] - zeros);
  }

  // Zero point of the high bytes, or of an 8-bit operand, as they are stored.
  int first_zero() const { return is_wide_ ? static_cast<int>(kByteMagnitude) : zero_; }

  // Output channel of a lane, or -1 if the lane is not used.
  int channel_of(int panel, int lane) const {
    if (is_by_lanes_) return (panel * kPanel + lane) % g_.out_channels;
    const int own = panel % group_panels() * kPanel + lane;
    return own < g_.group_out() ? panel / group_panels() * g_.group_out() + own : -1;
  }

  int input_rows(int rows) const { return (rows - 1) * g_.stride_h + (g_.kernel_h - 1) * g_.dilation_h + 1; }
  int input_columns(int columns) const { return (columns - 1) * g_.stride_w + (g_.kernel_w - 1) * g_.dilation_w + 1; }

  // Elements of an input row of a band. Depthwise rows are stored by phase: columns 0, stride, 2 * stride, ..., then 1,
  // stride + 1, ..., so that the operands of adjacent results are adjacent. Panels within a pixel do not need this.
  int phases() const { return is_by_lanes_ && period_ != g_.out_channels ? g_.stride_w : 1; }
  std::int64_t phase_elements(int columns) const {
    const std::int64_t own = (std::int64_t{input_columns(columns)} + phases() - 1) / phases();
    return own * g_.in_channels;
  }
  std::int64_t row_elements(int columns) const { return phase_elements(columns) * phases(); }

  void set_band() {
    rows_ = 1;
    columns_ = g_.out_width;
    const std::int64_t lines = input_rows(1);
    while (columns_ > 1 && row_elements(columns_) * lines > kBandElements * 2) columns_ = (columns_ + 1) / 2;
    while (rows_ < g_.out_height && row_elements(columns_) * input_rows(rows_ + 1) <= kBandElements) ++rows_;
    row_blocks_ = (g_.out_height + rows_ - 1) / rows_;
    column_blocks_ = (g_.out_width + columns_ - 1) / columns_;
    // Whole periods of a depthwise row read beyond the last column.
    band_elements_ = row_elements(columns_) * input_rows(rows_) + (is_by_lanes_ ? row_lanes(columns_) : 0);
    pitch_ = row_elements(columns_);
    for (int y = 0; y < g_.kernel_h; ++y)
      for (int x = 0; x < g_.kernel_w; ++x) {
        const Segment segment{y * g_.dilation_h * pitch_ + std::ptrdiff_t{x} * g_.dilation_w * g_.in_channels, g_.group_in()};
        const bool is_joined = x > 0 && segments_.back().offset + segments_.back().count == segment.offset;
        if (is_joined) {
          segments_.back().count += segment.count;
        } else {
          segments_.push_back(segment);
        }
      }
    if (is_by_lanes_)
      for (int y = 0; y < g_.kernel_h; ++y)
        for (int x = 0; x < g_.kernel_w; ++x) taps_.push_back(y * g_.dilation_h * pitch_ + position(x * g_.dilation_w));
    if (products_ == nullptr) return;
    // All segments have the same length. It becomes a multiple of the bytes that an instruction multiplies.
    const std::ptrdiff_t length = segments_[0].count;
    const std::ptrdiff_t chunks = (length + kLargestChunk - 1) / kLargestChunk;
    if (products_->is_amx) chunk_ = ((length + chunks - 1) / chunks + 3) / 4 * 4;
    for (Segment& segment : segments_) segment.count = (length + chunk_ - 1) / chunk_ * chunk_;
  }

  Block block_at(std::int64_t index) const {
    Block block;
    block.first_column = static_cast<int>(index % column_blocks_) * columns_;
    block.columns = std::min(columns_, g_.out_width - block.first_column);
    index /= column_blocks_;
    block.first_row = static_cast<int>(index % row_blocks_) * rows_;
    block.rows = std::min(rows_, g_.out_height - block.first_row);
    block.image = index / row_blocks_;
    return block;
  }

  void run_block(std::int64_t index, const std::uint8_t* input, std::uint8_t* output, std::uint8_t* scratch,
                 avx512::TileRegisters* registers) const {
    const Block block = block_at(index);
    expand(block, input + block.image * g_.in_image, scratch);
    std::uint8_t* first = output + block.image * g_.out_image + block.first_row * g_.out_row + block.first_column * g_.out_pixel;
    if (products_ != nullptr) {
      run_bytes(block, scratch, first, registers);
      return;
    }
    const auto* band = reinterpret_cast<const std::int32_t*>(scratch);
    if (is_by_lanes_) {
      run_depthwise(block, band, first, scratch + band_bytes());
    } else {
      run_dense(block, band, first);
    }
  }

  void expand(const Block& block, const std::uint8_t* image, std::uint8_t* band) const {
    const int top = block.first_row * g_.stride_h - g_.pad_top;
    const int left = block.first_column * g_.stride_w - g_.pad_left;
    const int width = input_columns(block.columns);
    for (int line = 0; line < input_rows(block.rows); ++line) {
      const std::ptrdiff_t start = line * pitch_;
      const int y = top + line;
      const bool is_inside = y >= 0 && y < g_.height;
      // Columns from..end-1 of the row are inside the image.
      const int from = is_inside ? std::clamp(-left, 0, width) : width;
      const int end = is_inside ? std::clamp(g_.width - left, from, width) : width;
      if (from >= end) {
        clear(band, start, pitch_);
        continue;
      }
      for (int x = 0; x < from; ++x) clear(band, start + position(x), g_.in_channels);
      for (int x = end; x < width; ++x) clear(band, start + position(x), g_.in_channels);
      const std::uint8_t* row = image + y * g_.in_row + static_cast<std::ptrdiff_t>(left + from) * g_.in_pixel;
      if (phases() == 1 && g_.in_pixel == g_.in_channels * (is_wide_ ? 2 : 1)) {  // one run
        expand_run({row, 1, 0, std::ptrdiff_t{end - from} * g_.in_channels}, band, start + std::ptrdiff_t{from} * g_.in_channels);
        continue;
      }
      for (int x = from; x < std::min(end, from + phases()); ++x)
        expand_run({row + (x - from) * g_.in_pixel, (end - x + phases() - 1) / phases(), phases() * g_.in_pixel, g_.in_channels},
                   band, start + position(x));
    }
  }

  // First element of a column of a row of a band.
  std::ptrdiff_t position(int x) const {
    return x % phases() * phase_elements(columns_) + std::ptrdiff_t{x / phases()} * g_.in_channels;
  }

  // Writes zeros to elements of a band.
  void clear(std::uint8_t* band, std::ptrdiff_t start, std::ptrdiff_t elements) const {
    const auto count = static_cast<std::size_t>(elements);
    if (products_ == nullptr) {
      std::memset(band + start * 4, 0, count * 4);
      return;
    }
    std::memset(band + start, first_zero(), count);
    if (is_wide_) std::memset(band + band_elements_ + start, static_cast<int>(kByteMagnitude), count);
  }

  void expand_run(const int16::PixelRun& pixels, std::uint8_t* band, std::ptrdiff_t start) const {
    if (products_ != nullptr) {
      if (is_wide_) {
        products_->split_words(pixels, band + start, band_elements_);
      } else {
        for (std::ptrdiff_t pixel = 0; pixel < pixels.count; ++pixel)
          std::memcpy(band + start + pixel * pixels.channels, pixels.pixels + pixel * pixels.pitch,
                      static_cast<std::size_t>(pixels.channels));
      }
    } else if (is_wide_) {
      functions_.expand_words(pixels, reinterpret_cast<std::int32_t*>(band) + start);
    } else {
      functions_.expand_bytes(pixels, zero_, reinterpret_cast<std::int32_t*>(band) + start);
    }
  }

  void run_depthwise(const Block& block, const std::int32_t* band, std::uint8_t* out, std::uint8_t* memory) const {
    const std::size_t pixel = static_cast<std::size_t>(g_.out_channels) * static_cast<std::size_t>(bytes_);
    const std::size_t row = pixel * static_cast<std::size_t>(block.columns);
    const bool is_dense = block.columns == 1 || g_.out_pixel == static_cast<std::ptrdiff_t>(pixel);
    const bool is_direct = is_dense && block.columns * g_.out_channels % period_ == 0;
    const std::ptrdiff_t step = std::ptrdiff_t{period_} * g_.stride_w / phases();
    for (int y = 0; y < block.rows; ++y, band += g_.stride_h * pitch_, out += g_.out_row) {
      functions_.depthwise({band, taps_.data(), g_.taps(), step, weights_.as<std::int32_t>(), panels_.as<Panel>(),
                            period_ / kPanel, repeats(block.columns), &finish_, is_direct ? out : memory});
      if (is_direct) continue;
      if (is_dense) {
        std::memcpy(out, memory, row);
        continue;
      }
      for (int x = 0; x < block.columns; ++x)
        std::memcpy(out + x * g_.out_pixel, memory + static_cast<std::size_t>(x) * pixel, pixel);
    }
  }

  // Products of bytes. With AMX, a tile has results of one line, which have a constant distance.
  void run_bytes(const Block& block, const std::uint8_t* band, std::uint8_t* out, avx512::TileRegisters* registers) const {
    const std::uint8_t* pixels[kMostRows];
    std::uint8_t* outputs[kMostRows];
    const std::ptrdiff_t step = std::ptrdiff_t{g_.stride_w} * g_.in_channels;
    const bool is_one_line = !products_->is_amx || block.rows == 1 || g_.stride_h * pitch_ == block.columns * step;
    const std::int64_t count = std::int64_t{block.rows} * block.columns;
    const std::int64_t line = is_one_line ? count : block.columns;
    const std::int64_t tiles = (line + products_->rows - 1) / products_->rows;
    const std::int64_t most = products_->is_amx ? (line + tiles - 1) / tiles : products_->rows;
    const std::uint8_t* pixel = band;
    std::int64_t left = line;  // results of the line
    int column = 0;
    for (std::int64_t first = 0; first < count;) {
      const int rows = static_cast<int>(std::min(most, left));
      for (int row = 0; row < rows; ++row, pixel += step, out += g_.out_pixel) {
        if (column == block.columns) {
          pixel += g_.stride_h * pitch_ - block.columns * step;
          out += g_.out_row - block.columns * g_.out_pixel;
          column = 0;
        }
        ++column;
        pixels[row] = pixel;
        outputs[row] = out;
      }
      std::fill(pixels + rows, pixels + products_->rows, pixels[rows - 1]);
      first += rows;
      left = left == rows ? line : left - rows;
      const int first_rows = rows <= avx512::kAmxRows ? rows : (rows + 1) / 2;
      registers->configure(first_rows, rows - first_rows, static_cast<std::size_t>(chunk_));
      for (int group = 0; group < g_.groups; ++group) {
        const int panel = group * group_panels();
        if (group > 0)
          for (int row = 0; row < products_->rows; ++row) pixels[row] += g_.group_in();
        products_->multiply({pixels, segments_.data(), static_cast<int>(segments_.size()), chunk_, is_wide_,
                             static_cast<std::ptrdiff_t>(band_elements_),
                             weights_.as<std::int8_t>() + panel * panel_bytes_, panel_bytes_, panels_.as<Panel>() + panel,
                             &finish_, rows, first_rows, g_.group_out(), outputs,
                             static_cast<std::size_t>(group * g_.group_out()) * static_cast<std::size_t>(bytes_)});
      }
    }
  }

  void run_dense(const Block& block, const std::int32_t* band, std::uint8_t* out) const {
    const std::int32_t* windows[kMostRows];
    const std::int32_t* pixels[kMostRows];
    std::uint8_t* outputs[kMostRows];
    const std::int64_t count = std::int64_t{block.rows} * block.columns;
    const int panels = group_panels();
    for (std::int64_t first = 0; first < count; first += functions_.rows) {
      const int rows = static_cast<int>(std::min<std::int64_t>(functions_.rows, count - first));
      for (int row = 0; row < functions_.rows; ++row) {
        const std::int64_t index = first + std::min(row, rows - 1);
        const std::int64_t y = index / block.columns, x = index % block.columns;
        windows[row] = band + y * g_.stride_h * pitch_ + x * g_.stride_w * g_.in_channels;
        outputs[row] = out + y * g_.out_row + x * g_.out_pixel;
      }
      for (int index = 0; index < g_.groups * panels; ++index) {
        const int group = index / panels, start = index % panels * kPanel;
        for (int row = 0; row < functions_.rows; ++row) pixels[row] = windows[row] + std::ptrdiff_t{group} * g_.group_in();
        functions_.multiply({pixels, segments_.data(), static_cast<int>(segments_.size()),
                             weights_.as<std::int32_t>() + index * pairs_ * kPanel, panels_.as<Panel>() + index, &finish_,
                             rows, std::min(kPanel, g_.group_out() - start), outputs,
                             static_cast<std::size_t>(group * g_.group_out() + start) * static_cast<std::size_t>(bytes_)});
      }
    }
  }

  ConvGeometry g_;
  const Functions& functions_;
  const ByteFunctions* products_ = nullptr;  // null for products of pairs
  bool is_wide_;
  int zero_;
  avx512::TileUnit unit_;
  int bytes_;
  std::string kind_;
  Span input_, output_;
  int period_ = kPanel;
  bool is_by_lanes_ = false;
  Finish finish_{};
  std::ptrdiff_t pairs_ = 0;        // per panel
  std::ptrdiff_t panel_bytes_ = 0;  // of weights
  std::ptrdiff_t chunk_ = 4;        // bytes of a segment that an instruction multiplies
  AlignedBytes panels_, weights_;
  int rows_ = 1, columns_ = 1;  // results of a block
  int row_blocks_ = 1, column_blocks_ = 1;
  std::int64_t band_elements_ = 0;  // of a plane
  std::ptrdiff_t pitch_ = 0;        // elements from an input row of a band to the next
  std::vector<Segment> segments_;
  std::vector<std::ptrdiff_t> taps_;  // of a depthwise window
};

}  // namespace

std::shared_ptr<Step> make_conv_int16(const ConvInt16Spec& spec, Isa isa) {
  const ConvGeometry& g = spec.geometry;
  check_epilogue(spec.epilogue);
  if (spec.second) {
    check_epilogue(*spec.second);
    require(!spec.epilogue.is_dequantized, "results in float32 have no second requantization");
  }
  check_geometry(kKernel, g, spec.is_wide ? 2 : 1, spec.second ? spec.second->bytes : spec.epilogue.bytes);
  const auto channels = static_cast<std::size_t>(g.out_channels);
  require(spec.high.data != nullptr && spec.low.data != nullptr, "weights are missing");
  require(spec.high.is_signed && spec.low.is_signed && spec.high.zero.empty() && spec.low.zero.empty(),
          "weights are INT8 without zero points");
  require(spec.bias.empty() || spec.bias.size() == channels, "biases must be one per output channel");
  require(spec.input_zero >= 0 && spec.input_zero <= 255, "the zero point of the input is not a stored byte");
  return std::make_shared<ConvInt16Step>(spec, isa);
}

}  // namespace tpuconvert
