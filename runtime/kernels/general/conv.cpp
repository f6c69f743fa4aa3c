#include "general/conv.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <tuple>

#include "core/extents.h"
#include "core/variants.h"
#include "general/conv_rows.h"

namespace tpuconvert {

namespace {

constexpr std::int64_t kMostIndices = 1 << 26;  // entries of the index table of one axis
constexpr std::int64_t kMostZero = 1 << 12;  // products of 8-bit numbers minus zero points fit 16 bits each

std::int64_t even(std::int64_t count) { return (count + 1) / 2 * 2; }

std::size_t aligned(std::int64_t bytes) { return static_cast<std::size_t>((bytes + 63) / 64 * 64); }

// Input index of every result index and kernel index along one axis; -1 for padding.
std::vector<std::int32_t> source_indices(const AnyConvSpec& spec, std::size_t axis) {
  std::vector<std::int32_t> found;
  const std::int64_t extent = spec.extents[axis], stride = spec.strides[axis], pad = spec.pads[axis];
  for (std::int64_t k = 0; k < spec.kernel[axis]; ++k) {
    for (std::int64_t o = 0; o < spec.out_extents[axis]; ++o) {
      std::int64_t index = o * stride + k * spec.dilations[axis] - pad;
      if (spec.is_transposed) {
        const std::int64_t numerator = o + pad - k * spec.dilations[axis];
        index = numerator >= 0 && numerator % stride == 0 ? numerator / stride : -1;
      }
      found.push_back(index >= 0 && index < extent ? static_cast<std::int32_t>(index) : -1);
    }
  }
  return found;
}

// Windows of one block of the result: rows first_row.., columns first_column.. of one plane.
struct Block {
  std::int64_t image, group, plane, first_row, rows, first_column, columns;
};

class AnyConvStep final : public Step {
 public:
  AnyConvStep(const AnyConvSpec& spec, Isa isa) : spec_(spec) {
    is_float_ = spec.rescale.mode == ConvMode::kFloat;
    check();
    depth_ = spec.inputs * spec.kernel[0] * spec.kernel[1] * spec.kernel[2];
    pitch_ = is_float_ ? depth_ : even(depth_) / 2;
    has_zero_row_ = spec.rescale.mode == ConvMode::kAsymmetric && spec.w_zero != 0;
    channels_ = spec.outputs + (has_zero_row_ ? 1 : 0);
    for (std::size_t axis = 0; axis < 3; ++axis) indices_[axis] = source_indices(spec, axis);
    columns_ = std::min(spec.out_extents[2], kPositions);
    rows_ = std::min(spec.out_extents[1], kPositions / columns_);
    row_blocks_ = (spec.out_extents[1] + rows_ - 1) / rows_;
    column_blocks_ = (spec.out_extents[2] + columns_ - 1) / columns_;
    blocks_ = product_of({spec.batch, spec.groups, spec.out_extents[0], row_blocks_, column_blocks_});
    kernels_ = TPU_SELECT(isa, conv_rows_scalar(), conv_rows_avx2(), conv_rows_avx512(), conv_rows_neon());
    chunk_ = std::max<std::int64_t>(1, std::numeric_limits<std::int32_t>::max() / (2 * largest_product()));
    make_spans();
  }

  void run(const Run& run) const override {
    const std::int64_t packed = spec_.groups * channels_;
    const std::int64_t packing_parts = run.threads() == 1 ? 1 : std::min<std::int64_t>(packed, 2 * run.threads());
    run.parallel(static_cast<int>(packing_parts), [&](int part, int) {
      for (std::int64_t row = packed * part / packing_parts; row < packed * (part + 1) / packing_parts; ++row)
        pack(run, row / channels_, row % channels_);
    });
    const std::int64_t parts = run.threads() == 1 ? 1 : std::min<std::int64_t>(blocks_, 4 * run.threads());
    run.parallel(static_cast<int>(parts), [&](int part, int worker) {
      for (std::int64_t b = blocks_ * part / parts; b < blocks_ * (part + 1) / parts; ++b)
        compute(run, block(b), run.scratch(worker));
    });
  }

  std::vector<Span> spans() const override { return spans_; }
  std::size_t scratch_bytes() const override { return taps_bytes() + 2 * aligned(channels_ * kPositions * 8); }
  const char* kind() const override { return is_float_ ? "any_conv float" : "any_conv"; }

