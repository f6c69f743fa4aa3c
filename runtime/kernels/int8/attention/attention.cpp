#include "int8/attention/attention.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace tpuconvert {

namespace {

constexpr std::int64_t kRows = 14;  // rows processed together: about a multiple of the tile height of every kernel

std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

class AttentionInt8Step : public Step {
 public:
  AttentionInt8Step(const AttentionInt8Spec& spec, const MatmulSpans& scores_spans, Isa isa)
      : spec_(spec),
        query_(scores_spans.left),
        key_(scores_spans.right),
        value_(spans_of(spec.values).right),
        output_(spans_of(spec.values).output),
        products_(spec.values),
        scores_(make_matmul_int8_kernel(spec.scores, isa)),
        values_(make_matmul_int8_kernel(spec.values, isa)),
        task_(softmax_quantize_task(spec.scores.columns, spec.probabilities)),
        softmax_(quantize_row_kernels(isa).softmax) {
    const auto columns = static_cast<std::size_t>(spec_.scores.columns);
    key_bytes_ = static_cast<std::size_t>(scores_->blocks()) * scores_->packed_bytes();
    value_bytes_ = static_cast<std::size_t>(values_->blocks()) * values_->packed_bytes();
    tile_bytes_ = std::max(scores_->scratch_bytes(), values_->scratch_bytes());
    score_bytes_ = static_cast<std::size_t>(kRows * spec_.scores.output_row);
    // Includes slack after the last row.
    probability_bytes_ = aligned(static_cast<std::size_t>(kRows * spec_.values.left_row) + kSlack);
    power_bytes_ = aligned((columns + kRowLanes) * sizeof(double));
  }

  void run(const Run& run) const override {
    const int cuts = row_splits(products_.count(), spec_.scores.rows, run.threads());
    run.parallel(products_.count() * cuts, [&](int part, int worker) {
      const int product = part / cuts, cut = part % cuts;
      const std::int64_t rows = spec_.scores.rows;
      this->rows(run, product, rows * cut / cuts, rows * (cut + 1) / cuts, run.scratch(worker));
    });
  }

  std::vector<Span> spans() const override { return {query_, key_, value_, output_}; }
  std::size_t scratch_bytes() const override {
    return key_bytes_ + value_bytes_ + tile_bytes_ + score_bytes_ + probability_bytes_ + power_bytes_;
  }
  const char* kind() const override { return "attention_int8"; }

 private:
  void rows(const Run& run, int product, std::int64_t first, std::int64_t last, std::uint8_t* scratch) const {
    const std::uint8_t* query = run.at<const std::uint8_t>(query_.place) + products_.offset(product, spec_.scores.left_batch);
    const std::uint8_t* key = run.at<const std::uint8_t>(key_.place) + products_.offset(product, spec_.scores.right_batch);
    const std::uint8_t* value = run.at<const std::uint8_t>(value_.place) + products_.offset(product, spec_.values.right_batch);
    std::uint8_t* output = run.at<std::uint8_t>(output_.place) + products_.offset(product, spec_.values.output_batch);

    std::uint8_t* const packed_key = scratch;
    std::uint8_t* const packed_value = packed_key + key_bytes_;
    std::uint8_t* const tile = packed_value + value_bytes_;
    std::uint8_t* const scores = tile + tile_bytes_;
    std::uint8_t* const probabilities = scores + score_bytes_;
    std::uint8_t* const powers = probabilities + probability_bytes_;
    pack(*scores_, key, packed_key);
    pack(*values_, value, packed_value);
    const std::int64_t blocks = (last - first + kRows - 1) / kRows;
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t start = first + (last - first) * block / blocks;
      const std::int64_t count = first + (last - first) * (block + 1) / blocks - start;
      multiply(*scores_, query + start * spec_.scores.left_row, packed_key, scores, count, tile);
      for (std::int64_t row = 0; row < count; ++row)
        softmax(reinterpret_cast<const float*>(scores + row * spec_.scores.output_row),
                probabilities + row * spec_.values.left_row, powers);
      multiply(*values_, probabilities, packed_value, output + start * spec_.values.output_row, count, tile);
    }
  }

  static void pack(const MatmulInt8Kernel& kernel, const std::uint8_t* right, std::uint8_t* packed) {
    for (int block = 0; block < kernel.blocks(); ++block, packed += kernel.packed_bytes()) kernel.pack(right, block, packed);
  }

  static void multiply(const MatmulInt8Kernel& kernel, const std::uint8_t* left, const std::uint8_t* packed,
                       std::uint8_t* output, std::int64_t rows, std::uint8_t* scratch) {
    for (int block = 0; block < kernel.blocks(); ++block, packed += kernel.packed_bytes())
      kernel.multiply(left, block, packed, output, rows, scratch);
  }

  void softmax(const float* scores, std::uint8_t* probabilities, std::uint8_t* powers) const {
    auto* numbers = reinterpret_cast<double*>(powers);
    if (softmax_ == nullptr || !softmax_(task_, scores, probabilities, numbers))
      softmax_quantize_precise(task_, scores, probabilities, numbers);
  }

  AttentionInt8Spec spec_;
  Span query_, key_, value_, output_;
  LeadingAxes products_;
  std::unique_ptr<MatmulInt8Kernel> scores_, values_;
  SoftmaxQuantizeTask task_;
  SoftmaxQuantizeFunction softmax_;
  std::size_t key_bytes_ = 0, value_bytes_ = 0, tile_bytes_ = 0, score_bytes_ = 0, probability_bytes_ = 0,
              power_bytes_ = 0;
};

}  // namespace

std::shared_ptr<Step> make_attention_int8(const AttentionInt8Spec& spec, Isa isa) {
  AttentionInt8Spec own = spec;
  // Between the matmuls, rows are contiguous in scratch memory and aligned to 64 bytes.
  own.scores.output_batch.assign(own.scores.batch.size(), 0);
  own.values.left_batch.assign(own.values.batch.size(), 0);
  check_matmul_int8(own.scores);
  check_matmul_int8(own.values);
  if (own.scores.batch != own.values.batch || own.scores.rows != own.values.rows ||
      own.scores.columns != own.values.depth || !own.scores.epilogue.is_dequantized)
    throw std::invalid_argument("attention_int8: the matmuls do not fit together");
  const auto columns = static_cast<std::size_t>(own.scores.columns);
  own.scores.output_row = static_cast<std::ptrdiff_t>(aligned(columns * sizeof(float)));
  own.values.left_row = static_cast<std::ptrdiff_t>(aligned(columns));
  return std::make_shared<AttentionInt8Step>(own, spans_of(own.scores), isa);
}

}  // namespace tpuconvert
