// Matmul of two activations by the panels of the convolution.
#if defined(__x86_64__) || defined(__aarch64__)

#include <algorithm>
#include <vector>

#include "int8/conv/panel_kernels.h"
#include "int8/matmul/matmul.h"
#include "int8/matmul/matmul_packing.h"

namespace tpuconvert {

namespace {

using panels::kColumns;
using panels::kRows;
using panels::kStepBytes;

constexpr std::size_t kBlockBytes = 256 * 1024;  // size of a packed block that is used for all rows

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

class MatmulPanels : public MatmulInt8Kernel {
 public:
  MatmulPanels(const MatmulInt8Spec& spec, const panels::Functions& functions)
      : spec_(spec),
        functions_(functions),
        epilogue_(spec.epilogue, static_cast<int>(spec.columns), panels::kIsAarch64 ? Isa::kNeon : Isa::kAvx2),
        has_bytes_(functions.has_byte_dot),
        panels_(static_cast<std::size_t>((spec.columns + kColumns - 1) / kColumns)),
        steps_(steps_of(spec.depth, functions)),
        constants_(constant_parts(spec, has_bytes_ ? kStoredBias : spec.right_zero,
                                  static_cast<std::int64_t>(panels_) * kColumns)),
        block_(std::min(panels_, std::max<std::size_t>(1, kBlockBytes / panel_bytes()))) {}

  int blocks() const override { return static_cast<int>((panels_ + block_ - 1) / block_); }
  std::size_t packed_bytes() const override { return (block_ * panel_bytes() + 63) / 64 * 64; }
  std::size_t scratch_bytes() const override { return kSumBytes + widened_bytes(); }

  void pack(const std::uint8_t* right, int block, std::uint8_t* packed) const override {
    for (std::size_t panel = first_panel(block); panel < first_panel(block + 1); ++panel, packed += panel_bytes())
      pack(panel, right, packed + sizeof(panels::ColumnParameters),
           reinterpret_cast<panels::ColumnParameters*>(packed)->bias);
  }

  void multiply(const std::uint8_t* left, int block, const std::uint8_t* packed, std::uint8_t* output,
                std::int64_t rows_in_all, std::uint8_t* scratch) const override {
    auto* sums = reinterpret_cast<std::int32_t*>(scratch);
    std::uint8_t* const widened = scratch + kSumBytes;
    const std::uint8_t* inputs[kRows];
    for (std::int64_t start = 0; start < rows_in_all; start += kRows) {
      const int rows = static_cast<int>(std::min<std::int64_t>(kRows, rows_in_all - start));
      std::int32_t corrections[kRows];
      for (int row = 0; row < rows; ++row) {
        const std::uint8_t* from = left + (start + row) * spec_.left_row;
        corrections[row] = correction(from);
        inputs[row] = has_bytes_ ? from : widen(from, widened + static_cast<std::size_t>(row) * row_bytes());
      }
      const std::uint8_t* panel_data = packed;
      for (std::size_t panel = first_panel(block); panel < first_panel(block + 1); ++panel, panel_data += panel_bytes()) {
        functions_.multiply[rows - 1](inputs, 1, static_cast<std::ptrdiff_t>(row_bytes()), 0,
                                      panel_data + sizeof(panels::ColumnParameters), sums);
        functions_.add_bias(sums, rows, *reinterpret_cast<const panels::ColumnParameters*>(panel_data));
        apply_epilogue(panel, rows, corrections, sums, output + start * spec_.output_row);
      }
    }
  }

 private:
  static constexpr std::size_t kSumBytes = kRows * kColumns * sizeof(std::int32_t);
  static_assert(sizeof(panels::ColumnParameters) % 32 == 0, "the packed operand stays aligned");

  // Steps of four bytes of depth, of which a dot product may take two.
  static std::size_t steps_of(std::int64_t depth, const panels::Functions& functions) {
    const std::int64_t unit = functions.has_byte_dot ? functions.byte_unit : 2;
    return static_cast<std::size_t>((depth + unit - 1) / unit * unit / (functions.has_byte_dot ? 4 : 2));
  }