 private:
  void check() const {
    for (std::size_t axis = 0; axis < 3; ++axis) {
      if (spec_.strides[axis] < 1 || spec_.dilations[axis] < 1 || spec_.pads[axis] < 0)
        throw std::invalid_argument("any_conv: a stride, dilation or pad is too small");
      for (const std::int64_t extent : {spec_.extents[axis], spec_.out_extents[axis], spec_.kernel[axis],
                                        spec_.strides[axis], spec_.dilations[axis], spec_.pads[axis] + 1})
        if (extent < 1 || extent >= std::int64_t{1} << 31) throw std::invalid_argument("any_conv: an extent is invalid");
      if (product_of({spec_.kernel[axis], spec_.out_extents[axis]}) > kMostIndices)
        throw std::invalid_argument("any_conv: an axis is too long");
    }
    if (spec_.batch < 1 || spec_.groups < 1 || spec_.inputs < 1 || spec_.outputs < 1)
      throw std::invalid_argument("any_conv: an extent is invalid");
    const auto are_zeros = [](const std::vector<std::int64_t>& zeros, std::int64_t count) {
      return (zeros.size() == 1 || static_cast<std::int64_t>(zeros.size()) == count) &&
             std::all_of(zeros.begin(), zeros.end(), [](std::int64_t zero) { return zero >= -kMostZero && zero <= kMostZero; });
    };
    // Columns have no common zero point: those of x have it.
    const std::vector<std::int64_t>& columns = spec_.column_zeros;
    const bool has_every_column = static_cast<std::int64_t>(columns.size()) == spec_.out_extents[2];
    if (!are_zeros(spec_.x_zeros, spec_.groups * spec_.inputs) || !are_zeros(spec_.w_zeros, spec_.groups * spec_.outputs) ||
        !(columns.empty() || (has_every_column && are_zeros(columns, spec_.out_extents[2]))) || !are_zeros({spec_.pad}, 1) ||
        !are_zeros({spec_.x_zero, spec_.w_zero}, 2))
      throw std::invalid_argument("any_conv: invalid zero points");
    const bool has_floats = is_float(spec_.source.type) && is_float(spec_.weights.type) && is_float(spec_.result.type);
    const bool has_bytes = spec_.source.type <= AnyType::kU8 && spec_.weights.type <= AnyType::kU8 && !is_float(spec_.result.type);
    if (is_float_ ? !has_floats : !has_bytes) throw std::invalid_argument("any_conv: the types are not supported");
    if (spec_.rescale.low > spec_.rescale.high || spec_.rescale.shift < 0)
      throw std::invalid_argument("any_conv: invalid rescaling");
    if (spec_.workspace < packed_conv_bytes(spec_)) throw std::invalid_argument("any_conv: the workspace is too small");
  }

  void make_spans() {
    const auto& [x, w, y] = std::tie(spec_.source, spec_.weights, spec_.result);
    const auto& in = spec_.extents;
    const auto& out = spec_.out_extents;
    const auto& kernel = spec_.kernel;
    const auto span = [](const AnyTensor& tensor, const std::vector<std::int64_t>& shape, bool is_written) {
      const std::size_t item = static_cast<std::size_t>(size_of(tensor.type));
      return is_written ? Span::writes(tensor.place, bytes_of(tensor, shape), item)
                        : Span::reads(tensor.place, bytes_of(tensor, shape), item);
    };
    spans_.push_back(span(x, {spec_.batch, spec_.groups, spec_.inputs, in[0], in[1], in[2]}, false));
    spans_.push_back(span(w, {spec_.groups, spec_.outputs, spec_.inputs, kernel[0], kernel[1], kernel[2]}, false));
    if (spec_.bias) spans_.push_back(span(*spec_.bias, {spec_.groups, spec_.outputs}, false));
    spans_.push_back(span(y, {spec_.batch, spec_.groups, spec_.outputs, out[0], out[1], out[2]}, true));
    spans_.push_back(Span::writes(spec_.packed, spec_.workspace, 8));
  }

  std::int64_t largest_product() const {
    const auto bound = [](const std::vector<std::int64_t>& zeros) {
      std::int64_t most = 0;
      for (const std::int64_t zero : zeros) most = std::max({most, std::int64_t{255} + zero, std::int64_t{255} - zero});
      return most;
    };
    return std::max(bound(spec_.x_zeros), std::abs(spec_.pad)) * std::max(bound(spec_.w_zeros), std::abs(spec_.w_zero));
  }

