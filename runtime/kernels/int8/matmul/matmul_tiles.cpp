// Matmul of two activations by the register tiles of the convolution for AVX512-VNNI and AMX.
#if defined(__x86_64__)

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "int8/tile/unit.h"
#include "int8/matmul/matmul.h"
#include "int8/matmul/matmul_packing.h"

namespace tpuconvert {

namespace {

using avx512::kAmxAccumulators;
using avx512::kAmxRows;
using avx512::kChunkBytes;
using avx512::kLanes;
using avx512::LaneParameters;
using avx512::TileKernel;
using avx512::TileUnit;

constexpr int kMaxAccumulators = 4;
constexpr int kMaxRows = 2 * kAmxRows;  // rows of the largest tile of any unit
constexpr std::size_t kBlockBytes = 256 * 1024;  // size of a packed block that is used for all rows

constexpr std::uint32_t kNoSkip = 0;

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

struct Panel {
  int first, columns;
  int full;
  bool half;
  TileKernel kernels[kMaxRows];

  int accumulators() const { return full + (half ? 1 : 0); }
};

constexpr int most_accumulators(TileUnit unit) { return unit == TileUnit::kAmx ? kAmxAccumulators : kMaxAccumulators; }

TileKernel tile_kernel(TileUnit unit, int full, bool half, int rows) {
#if defined(TPUCONVERT_HAS_AMX)
  if (unit == TileUnit::kAmx) return avx512::tile_amx(avx512::TileEpilogue::kSums, false, full, rows > kAmxRows);
#endif
  static_cast<void>(unit);
  return avx512::tile_sums(full, half, rows);
}

// Bytes of the depth that one instruction multiplies; the depth has as few of these chunks as possible.
std::size_t chunk_of(std::int64_t depth, TileUnit unit) {
  if (unit == TileUnit::kVnni) return 4;
  const auto bytes = static_cast<std::size_t>(depth);
  const std::size_t chunks = (bytes + kChunkBytes - 1) / kChunkBytes;
  return ((bytes + chunks - 1) / chunks + 3) / 4 * 4;
}

Panel panel_of(std::int64_t first, std::int64_t rest, TileUnit unit) {
  Panel panel{};
  panel.first = static_cast<int>(first);
  panel.columns = static_cast<int>(std::min<std::int64_t>(rest, most_accumulators(unit) * kLanes));
  panel.half = unit == TileUnit::kVnni && rest <= kLanes / 2;
  panel.full = panel.half ? 0 : (panel.columns + kLanes - 1) / kLanes;
  const int most = unit == TileUnit::kAmx ? kMaxRows : avx512::largest_rows(panel.full, panel.half);
  for (int rows = 1; rows <= most; ++rows)
    panel.kernels[rows - 1] = tile_kernel(unit, panel.full, panel.half, rows);
  return panel;
}

class MatmulTiles : public MatmulInt8Kernel {
 public:
  MatmulTiles(const MatmulInt8Spec& spec, TileUnit unit)
      : unit_(unit),
        rows_(unit == TileUnit::kAmx ? kMaxRows : avx512::largest_rows(kMaxAccumulators, false)),
        chunk_(chunk_of(spec.depth, unit)),
        spec_(spec),
        epilogue_(spec.epilogue, static_cast<int>(spec.columns), Isa::kAvx512Vnni),
        constants_(constant_parts(spec, kStoredBias, (spec.columns + kMaxAccumulators * kLanes) / kLanes * kLanes)),
        packed_depth_(static_cast<std::size_t>((spec.depth + 3) / 4 * 4)),
        depth_bytes_((static_cast<std::size_t>(spec.depth) + chunk_ - 1) / chunk_ * chunk_) {
    for (std::int64_t first = 0; first < spec.columns; first += panels_.back().columns)
      panels_.push_back(panel_of(first, spec.columns - first, unit));
    for (const Panel& panel : panels_) {
      std::int32_t* constants = constants_.data() + panel.first;
      for (int i = 0; i < panel.accumulators() * kLanes; ++i) {
        const int lane = avx512::lane_of(i, panel.accumulators());
        if (i < lane) std::swap(constants[i], constants[lane]);
      }
    }
    const std::size_t fitting = kBlockBytes / (depth_bytes_ * static_cast<std::size_t>(most_accumulators(unit)) * kLanes);
    block_ = std::min(panels_.size(), std::max<std::size_t>(1, fitting));
  }

  int blocks() const override { return static_cast<int>((panels_.size() + block_ - 1) / block_); }
  std::size_t packed_bytes() const override { return block_ * panel_bytes(); }
  std::size_t scratch_bytes() const override { return kMaxRows * kAmxAccumulators * kLanes * sizeof(std::int32_t); }

  void pack(const std::uint8_t* right, int block, std::uint8_t* packed) const override {
    for (std::size_t i = first_panel(block); i < first_panel(block + 1); ++i, packed += panel_bytes())
      pack(panels_[i], right, packed + kParameterBytes, reinterpret_cast<LaneParameters*>(packed));
  }

