#if defined(__x86_64__)

#include "int8/depthwise/depthwise.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "core/aligned.h"
#include "int8/epilogue/panel_requant.h"
#include "int8/conv/weight_rows.h"

namespace tpuconvert::avx512 {
namespace {

constexpr int kBlock = 64;          // channels of a full block; parameters and sums are allocated for full blocks
// columns of the buffer, which stays in the first-level cache; more only for wider windows
constexpr int kBufferColumns = 48;
constexpr std::size_t kPointerBytes = 64;      // pointers to four rows, rounded up to keep the alignment

constexpr int groups_of(int rows) { return (rows + 3) / 4; }

// A block of adjacent channels that are computed together.
struct Block {
  int first;
  int channels;
  int width;  // bytes per vector: 64, 32 or 16
  TileEpilogue epilogue;
  int offset;
  std::size_t weights;     // offset in the packed weights, in bytes
  std::size_t parameters;  // index of the first LaneParameters
};

// Weights of each channel, [channel][kernel row][kernel column], minus the zero points.
class WindowWeights {
 public:
  explicit WindowWeights(const ConvInt8Spec& spec) : taps_(static_cast<std::size_t>(spec.geometry.taps())) {
    values_.resize(taps_ * static_cast<std::size_t>(spec.geometry.out_channels));
    if (spec.weights.is_signed) {
      read<std::int8_t>(spec);
    } else {
      read<std::uint8_t>(spec);
    }
  }

  const std::int16_t* of(int channel) const { return values_.data() + static_cast<std::size_t>(channel) * taps_; }
  std::size_t taps() const { return taps_; }

 private:
  template <typename Element>
  void read(const ConvInt8Spec& spec) {
    const ConvGeometry& g = spec.geometry;
    const WeightView& w = spec.weights;
    std::int16_t* to = values_.data();
    for (int channel = 0; channel < g.out_channels; ++channel) {
      const int zero = w.zero_of(channel);
      const Element* row = static_cast<const Element*>(w.data) + channel * w.stride_out;
      for (int y = 0; y < g.kernel_h; ++y, row += w.stride_y)
        for (int x = 0; x < g.kernel_w; ++x) *to++ = static_cast<std::int16_t>(row[x * w.stride_x] - zero);
    }
  }

  std::size_t taps_;
  std::vector<std::int16_t> values_;
};

// Base class of both kernels: blocks, parameters, and the division of rows among threads.
class Depthwise : public ConvInt8Kernel {
 public:
  std::size_t packed_bytes() const override { return weights_.size() + parameters_.size() + padding_.size(); }
  const char* kind() const override { return kind_.c_str(); }

  int parts(int threads) const override {
    return threads == 1 ? 1 : static_cast<int>(std::min<std::int64_t>(2 * std::int64_t{threads}, rows()));
  }

  void run(const ConvAddresses& at, int part, int parts, std::uint8_t* scratch) const override {
    const WithSubnormals mode;
    const std::uint8_t* input = at.input;
    std::uint8_t* output = at.output;
    const std::int64_t end = rows() * (part + 1) / parts;
    for (std::int64_t row = rows() * part / parts; row < end;) {
      const std::int64_t image = row / g_.out_height;
      const int y = static_cast<int>(row % g_.out_height);
      const int count = static_cast<int>(std::min<std::int64_t>({rows_at_once_, g_.out_height - y, end - row}));
      run_rows(input + image * g_.in_image, output + image * g_.out_image, y, count, scratch);
      row += count;
    }
  }

  bool has_image_rows() const override { return true; }

  void run_image_rows(const ConvAddresses& at, int first, int last, std::uint8_t* scratch) const override {
    const WithSubnormals mode;
    for (int y = first; y < last; y += rows_at_once_)
      run_rows(at.input, at.output, y, std::min(rows_at_once_, last - y), scratch);
  }