  std::size_t taps_bytes() const { return aligned(is_float_ ? depth_ * kPositions * 8 : pitch_ * kPositions * 4); }

  Block block(std::int64_t index) const {
    Block found{};
    const std::int64_t column = index % column_blocks_, row = index / column_blocks_ % row_blocks_;
    index /= column_blocks_ * row_blocks_;
    found.plane = index % spec_.out_extents[0];
    index /= spec_.out_extents[0];
    found.group = index % spec_.groups;
    found.image = index / spec_.groups;
    found.first_row = row * rows_;
    found.rows = std::min(rows_, spec_.out_extents[1] - found.first_row);
    found.first_column = column * columns_;
    found.columns = std::min(columns_, spec_.out_extents[2] - found.first_column);
    return found;
  }

  // Address of the packed weights of a channel; the last one of a group contains the zero point of mode 2.
  std::uint8_t* packed_row(const Run& run, std::int64_t group, std::int64_t channel) const {
    return run.at<std::uint8_t>(spec_.packed) + (group * channels_ + channel) * pitch_ * (is_float_ ? 8 : 4);
  }

  // Sums of the weights minus their zero point, after the packed weights.
  std::int64_t* weight_sums(const Run& run) const {
    return reinterpret_cast<std::int64_t*>(run.at<std::uint8_t>(spec_.packed) +
                                           aligned(spec_.groups * channels_ * pitch_ * (is_float_ ? 8 : 4)));
  }

  void pack(const Run& run, std::int64_t group, std::int64_t channel) const {
    std::uint8_t* row = packed_row(run, group, channel);
    const std::int64_t output = group * spec_.outputs + channel;
    const std::int64_t zero = spec_.w_zeros[spec_.w_zeros.size() == 1 || channel >= spec_.outputs ? 0 : output];
    std::int64_t sum = 0, k = 0;
    const auto& strides = spec_.weights.strides;
    const std::int64_t item = size_of(spec_.weights.type);
    const std::uint8_t* base = run.at<const std::uint8_t>(spec_.weights.place) + (group * strides[0] + channel * strides[1]) * item;
    for (std::int64_t i = 0; i < spec_.inputs; ++i)
      for (std::int64_t d = 0; d < spec_.kernel[0]; ++d)
        for (std::int64_t h = 0; h < spec_.kernel[1]; ++h)
          for (std::int64_t w = 0; w < spec_.kernel[2]; ++w, ++k) {
            const std::uint8_t* from = base + (i * strides[2] + d * strides[3] + h * strides[4] + w * strides[5]) * item;
            if (is_float_) {
              float value;
              load_lanes(spec_.weights.type, from, 1, 1, &value);
              reinterpret_cast<double*>(row)[k] = value;
            } else {
              const std::int64_t value =
                  channel >= spec_.outputs ? spec_.w_zero : *from - (spec_.weights.type == AnyType::kS8 ? kStoredBias : 0) - zero;
              reinterpret_cast<std::int16_t*>(row)[k] = static_cast<std::int16_t>(value);
              sum += value - spec_.w_zero;
            }
          }
    if (!is_float_ && depth_ % 2 != 0) reinterpret_cast<std::int16_t*>(row)[depth_] = 0;
    if (!is_float_ && channel < spec_.outputs) weight_sums(run)[output] = sum;
  }

  // Calls `finish(k, row)` for every kernel element, with its operands at all positions of a block. `T` is the element type
  // in memory; `convert(x, channel)` converts an element, and `pad` is the value of the padding.
  template <typename T, typename Value, typename Convert, typename Finish>
  void gather(const Run& run, const Block& block, Value pad, Convert convert, Finish finish) const {
    const auto& strides = spec_.source.strides;
    const auto& out = spec_.out_extents;
    Value row[kPositions];
    std::fill(row, row + kPositions, pad);
    std::int64_t k = 0;
    for (std::int64_t i = 0; i < spec_.inputs; ++i) {
      const std::int64_t channel = block.group * spec_.inputs + i;
      const T* plane = run.at<const T>(spec_.source.place) + block.image * strides[0] + block.group * strides[1] + i * strides[2];
      for (std::int64_t d = 0; d < spec_.kernel[0]; ++d)
        for (std::int64_t h = 0; h < spec_.kernel[1]; ++h)
          for (std::int64_t w = 0; w < spec_.kernel[2]; ++w, ++k) {
            const std::int64_t depth = indices_[0][d * out[0] + block.plane];
            const std::int32_t* columns = indices_[2].data() + w * out[2] + block.first_column;
            for (std::int64_t r = 0; r < block.rows; ++r) {
              const std::int64_t line = indices_[1][h * out[1] + block.first_row + r];
              Value* to = row + r * block.columns;
              if (depth < 0 || line < 0) std::fill(to, to + block.columns, pad);
              else gather_line(plane + depth * strides[3] + line * strides[4], columns, block.columns, pad, channel, convert, to);
            }
            finish(k, row);
          }
    }
  }