  void multiply(const std::uint8_t* left, int block, const std::uint8_t* packed, std::uint8_t* output,
                std::int64_t rows_in_all, std::uint8_t* scratch) const override {
    auto* sums = reinterpret_cast<std::int32_t*>(scratch);
    const std::uint8_t* inputs[kMaxRows];
    avx512::TileRegisters registers(unit_);
    avx512::TileArguments arguments{};
    arguments.inputs = inputs;
    arguments.segments = 1;
    arguments.segment_bytes = depth_bytes_;
    arguments.skips = &kNoSkip;
    arguments.chunk_bytes = chunk_;
    arguments.sums = sums;
    const std::int64_t tiles = (rows_in_all + rows_ - 1) / rows_;
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      // Tiles have nearly equal heights, because loading the weights takes as long for a low tile as for a high one.
      const std::int64_t start = rows_in_all * tile / tiles;
      const int rows = static_cast<int>(rows_in_all * (tile + 1) / tiles - start);
      arguments.rows = rows;
      // Two blocks of rows for AMX, if there are enough.
      const int second_rows = rows > kAmxRows ? rows / 2 : 0;
      arguments.first_rows = rows - second_rows;
      arguments.second_inputs = inputs + arguments.first_rows;
      registers.configure(arguments.first_rows, second_rows, chunk_);
      std::int32_t corrections[kMaxRows];
      for (int row = 0; row < rows; ++row) {
        inputs[row] = left + (start + row) * spec_.left_row;
        corrections[row] = correction(inputs[row]);
      }
      const std::uint8_t* panel_data = packed;
      for (std::size_t i = first_panel(block); i < first_panel(block + 1); ++i, panel_data += panel_bytes()) {
        const Panel& panel = panels_[i];
        arguments.weights = reinterpret_cast<const std::int8_t*>(panel_data + kParameterBytes);
        arguments.parameters = reinterpret_cast<const LaneParameters*>(panel_data);
        panel.kernels[rows - 1](arguments);
        apply_epilogue(panel, rows, corrections, sums, output + start * spec_.output_row);
      }
    }
  }

 private:
  static constexpr std::size_t kParameterBytes = kMaxAccumulators * sizeof(LaneParameters);
  static_assert(kParameterBytes % 64 == 0, "the packed operand stays aligned");

  std::size_t first_panel(int block) const { return std::min(panels_.size(), static_cast<std::size_t>(block) * block_); }
  std::size_t panel_bytes() const {
    return kParameterBytes + aligned(depth_bytes_ * static_cast<std::size_t>(most_accumulators(unit_)) * kLanes);
  }

  void pack(const Panel& panel, const std::uint8_t* right, std::uint8_t* weights, LaneParameters* parameters) const {
    PackingTask task;
    task.right = right + panel.first * spec_.right_column;
    task.row = spec_.right_row;
    task.column = spec_.right_column;
    task.depth = spec_.depth;
    task.columns = panel.columns;
    task.left_zero = spec_.left_zero;
    task.constants = constants_.data() + panel.first;
    task.weights = weights;
    // The packing writes no steps after the depth.
    const std::size_t step_bytes = static_cast<std::size_t>(64 * panel.full + (panel.half ? 32 : 0));
    std::memset(weights + packed_depth_ / 4 * step_bytes, 0, (depth_bytes_ - packed_depth_) / 4 * step_bytes);
    pack_matmul_avx512vnni(task, panel.full, panel.half, parameters->bias,
                            sizeof(LaneParameters) / sizeof(std::int32_t));
  }

  // Correction of the sums of a row. Bytes of the right operand are packed minus 128 instead of minus right_zero; the
  // difference contributes (128 - right_zero) * sum of the row.
  std::int32_t correction(const std::uint8_t* row) const {
    if (spec_.right_zero == kStoredBias) return 0;
    std::uint32_t sum = 0;  // modulo 2^32, like the accumulators
    for (std::int64_t k = 0; k < spec_.depth; ++k) sum += row[k];
    return static_cast<std::int32_t>(sum * static_cast<std::uint32_t>(kStoredBias - spec_.right_zero));
  }

  void apply_epilogue(const Panel& panel, int rows, const std::int32_t* corrections, std::int32_t* sums,
              std::uint8_t* output) const {
    output += static_cast<std::size_t>(panel.first) * static_cast<std::size_t>(epilogue_.bytes());
    for (int row = 0; row < rows; ++row, sums += panel.accumulators() * kLanes, output += spec_.output_row) {
      if (corrections[row] != 0)
        for (int column = 0; column < panel.columns; ++column)
          sums[column] = static_cast<std::int32_t>(static_cast<std::uint32_t>(sums[column]) +
                                                   static_cast<std::uint32_t>(corrections[row]));
      epilogue_.apply_row(sums, panel.first, panel.columns, output);
    }
  }

  TileUnit unit_;
  int rows_;           // rows of the largest tile
  std::size_t chunk_;  // bytes of the depth that one instruction multiplies
  MatmulInt8Spec spec_;
  Epilogue epilogue_;
  std::vector<std::int32_t> constants_;
  std::size_t packed_depth_;  // bytes of the depth that the packing writes
  std::size_t depth_bytes_;   // rounded up to chunks
  std::vector<Panel> panels_;
  std::size_t block_ = 1;
};

}  // namespace

std::unique_ptr<MatmulInt8Kernel> make_matmul_int8_tiles(const MatmulInt8Spec& spec, Isa isa) {
  return std::make_unique<MatmulTiles>(spec, avx512::tile_unit(isa));
}

}  // namespace tpuconvert

#endif
