// Scalar integer convolution: the reference for the other kernels, which produce equal bytes.
//
// Operands are widened to 16 bits and zero points are subtracted, so that compilers use the instruction that multiplies
// pairs of words (pmaddwd on SSE2). Weights may have any value in -255..255.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "int8/conv/conv.h"

namespace tpuconvert {

namespace {

constexpr int kRows = 8;     // output positions whose inputs are gathered together
constexpr int kColumns = 4;  // output channels of a tile; a tile has two positions
constexpr int kDepth = 16;   // the depth is padded with zeros to a multiple of this

// Computes a tile of two positions and four channels; `depth` is a multiple of kDepth. |sums| < 2^31, which is checked
// when the step is made.
void multiply_tile(const std::int16_t* rows, const std::int16_t* weights, std::ptrdiff_t depth, std::int32_t* sums) {
  const std::int16_t *x0 = rows, *x1 = rows + depth;
  const std::int16_t *w0 = weights, *w1 = w0 + depth, *w2 = w1 + depth, *w3 = w2 + depth;
  std::int32_t s00 = 0, s01 = 0, s02 = 0, s03 = 0, s10 = 0, s11 = 0, s12 = 0, s13 = 0;
  for (std::ptrdiff_t k = 0; k < depth; ++k) {
    const std::int32_t a = x0[k], b = x1[k];
    s00 += a * w0[k];
    s01 += a * w1[k];
    s02 += a * w2[k];
    s03 += a * w3[k];
    s10 += b * w0[k];
    s11 += b * w1[k];
    s12 += b * w2[k];
    s13 += b * w3[k];
  }
  const std::int32_t all[2 * kColumns] = {s00, s01, s02, s03, s10, s11, s12, s13};
  std::memcpy(sums, all, sizeof(all));
}

// Input addresses of the taps of one output position.
class Window {
 public:
  Window(const ConvGeometry& geometry, const std::uint8_t* input, std::int64_t position) : g_(geometry) {
    const int x = static_cast<int>(position % g_.out_width);
    const std::int64_t line = position / g_.out_width;
    const int y = static_cast<int>(line % g_.out_height);
    image_ = line / g_.out_height;
    input_ = input + image_ * g_.in_image;
    y_ = y * g_.stride_h - g_.pad_top;
    x_ = x * g_.stride_w - g_.pad_left;
    out_ = image_ * g_.out_image + y * g_.out_row + x * g_.out_pixel;
  }

  // Address of the pixel under a tap; null in the padding.
  const std::uint8_t* pixel(int ky, int kx) const {
    const int y = y_ + ky * g_.dilation_h, x = x_ + kx * g_.dilation_w;
    if (y < 0 || y >= g_.height || x < 0 || x >= g_.width) return nullptr;
    return input_ + y * g_.in_row + x * g_.in_pixel;
  }

  std::ptrdiff_t out() const { return out_; }

 private:
  const ConvGeometry& g_;
  const std::uint8_t* input_;
  std::int64_t image_;
  int y_, x_;
  std::ptrdiff_t out_;
};

class ConvInt8Scalar : public ConvInt8Kernel {
 public:
  explicit ConvInt8Scalar(const ConvInt8Spec& spec)
      : g_(spec.geometry),
        zero_(spec.input_zero),
        epilogue_(spec.epilogue, spec.geometry.out_channels),
        bias_(spec.bias),
        kind_(kind_of(spec.geometry)) {
    bias_.resize(static_cast<std::size_t>(g_.out_channels));
    if (g_.is_depthwise()) {
      pack_depthwise(spec.weights);
    } else {
      pack(spec.weights);
    }
  }

  int parts(int threads) const override {
    const std::int64_t blocks = (positions() + kRows - 1) / kRows;
    return static_cast<int>(std::min<std::int64_t>(threads == 1 ? 1 : threads * 4, blocks));
  }

  void run(const ConvAddresses& at, int part, int parts, std::uint8_t* scratch) const override {
    const std::int64_t blocks = (positions() + kRows - 1) / kRows;
    run_positions(at, blocks * part / parts * kRows, std::min(positions(), blocks * (part + 1) / parts * kRows), scratch);
  }

  bool has_image_rows() const override { return true; }

  void run_image_rows(const ConvAddresses& at, int first, int last, std::uint8_t* scratch) const override {
    run_positions(at, std::int64_t{first} * g_.out_width, std::int64_t{last} * g_.out_width, scratch);
  }

  std::size_t scratch_bytes() const override {
    return g_.is_depthwise() ? static_cast<std::size_t>(g_.out_channels) * sizeof(std::int32_t)
                             : kRows * static_cast<std::size_t>(depth_) * sizeof(std::int16_t) + tile_bytes();
  }

  std::size_t packed_bytes() const override {
    return weights_.size() * sizeof(std::int16_t) + bias_.size() * sizeof(std::int32_t);
  }

  const char* kind() const override { return kind_.c_str(); }

 private:
  void run_positions(const ConvAddresses& at, std::int64_t first, std::int64_t last, std::uint8_t* scratch) const {
    if (g_.is_depthwise()) {
      run_depthwise(at.input, at.output, first, last, scratch);
      return;
    }
    for (std::int64_t position = first; position < last; position += kRows)
      run_block(at.input, at.output, position, static_cast<int>(std::min<std::int64_t>(kRows, last - position)), scratch);
  }

  std::int64_t positions() const { return std::int64_t{g_.batch} * g_.out_height * g_.out_width; }
  // Scratch memory for the sums of a block of rows and one group.
  std::size_t tile_bytes() const { return kRows * static_cast<std::size_t>(columns_) * sizeof(std::int32_t); }

