#include "int8/quantize/quantize_rows.h"

#include <cmath>
#include <stdexcept>

#include "core/isa.h"
#include "core/variants.h"

namespace tpuconvert {

namespace {

constexpr std::int64_t kLongest = 1 << 20;
constexpr std::int32_t kFarthest = 1 << 16;

void quantize_row(const ByteQuantization& to, const float* x, std::int64_t count, std::uint8_t* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = quantize_value(x[i], to);
}

void add_row(const float* a, const float* b, std::int64_t count, float* sum) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
}

}  // namespace

std::uint8_t quantize_value(float real, const ByteQuantization& to) {
  // Values beyond 2^20 are clamped anyway, because |offset| is at most 2^16.
  const double scaled = static_cast<double>(real * to.scale);
  const double limited = scaled != scaled ? 0.0 : scaled > 0x1p20 ? 0x1p20 : scaled < -0x1p20 ? -0x1p20 : scaled;
  const int stored = static_cast<int>(limited + (limited < 0 ? -0.5 : 0.5)) + to.offset;
  return static_cast<std::uint8_t>(stored < to.low ? to.low : stored > to.high ? to.high : stored);
}

void check_quantization(const ByteQuantization& to) {
  if (!(to.scale >= 0x1p-10f && to.scale <= 0x1p20f))
    throw std::invalid_argument("quantize_rows: the scale is outside of 2^-10..2^20");
  if (to.offset < -kFarthest || to.offset > kFarthest || to.low < 0 || to.high > 255 || to.low > to.high)
    throw std::invalid_argument("quantize_rows: offset and limits do not fit a byte");
}

void softmax_quantize_precise(const SoftmaxQuantizeTask& task, const float* x, std::uint8_t* y, double* powers) {
  const std::int64_t count = task.count;
  float most = x[0];
  for (std::int64_t i = 1; i < count; ++i) most = x[i] > most || x[i] != x[i] ? x[i] : most;
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    powers[i] = std::exp(static_cast<double>(x[i]) - static_cast<double>(most));
    sum += powers[i];
  }
  for (std::int64_t i = 0; i < count; ++i) y[i] = quantize_value(static_cast<float>(powers[i] / sum), task.to);
}

// Bounds the relative error of probability * scale in units of 2^-24. Only products near one half or above matter,
// where x is at most ln(2.5 * scale) below the largest element. The contributions are:
//   - 1.25 * ln(2.5 * scale) for the roundings of the exponent and of its base, and 4.2 for the power;
//   - for the sum: count / 8 + 8 for its additions, 4.2 for its powers, and 1.25 * ln(count) for their exponents, whose
//     errors are weighted with the powers and therefore at most 1.25 times the entropy;
//   - 4 for the quotient, the product, and the two roundings of the definition.
SoftmaxQuantizeTask softmax_quantize_task(std::int64_t count, const ByteQuantization& to) {
  if (count < 1 || count > kLongest) throw std::invalid_argument("softmax_quantize: rows of 1 to 2^20 elements");
  check_quantization(to);
  SoftmaxQuantizeTask task{count, to, 0.0f};
  const double farthest = std::fmax(0.0, std::log(2.5 * static_cast<double>(to.scale)));
  const double length = static_cast<double>(count);
  const double units = 1.25 * (farthest + std::log(length)) + length / 8 + 8 + 2 * 4.2 + 4;
  task.error_bound = static_cast<float>(1.1 * units * 0x1p-24);
  // The products of a row sum to the scale, and each one is ambiguous with a probability of twice its error.
  task.is_often_ambiguous = 2 * static_cast<double>(task.error_bound) * static_cast<double>(to.scale) > 0.3;
  return task;
}

const QuantizeRowKernels kQuantizeRowsScalar{nullptr, nullptr, quantize_row, add_row};

const QuantizeRowKernels& quantize_row_kernels(Isa isa) {
  return TPU_SELECT(isa, kQuantizeRowsScalar, kQuantizeRowsAvx2, kQuantizeRowsAvx512, kQuantizeRowsNeon);
}

}  // namespace tpuconvert