 protected:
  // `window_rows` is the number of kernel rows, times the number of summands per weight.
  Depthwise(const ConvInt8Spec& spec, const WindowWeights& values, bool has_narrow_blocks, int weight_rows,
            int window_rows)
      : g_(spec.geometry),
        groups_(groups_of(window_rows)),
        epilogue_(spec.epilogue, spec.geometry.out_channels, Isa::kAvx512Vnni),
        padding_(AlignedBytes::unwritten_part(static_cast<std::size_t>((g_.width - 1) * g_.in_pixel) + kBlock)),
        kind_(kind_of(spec.geometry)) {
    std::memset(padding_.data(), spec.input_zero, padding_.size());
    std::size_t weights = 0, parameters = 0;
    const std::size_t dwords = static_cast<std::size_t>(weight_rows * g_.kernel_w * groups_ * kVectors);
    for (int first = 0; first < g_.out_channels;) {
      const int left = g_.out_channels - first;
      const int width = !has_narrow_blocks || left > 32 ? 64 : left > 16 ? 32 : 16;
      blocks_.push_back({first, std::min(left, width), width, TileEpilogue::kSums, 0, weights, parameters});
      weights += dwords * static_cast<std::size_t>(width);
      parameters += kVectors;
      first += width;
    }
    weights_ = AlignedBytes::part(weights);
    parameters_ = AlignedBytes::part(parameters * sizeof(LaneParameters));
    for (Block& block : blocks_) set_parameters(spec, values, &block);
  }

  // Computes `rows` rows of results of one image, starting with row `y`.
  virtual void run_rows(const std::uint8_t* input, std::uint8_t* output, int y, int rows,
                        std::uint8_t* scratch) const = 0;

  std::int64_t rows() const { return std::int64_t{g_.batch} * g_.out_height; }

  // Address of the weight of a tap. Weights are packed as [column][group][vector][channel][4 taps].
  std::int8_t* weight(const Block& block, int column, int group, int channel, int tap) {
    const int lane = channel / 16, v = channel % 16 / 4, i = channel % 4;
    const std::size_t vector = static_cast<std::size_t>((column * groups_ + group) * kVectors + v);
    return weights_.as<std::int8_t>() + block.weights + vector * static_cast<std::size_t>(block.width) +
           static_cast<std::size_t>(4 * (4 * lane + i) + tap);
  }

  const std::uint8_t* row_at(const std::uint8_t* input, int y, int first) const {
    return y >= 0 && y < g_.height ? input + y * g_.in_row + first : padding_.data();
  }

  // Sets the arguments that both kernels have.
  template <typename Arguments>
  void set_common(const Block& block, std::uint8_t* scratch, Arguments* arguments) const {
    const EpilogueSpec& spec = epilogue_.spec();
    arguments->padding = padding_.data();
    arguments->in_pixel = g_.in_pixel;
    arguments->width = g_.width;
    arguments->out_pixel = g_.out_pixel;
    arguments->weights = weights_.as<std::int8_t>() + block.weights;
    arguments->parameters = parameters_.as<LaneParameters>() + block.parameters;
    arguments->sums = reinterpret_cast<std::int32_t*>(scratch);
    arguments->mask = ~std::uint64_t{0} >> (64 - block.channels);
    arguments->lut = spec.lut.empty() ? nullptr : spec.lut.data();
    arguments->offset = block.offset;
    arguments->low = static_cast<int>(spec.low);
    arguments->high = static_cast<int>(spec.high);
  }

  void apply_epilogue_to_row(const Block& block, const std::int32_t* sums, int count, std::uint8_t* output) const {
    output += static_cast<std::ptrdiff_t>(block.first) * epilogue_.bytes();
    for (int x = 0; x < count; ++x, output += g_.out_pixel)
      epilogue_.apply_row(sums + x * kBlock, block.first, block.channels, output);
  }

  ConvGeometry g_;
  int groups_;  // groups of four window rows
  Epilogue epilogue_;
  std::vector<Block> blocks_;
  AlignedBytes weights_;
  AlignedBytes parameters_;
  AlignedBytes padding_;  // an input row of padding
  int rows_at_once_ = 1;
  std::string kind_;