  // Packs weights as [group][channel, padded to kColumns][tap][input channel], with each row padded to kDepth.
  void pack(const WeightView& view) {
    const int group_out = g_.group_out(), group_in = g_.group_in();
    columns_ = (group_out + kColumns - 1) / kColumns * kColumns;
    depth_ = (static_cast<std::ptrdiff_t>(g_.taps()) * group_in + kDepth - 1) / kDepth * kDepth;
    weights_.resize(static_cast<std::size_t>(g_.groups) * columns_ * depth_);
    for (int channel = 0; channel < g_.out_channels; ++channel) {
      const std::size_t row = static_cast<std::size_t>(channel / group_out) * columns_ + channel % group_out;
      std::int16_t* to = weights_.data() + row * depth_;
      for (int y = 0; y < g_.kernel_h; ++y)
        for (int x = 0; x < g_.kernel_w; ++x)
          for (int in = 0; in < group_in; ++in) *to++ = static_cast<std::int16_t>(view.at(channel, in, y, x));
    }
  }

  // Packs weights as [tap][channel].
  void pack_depthwise(const WeightView& view) {
    weights_.reserve(static_cast<std::size_t>(g_.taps()) * g_.out_channels);
    for (int y = 0; y < g_.kernel_h; ++y)
      for (int x = 0; x < g_.kernel_w; ++x)
        for (int channel = 0; channel < g_.out_channels; ++channel)
          weights_.push_back(static_cast<std::int16_t>(view.at(channel, 0, y, x)));
  }

  // Gathers the inputs of the windows and one group, widened and minus the zero point. Rows after the last window stay
  // undefined.
  void gather(const std::vector<Window>& windows, int group, std::int16_t* to) const {
    const int group_in = g_.group_in();
    for (const Window& window : windows) {
      std::int16_t* row = to;
      for (int ky = 0; ky < g_.kernel_h; ++ky) {
        for (int kx = 0; kx < g_.kernel_w; ++kx, row += group_in) {
          const std::uint8_t* pixel = window.pixel(ky, kx);
          if (pixel == nullptr) {
            std::fill_n(row, group_in, std::int16_t{0});
          } else {
            const std::uint8_t* from = pixel + static_cast<std::ptrdiff_t>(group) * group_in;
            for (int in = 0; in < group_in; ++in) row[in] = static_cast<std::int16_t>(from[in] - zero_);
          }
        }
      }
      std::fill(row, to + depth_, std::int16_t{0});
      to += depth_;
    }
  }

  void run_block(const std::uint8_t* input, std::uint8_t* output, std::int64_t position, int count,
                 std::uint8_t* scratch) const {
    std::vector<Window> windows;
    windows.reserve(kRows);
    for (int row = 0; row < count; ++row) windows.emplace_back(g_, input, position + row);
    auto* rows = reinterpret_cast<std::int16_t*>(scratch);
    auto* sums = reinterpret_cast<std::int32_t*>(scratch + kRows * static_cast<std::size_t>(depth_) * 2);
    if (count % 2 != 0) std::fill_n(rows + count * depth_, depth_, std::int16_t{0});
    const int group_out = g_.group_out();
    for (int group = 0; group < g_.groups; ++group) {
      gather(windows, group, rows);
      const std::int16_t* weights = weights_.data() + static_cast<std::size_t>(group) * columns_ * depth_;
      for (int column = 0; column < columns_; column += kColumns) {
        for (int row = 0; row < count; row += 2) {
          std::int32_t tile[2 * kColumns];
          multiply_tile(rows + row * depth_, weights + column * depth_, depth_, tile);
          std::memcpy(sums + row * columns_ + column, tile, sizeof(tile) / 2);
          std::memcpy(sums + (row + 1) * columns_ + column, tile + kColumns, sizeof(tile) / 2);
        }
      }
      const int channel = group * group_out;
      for (int row = 0; row < count; ++row) {
        std::int32_t* line = sums + row * columns_;
        for (int i = 0; i < group_out; ++i) line[i] += bias_[static_cast<std::size_t>(channel + i)];
        std::uint8_t* out = output + windows[static_cast<std::size_t>(row)].out();
        epilogue_.apply_row(line, channel, group_out, out + std::ptrdiff_t{channel} * epilogue_.bytes());
      }
    }
  }

  void run_depthwise(const std::uint8_t* input, std::uint8_t* output, std::int64_t first, std::int64_t last,
                     std::uint8_t* scratch) const {
    auto* sums = reinterpret_cast<std::int32_t*>(scratch);
    const int channels = g_.out_channels;
    for (std::int64_t position = first; position < last; ++position) {
      const Window window(g_, input, position);
      std::copy(bias_.begin(), bias_.end(), sums);
      const std::int16_t* weights = weights_.data();
      for (int ky = 0; ky < g_.kernel_h; ++ky) {
        for (int kx = 0; kx < g_.kernel_w; ++kx, weights += channels) {
          const std::uint8_t* pixel = window.pixel(ky, kx);
          if (pixel == nullptr) continue;
          for (int i = 0; i < channels; ++i) sums[i] += static_cast<std::int16_t>(pixel[i] - zero_) * weights[i];
        }
      }
      epilogue_.apply_row(sums, 0, channels, output + window.out());
    }
  }

  ConvGeometry g_;
  int zero_;
  Epilogue epilogue_;
  std::vector<std::int32_t> bias_;
  std::vector<std::int16_t> weights_;
  std::ptrdiff_t depth_ = 0;
  std::ptrdiff_t columns_ = 0;
  std::string kind_;
};

}  // namespace

std::unique_ptr<ConvInt8Kernel> make_conv_int8_scalar(const ConvInt8Spec& spec) {
  return std::make_unique<ConvInt8Scalar>(spec);
}

}  // namespace tpuconvert