  // Consecutive elements of a line are converted together, which the compiler vectorizes.
  template <typename T, typename Value, typename Convert>
  void gather_line(const T* line, const std::int32_t* columns, std::int64_t count, Value pad, std::int64_t channel,
                   const Convert& convert, Value* to) const {
    const std::int64_t step = spec_.source.strides[5];
    const bool is_run = step == 1 && columns[0] >= 0 && columns[count - 1] == columns[0] + count - 1;
    if (is_run) {
      const T* from = line + columns[0];
      for (std::int64_t c = 0; c < count; ++c) to[c] = convert(from[c], channel);
      return;
    }
    for (std::int64_t c = 0; c < count; ++c) to[c] = columns[c] < 0 ? pad : convert(line[columns[c] * step], channel);
  }

  void compute(const Run& run, const Block& block, std::uint8_t* scratch) const {
    std::uint8_t* sums = scratch + taps_bytes();
    std::uint8_t* totals = sums + aligned(channels_ * kPositions * 8);
    if (is_float_) {
      compute_float(run, block, reinterpret_cast<double*>(scratch), reinterpret_cast<double*>(sums));
      return;
    }
    auto* taps = reinterpret_cast<std::uint32_t*>(scratch);
    const std::int64_t bias = spec_.source.type == AnyType::kS8 ? kStoredBias : 0;
    const bool is_single = spec_.x_zeros.size() == 1;
    gather<std::uint8_t>(
        run, block, static_cast<std::int16_t>(spec_.pad),
        [&](std::uint8_t x, std::int64_t channel) {
          return static_cast<std::int16_t>(x - static_cast<std::int16_t>(bias + spec_.x_zeros[is_single ? 0 : channel]));
        },
        [&](std::int64_t k, const std::int16_t* row) {
          std::uint32_t* pairs = taps + k / 2 * kPositions;
          if (k % 2 == 0)
            for (std::int64_t p = 0; p < kPositions; ++p) pairs[p] = static_cast<std::uint16_t>(row[p]);
          else
            for (std::int64_t p = 0; p < kPositions; ++p) pairs[p] |= static_cast<std::uint32_t>(static_cast<std::uint16_t>(row[p])) << 16;
        });
    add_pairs(run, block, reinterpret_cast<const std::int32_t*>(scratch), reinterpret_cast<std::int32_t*>(sums),
              reinterpret_cast<std::int64_t*>(totals));
    finish(run, block, reinterpret_cast<std::int64_t*>(totals));
  }

  // Adds the products in chunks whose sums fit 32 bits.
  void add_pairs(const Run& run, const Block& block, const std::int32_t* taps, std::int32_t* sums, std::int64_t* totals) const {
    const auto* weights = reinterpret_cast<const std::int32_t*>(packed_row(run, block.group, 0));
    std::fill(totals, totals + channels_ * kPositions, std::int64_t{0});
    for (std::int64_t start = 0; start < pitch_; start += chunk_) {
      kernels_.pairs(taps + start * kPositions, weights + start, pitch_, std::min(chunk_, pitch_ - start), channels_, sums);
      for (std::int64_t i = 0; i < channels_ * kPositions; ++i) totals[i] += sums[i];
    }
  }

  ConvBias bias_of(const Run& run, std::int64_t group, std::int64_t channel) const {
    ConvBias bias;
    if (spec_.bias) {
      const AnyTensor& tensor = *spec_.bias;
      const std::uint8_t* from = run.at<const std::uint8_t>(tensor.place) +
                                 (group * tensor.strides[0] + channel * tensor.strides[1]) * size_of(tensor.type);
      bias.is_float = is_float(tensor.type);
      bias.is_late = spec_.has_late_bias;
      if (bias.is_float) load_lanes(tensor.type, from, 1, 1, &bias.real);
      else load_lanes(tensor.type, from, 1, 1, &bias.integer);
    }
    if (spec_.rescale.mode != ConvMode::kAsymmetric) return bias;
    return offline_bias(bias, spec_.x_zero * weight_sums(run)[group * spec_.outputs + channel]);
  }