 private:
  void set_parameters(const ConvInt8Spec& spec, const WindowWeights& values, Block* block) {
    const int farthest_input = std::max(spec.input_zero, 255 - spec.input_zero);
    LaneParameters* lanes = parameters_.as<LaneParameters>() + block->parameters;
    PanelRequant requant(epilogue_);
    block->offset = epilogue_.offset(block->first);
    for (int i = 0; i < block->channels; ++i) {
      const int channel = block->first + i, lane = lane_of(i, kVectors);
      const std::int16_t* weights = values.of(channel);
      std::int64_t sum = 0, magnitude = 0;
      for (std::size_t tap = 0; tap < values.taps(); ++tap) {
        sum += weights[tap];
        magnitude += std::abs(weights[tap]);
      }
      const std::int64_t bias = spec.bias.empty() ? 0 : spec.bias[static_cast<std::size_t>(channel)];
      // Padding has the value input_zero too, so all taps contribute.
      lanes[lane / kLanes].bias[lane % kLanes] = static_cast<std::int32_t>(bias - spec.input_zero * sum);
      requant.add(channel, lane, magnitude * farthest_input + std::llabs(bias));
    }
    block->epilogue = requant.write(lanes);
    // Its kernels store bytes; results of 16 bits are computed from the sums.
    if (block->epilogue == TileEpilogue::kWords) block->epilogue = TileEpilogue::kSums;
    // For narrow blocks, a register of sums contains several pixels, so the parameters are repeated.
    const int period = block->width / kVectors;
    for (LaneParameters* to = lanes; to != lanes + kVectors; ++to)
      for (int lane = period; lane < kLanes; ++lane) {
        to->factor[lane] = to->factor[lane - period];
        to->second[lane] = to->second[lane - period];
        to->kink[lane] = to->kink[lane - period];
      }
  }
};

// Depthwise convolution with 3x3 windows, horizontal stride 1 or 2, and no horizontal dilation.
class Depthwise3x3 : public Depthwise {
 public:
  Depthwise3x3(const ConvInt8Spec& spec, const WindowWeights& values)
      : Depthwise(spec, values, true, takes_two_rows(spec.geometry) ? 2 : 1, 3) {
    rows_at_once_ = takes_two_rows(g_) ? 2 : 1;
    for (const Block& block : blocks_)
      for (int row = 0; row < rows_at_once_; ++row)
        for (int i = 0; i < block.channels; ++i) {
          const std::int16_t* from = values.of(block.first + i);
          for (int x = 0; x < 3; ++x) {
            std::int8_t* to = weight(block, row * 3 + x, 0, i, row);
            for (int y = 0; y < 3; ++y) to[y] = static_cast<std::int8_t>(from[3 * y + x]);
          }
        }
  }

  static bool covers(const ConvGeometry& g) {
    return g.kernel_h == 3 && g.kernel_w == 3 && g.dilation_w == 1 && g.stride_w <= 2;
  }

  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(rows_at_once_) * static_cast<std::size_t>(g_.out_width) * kBlock *
           sizeof(std::int32_t);
  }

 private:
  static bool takes_two_rows(const ConvGeometry& g) { return g.stride_h == 1 && g.stride_w == 1 && g.dilation_h == 1; }