  std::size_t first_panel(int block) const { return std::min(panels_, static_cast<std::size_t>(block) * block_); }
  std::size_t panel_bytes() const { return sizeof(panels::ColumnParameters) + steps_ * kStepBytes; }
  std::size_t row_bytes() const { return steps_ * 4; }
  std::size_t widened_bytes() const { return has_bytes_ ? 0 : aligned(kRows * row_bytes()); }

  const std::uint8_t* widen(const std::uint8_t* from, std::uint8_t* to) const {
    functions_.widen(from, spec_.depth, to);
    if (spec_.depth % 2 != 0) to[2 * spec_.depth] = to[2 * spec_.depth + 1] = 0;
    return to;
  }

  void pack(std::size_t panel, const std::uint8_t* right, std::uint8_t* weights, std::int32_t* biases) const {
    const auto first = static_cast<std::int64_t>(panel) * kColumns;
    PackingTask task;
    task.right = right + first * spec_.right_column;
    task.row = spec_.right_row;
    task.column = spec_.right_column;
    task.depth = spec_.depth;
    task.columns = static_cast<int>(std::min<std::int64_t>(kColumns, spec_.columns - first));
    task.left_zero = spec_.left_zero - (has_bytes_ ? functions_.byte_offset : 0);
    task.constants = constants_.data() + first;
    task.weights = weights;
#if defined(__aarch64__)
    if (has_bytes_) return pack_matmul_bytes_neon(task, functions_.byte_unit, biases);
    pack_matmul_words_neon(task, spec_.right_zero, biases);
#else
    if (has_bytes_) return pack_matmul_bytes_avx2(task, biases);
    pack_matmul_words_avx2(task, spec_.right_zero, biases);
#endif
  }

  // Correction of the sums of a row. Bytes of the right operand are packed minus 128 instead of minus right_zero; the
  // difference contributes (128 - right_zero) * sum of the row. Words are packed minus right_zero and need no
  // correction.
  std::int32_t correction(const std::uint8_t* row) const {
    if (!has_bytes_ || spec_.right_zero == kStoredBias) return 0;
    std::uint32_t sum = 0;  // modulo 2^32, like the accumulators
    for (std::int64_t k = 0; k < spec_.depth; ++k) sum += row[k];
    return static_cast<std::int32_t>(sum * static_cast<std::uint32_t>(kStoredBias - spec_.right_zero));
  }

  void apply_epilogue(std::size_t panel, int rows, const std::int32_t* corrections, std::int32_t* sums,
              std::uint8_t* output) const {
    const int first = static_cast<int>(panel) * kColumns;
    const int columns = std::min(kColumns, static_cast<int>(spec_.columns) - first);
    output += static_cast<std::size_t>(first) * static_cast<std::size_t>(epilogue_.bytes());
    for (int row = 0; row < rows; ++row, sums += kColumns, output += spec_.output_row) {
      if (corrections[row] != 0)
        for (int column = 0; column < columns; ++column)
          sums[column] = static_cast<std::int32_t>(static_cast<std::uint32_t>(sums[column]) +
                                                   static_cast<std::uint32_t>(corrections[row]));
      epilogue_.apply_row(sums, first, columns, output);
    }
  }

  MatmulInt8Spec spec_;
  const panels::Functions& functions_;
  Epilogue epilogue_;
  bool has_bytes_;
  std::size_t panels_, steps_;
  std::vector<std::int32_t> constants_;
  std::size_t block_;
};

}  // namespace

std::unique_ptr<MatmulInt8Kernel> make_matmul_int8_panels(const MatmulInt8Spec& spec, Isa isa) {
  return std::make_unique<MatmulPanels>(spec, panels::functions_of(isa));
}

}  // namespace tpuconvert

#endif