  void finish(const Run& run, const Block& block, std::int64_t* totals) const {
    const std::int64_t count = block.rows * block.columns;
    const std::int64_t* zero_sums = has_zero_row_ ? totals + spec_.outputs * kPositions : nullptr;
    for (std::int64_t c = 0; c < spec_.outputs; ++c) {
      subtract_column_zeros(run, block, c, totals + c * kPositions);
      rescale_sums(spec_.rescale, bias_of(run, block.group, c), zero_sums, count, totals + c * kPositions);
      store_rows(run, block, c, totals + c * kPositions);
    }
  }

  // (x - zero) * w summed is the sum of x * w minus zero times the sum of w.
  void subtract_column_zeros(const Run& run, const Block& block, std::int64_t channel, std::int64_t* totals) const {
    if (spec_.column_zeros.empty()) return;
    const std::int64_t weight_sum = weight_sums(run)[block.group * spec_.outputs + channel];
    for (std::int64_t p = 0; p < block.rows * block.columns; ++p)
      totals[p] -= spec_.column_zeros[block.first_column + p % block.columns] * weight_sum;
  }

  template <typename Lane>
  void store_rows(const Run& run, const Block& block, std::int64_t channel, const Lane* lanes) const {
    const auto& strides = spec_.result.strides;
    for (std::int64_t r = 0; r < block.rows; ++r) {
      const std::int64_t offset = block.image * strides[0] + block.group * strides[1] + channel * strides[2] +
                                  block.plane * strides[3] + (block.first_row + r) * strides[4] + block.first_column * strides[5];
      store_lanes(spec_.result.type, run.at<std::uint8_t>(spec_.result.place) + offset * size_of(spec_.result.type), strides[5],
                  block.columns, lanes + r * block.columns);
    }
  }

  void compute_float(const Run& run, const Block& block, double* taps, double* sums) const {
    const auto finish = [&](std::int64_t k, const double* row) { std::copy(row, row + kPositions, taps + k * kPositions); };
    if (spec_.source.type == AnyType::kF16)
      gather<std::uint16_t>(run, block, 0.0, [](std::uint16_t x, std::int64_t) { return static_cast<double>(half_to_float(x)); }, finish);
    else
      gather<float>(run, block, 0.0, [](float x, std::int64_t) { return static_cast<double>(x); }, finish);
    kernels_.products(taps, reinterpret_cast<const double*>(packed_row(run, block.group, 0)), pitch_, depth_, channels_, sums);
    for (std::int64_t c = 0; c < spec_.outputs; ++c) {
      const ConvBias bias = bias_of(run, block.group, c);
      float lanes[kPositions];
      for (std::int64_t p = 0; p < block.rows * block.columns; ++p) {
        const double sum = spec_.bias ? sums[c * kPositions + p] + static_cast<double>(bias.real) : sums[c * kPositions + p];
        lanes[p] = spec_.result.type == AnyType::kF16 ? round_to_odd(sum) : static_cast<float>(sum);
      }
      store_rows(run, block, c, lanes);
    }
  }

  AnyConvSpec spec_;
  bool is_float_ = false, has_zero_row_ = false;
  std::int64_t depth_ = 0, pitch_ = 0, channels_ = 0, chunk_ = 1;
  std::int64_t columns_ = 1, rows_ = 1, row_blocks_ = 1, column_blocks_ = 1, blocks_ = 1;
  std::array<std::vector<std::int32_t>, 3> indices_;
  ConvRows kernels_{};
  std::vector<Span> spans_;
};

}  // namespace

std::size_t packed_conv_bytes(const AnyConvSpec& spec) {
  const std::int64_t depth = product_of({spec.inputs, spec.kernel[0], spec.kernel[1], spec.kernel[2]});
  const std::int64_t row = spec.rescale.mode == ConvMode::kFloat ? depth * 8 : even(depth) * 2;
  return aligned(product_of({spec.groups, spec.outputs + 1, row})) + aligned(product_of({spec.groups, spec.outputs, 8}));
}

std::shared_ptr<Step> make_any_conv(const AnyConvSpec& spec, Isa isa) { return std::make_shared<AnyConvStep>(spec, isa); }

}  // namespace tpuconvert