  void run_rows(const std::uint8_t* input, std::uint8_t* output, int y, int rows,
                std::uint8_t* scratch) const override {
    DepthwiseArguments arguments{};
    for (const Block& block : blocks_) {
      set_common(block, scratch, &arguments);
      for (int i = 0; i < rows + 2; ++i)
        arguments.rows[i] = row_at(input, y * g_.stride_h - g_.pad_top + i * g_.dilation_h, block.first);
      arguments.left = -g_.pad_left;
      arguments.out_width = g_.out_width;
      const std::ptrdiff_t offset = static_cast<std::ptrdiff_t>(block.first) * epilogue_.bytes();
      for (int i = 0; i < rows; ++i) arguments.outputs[i] = output + (y + i) * g_.out_row + offset;
      const DepthwiseKernel kernel = block.width < kBlock && g_.stride_w == 1
                                         ? depthwise_3x3_joined(block.epilogue, block.width, rows)
                                         : depthwise_3x3(block.epilogue, block.width, g_.stride_w, rows);
      kernel(arguments);
      if (block.epilogue == TileEpilogue::kSums)
        for (int i = 0; i < rows; ++i)
          apply_epilogue_to_row(block, arguments.sums + i * g_.out_width * kBlock, g_.out_width, output + (y + i) * g_.out_row);
    }
  }
};

class DepthwiseAny : public Depthwise {
 public:
  // A weight of more than 8 bits is a sum of `copies` 8-bit summands, so the window rows are processed `copies` times.
  DepthwiseAny(const ConvInt8Spec& spec, const WindowWeights& values, int copies)
      : Depthwise(spec, values, false, 1, copies * spec.geometry.kernel_h) {
    for (const Block& block : blocks_)
      for (int i = 0; i < block.channels; ++i)
        for (int y = 0; y < g_.kernel_h; ++y)
          for (int x = 0; x < g_.kernel_w; ++x) {
            int rest = values.of(block.first + i)[y * g_.kernel_w + x];
            for (int row = y; row < copies * g_.kernel_h; row += g_.kernel_h) {
              const int summand = std::clamp(rest, -128, 127);
              *weight(block, x, row / 4, i, row % 4) = static_cast<std::int8_t>(summand);
              rest -= summand;
            }
          }
    const int window = (g_.kernel_w - 1) * g_.dilation_w + 1;
    piece_ = std::min(g_.out_width, std::max(8, (kBufferColumns - window) / g_.stride_w + 1));
    columns_ = (piece_ - 1) * g_.stride_w + window;
  }

  std::size_t scratch_bytes() const override {
    return pointer_bytes() + sum_bytes() + static_cast<std::size_t>(columns_ * groups_ * kVectors) * kBlock;
  }

 private:
  std::size_t pointer_bytes() const { return static_cast<std::size_t>(groups_) * kPointerBytes; }
  std::size_t sum_bytes() const { return static_cast<std::size_t>(piece_) * kBlock * sizeof(std::int32_t); }

  void run_rows(const std::uint8_t* input, std::uint8_t* output, int y, int, std::uint8_t* scratch) const override {
    const std::uint8_t** rows = reinterpret_cast<const std::uint8_t**>(scratch);
    DepthwiseLine line{};
    for (const Block& block : blocks_) {
      set_common(block, scratch + pointer_bytes(), &line);
      const int top = y * g_.stride_h - g_.pad_top;
      for (int i = 0; i < 4 * groups_; ++i)
        rows[i] = row_at(input, top + i % g_.kernel_h * g_.dilation_h, block.first);
      line.rows = rows;
      line.groups = groups_;
      line.buffer = scratch + pointer_bytes() + sum_bytes();
      line.taps = g_.kernel_w;
      line.stride = g_.stride_w;
      line.dilation = g_.dilation_w;
      for (int x = 0; x < g_.out_width; x += piece_) {
        line.out_width = std::min(piece_, g_.out_width - x);
        line.left = x * g_.stride_w - g_.pad_left;
        line.columns = (line.out_width - 1) * g_.stride_w + (g_.kernel_w - 1) * g_.dilation_w + 1;
        std::uint8_t* pixels = output + y * g_.out_row + x * g_.out_pixel;
        line.output = pixels + static_cast<std::ptrdiff_t>(block.first) * epilogue_.bytes();
        depthwise_line(block.epilogue)(line);
        if (block.epilogue == TileEpilogue::kSums) apply_epilogue_to_row(block, line.sums, line.out_width, pixels);
      }
    }
  }

  int piece_ = 0;    // results of a row per kernel call
  int columns_ = 0;  // input columns that these results read
};

}  // namespace

std::unique_ptr<ConvInt8Kernel> make_depthwise(const ConvInt8Spec& spec) {
  const int copies = weight_copies(spec);
  const WindowWeights values(spec);
  if (copies == 1 && Depthwise3x3::covers(spec.geometry)) return std::make_unique<Depthwise3x3>(spec, values);
  return std::make_unique<DepthwiseAny>(spec, values, copies);
}

}  // namespace tpuconvert::avx512

#endif
