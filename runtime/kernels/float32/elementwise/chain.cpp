#include "float32/elementwise/chain.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "core/variants.h"

namespace tpuconvert {

namespace {

struct Name {
  const char* name;
  ChainKind kind;
};

constexpr Name kNames[] = {
    {"add", ChainKind::kAdd},
    {"sub", ChainKind::kSub},
    {"rsub", ChainKind::kReverseSub},
    {"mul", ChainKind::kMul},
    {"div", ChainKind::kDiv},
    {"rdiv", ChainKind::kReverseDiv},
    {"max", ChainKind::kMax},
    {"min", ChainKind::kMin},
    {"rmax", ChainKind::kReverseMax},
    {"rmin", ChainKind::kReverseMin},
    {"gt", ChainKind::kGreater},
    {"ge", ChainKind::kGreaterEqual},
    {"lt", ChainKind::kLess},
    {"le", ChainKind::kLessEqual},
    {"eq", ChainKind::kEqual},
    {"ne", ChainKind::kNotEqual},
    {"choose", ChainKind::kSelect},
    {"choose_other", ChainKind::kReverseSelect},
    {"relu", ChainKind::kRelu},
    {"leaky_relu", ChainKind::kLeakyRelu},
    {"clamp", ChainKind::kClamp},
    {"abs", ChainKind::kAbs},
    {"square", ChainKind::kSquare},
    {"sqrt", ChainKind::kSqrt},
    {"rsqrt", ChainKind::kReciprocalSqrt},
    {"round", ChainKind::kRound},
    {"ceil", ChainKind::kCeil},
    {"floor", ChainKind::kFloor},
    {"exp", ChainKind::kExp},
    {"ln", ChainKind::kLog},
    {"sin", ChainKind::kSin},
    {"cos", ChainKind::kCos},
    {"tanh", ChainKind::kTanh},
    {"sigmoid", ChainKind::kSigmoid},
    {"elu", ChainKind::kElu},
    {"gelu", ChainKind::kGelu},
    {"gelu_tanh", ChainKind::kGeluTanh},
    {"silu", ChainKind::kSilu},
    {"hard_sigmoid", ChainKind::kHardSigmoid},
    {"hard_swish", ChainKind::kHardSwish},
    {"softplus", ChainKind::kSoftplus},
    {"mish", ChainKind::kMish},
};

// Minimum number of elements per part: below, starting another thread costs more than it gains.
constexpr std::int64_t kPartElements = 1 << 13;

constexpr std::int64_t kFloat = sizeof(float);

// One axis of the result: its extent and the distance, in elements, of neighbours along the axis in the result (`step`)
// and in every operand (`steps`).
struct Axis {
  std::int64_t extent = 1, step = 1;
  std::vector<std::int64_t> steps;
};

std::int64_t item_bytes(ChainSource source) {
  return source == ChainSource::kReal ? kFloat : source == ChainSource::kByte ? 1 : 2;
}

std::size_t extent_bytes(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides,
                         std::int64_t item) {
  std::int64_t total = item;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    std::int64_t step = 0;
    if (strides[axis] < 0 || strides[axis] % item != 0)
      throw std::invalid_argument("chain_float32: a stride is not possible");
    if (__builtin_mul_overflow(shape[axis] - 1, strides[axis], &step) || __builtin_add_overflow(total, step, &total))
      throw std::invalid_argument("chain_float32: extents are too large");
  }
  return static_cast<std::size_t>(total);
}

class ChainFloatStep final : public Step {
 public:
  ChainFloatStep(const ChainSpec& spec, Isa isa)
      : output_(spec.output), operands_(spec.operands), ops_(spec.ops), start_(spec.start) {
    if (spec.operands.empty() || spec.operands.size() > kMostOperands || spec.ops.empty())
      throw std::invalid_argument("chain_float32: operands or operations are missing, or there are too many");
    for (const ChainOp& op : ops_)
      if (op.operand >= static_cast<int>(operands_.size()))
        throw std::invalid_argument("chain_float32: there is no such operand");
    if (start_.source != ChainSource::kReal) check_integers();
    function_ = spec.is_precise ? chain_kernels(isa).run_precise : chain_kernels(isa).run;
    read_ = chain_kernels(isa).read;
    std::int64_t elements = 1;
    for (const std::int64_t extent : spec.shape)
      if (extent < 1 || __builtin_mul_overflow(elements, extent, &elements) || elements > INT64_MAX / 8)
        throw std::invalid_argument("chain_float32: an extent is not possible");
    elements_ = elements;
    for (const ChainOperand& operand : operands_) {
      if (operand.strides.size() != spec.shape.size())
        throw std::invalid_argument("chain_float32: one stride per axis is needed");
      bytes_.push_back(extent_bytes(spec.shape, operand.strides, item_of(operand)));
    }
    collapse(spec);
    for (std::size_t k = 0; k < operands_.size(); ++k) {
      const std::int64_t step = axes_.back().steps[k];
      if (step != 0 && step != 1) throw std::invalid_argument("chain_float32: elements of a row are not adjacent");
      are_single_[k] = step == 0;
    }
    kind_ = "elementwise_float32";
    if (start_.source == ChainSource::kByte) tabulate();
  }

  void run(const Run& run) const override {
    const std::int64_t inner = axes_.back().extent, outer = elements_ / inner;
    const std::int64_t most = std::min<std::int64_t>(elements_ / kPartElements + 1, run.threads() * 2);
    const int parts = run.threads() == 1 ? 1 : static_cast<int>(most);
    // If there are fewer rows than parts, divide the rows instead.
    const bool divides_rows = outer < parts;
    run.parallel(parts, [&](int part, int) {
      const std::int64_t all = divides_rows ? inner : outer;
      const std::int64_t begin = all * part / parts, end = all * (part + 1) / parts;
      const auto rows = start_.source == ChainSource::kReal   ? &ChainFloatStep::run_rows
                        : start_.source == ChainSource::kByte ? &ChainFloatStep::run_bytes
                                                              : &ChainFloatStep::run_integers;
      if (divides_rows) {
        (this->*rows)(run, 0, outer, begin, end);
      } else {
        (this->*rows)(run, begin, end, 0, inner);
      }
    });
  }

  std::vector<Span> spans() const override {
    std::vector<Span> all{Span::writes(output_, static_cast<std::size_t>(elements_) * sizeof(float), sizeof(float))};
    for (std::size_t k = 0; k < operands_.size(); ++k)
      all.push_back(Span::reads(operands_[k].place, bytes_[k], static_cast<std::size_t>(item_of(operands_[k]))));
    return all;
  }
  const char* kind() const override { return kind_.c_str(); }

 private:
  static constexpr std::size_t kMostOperands = 16;
  static constexpr std::int32_t kLargestZero = 1 << 23;

  std::int64_t item_of(const ChainOperand& operand) const {
    return &operand == operands_.data() ? item_bytes(start_.source) : kFloat;
  }

  // Iterator over the rows of the operands.
  class Rows {
   public:
    Rows(const ChainFloatStep& step, std::int64_t first) : step_(step), next_(first) {}

    // Offsets, in elements, of the next row from the start of every operand.
    const std::int64_t* next() {
      const std::vector<Axis>& axes = step_.axes_;
      const std::size_t count = step_.operands_.size();
      if (left_ > 0) {
        for (std::size_t k = 0; k < count; ++k) at_[k] += axes[axes.size() - 2].steps[k];
      } else {
        std::fill(at_, at_ + count, 0);
        std::int64_t rest = next_;
        left_ = 1;
        for (std::size_t axis = axes.size() - 1; axis-- > 0;) {
          const std::int64_t place = rest % axes[axis].extent;
          rest /= axes[axis].extent;
          for (std::size_t k = 0; k < count; ++k) at_[k] += place * axes[axis].steps[k];
          if (axis + 2 == axes.size()) left_ = axes[axis].extent - place;
        }
      }
      --left_;
      ++next_;
      return at_;
    }

   private:
    const ChainFloatStep& step_;
    std::int64_t next_;
    std::int64_t left_ = 0;  // rows until the index of an outer axis changes
    std::int64_t at_[kMostOperands];
  };

  // Dequantizes integers one block at a time. Consecutive complete rows are contiguous in the result and share blocks.
  void run_integers(const Run& run, std::int64_t first, std::int64_t last, std::int64_t begin, std::int64_t end) const {
    alignas(64) float block[kChainBlock];
    const float* from = block;
    const bool is_single = false;
    const std::int64_t inner = axes_.back().extent, item = item_bytes(start_.source);
    const bool are_whole = end - begin == inner;
    const std::uint8_t* integers = run.at<const std::uint8_t>(operands_[0].place);
    ChainRow row;
    row.ops = ops_.data();
    row.op_count = static_cast<int>(ops_.size());
    row.operands = &from;
    row.are_single = &is_single;
    Rows rows(*this, first);
    for (std::int64_t index = first; index < last; ++index) {
      const std::uint8_t* start = integers + *rows.next() * item;
      if (row.count == 0) row.output = run.at<float>(output_) + index * inner + begin;
      const bool is_end = index + 1 == last || !are_whole;
      for (std::int64_t place = begin; place < end;) {
        const std::int64_t count = std::min(kChainBlock - row.count, end - place);
        read_piece(start, place, count, block + row.count);
        row.count += count;
        place += count;
        if (row.count < kChainBlock && (place < end || !is_end)) continue;
        function_(row);
        row.output += row.count;
        row.count = 0;
      }
    }
  }

  void tabulate() {
    table_.resize(256);
    std::uint8_t bytes[256];
    for (int byte = 0; byte < 256; ++byte) bytes[byte] = static_cast<std::uint8_t>(byte);
    float numbers[256];
    read_(start_, bytes, numbers, 256);
    const float* from = numbers;
    const bool is_single = false;
    function_({ops_.data(), static_cast<int>(ops_.size()), &from, &is_single, table_.data(), 256});
  }

  void run_bytes(const Run& run, std::int64_t first, std::int64_t last, std::int64_t begin, std::int64_t end) const {
    const std::int64_t inner = axes_.back().extent, step = are_single_[0] ? 0 : 1;
    Rows rows(*this, first);
    for (std::int64_t index = first; index < last; ++index) {
      const std::uint8_t* bytes = run.at<const std::uint8_t>(operands_[0].place) + *rows.next();
      float* output = run.at<float>(output_) + index * inner;
      for (std::int64_t place = begin; place < end; ++place) output[place] = table_[bytes[place * step]];
    }
  }

  // Dequantizes `count` elements of the row at `from`, beginning with element `place`.
  void read_piece(const std::uint8_t* from, std::int64_t place, std::int64_t count, float* to) const {
    if (!are_single_[0]) return read_(start_, from + place * item_bytes(start_.source), to, count);
    read_(start_, from, to, 1);
    std::fill(to + 1, to + count, to[0]);
  }

  void check_integers() const {
    if (operands_.size() != 1) throw std::invalid_argument("chain_float32: integers and other operands");
    if (start_.zero <= -kLargestZero || start_.zero >= kLargestZero)
      throw std::invalid_argument("chain_float32: the zero point is too large");
  }

  // Merges adjacent axes that are contiguous in all tensors.
  void collapse(const ChainSpec& spec) {
    std::int64_t step = 1;
    for (std::size_t axis = spec.shape.size(); axis-- > 0;) {
      if (spec.shape[axis] == 1) continue;
      Axis next;
      next.extent = spec.shape[axis];
      next.step = step;
      step *= next.extent;
      for (const ChainOperand& operand : operands_) next.steps.push_back(operand.strides[axis] / item_of(operand));
      bool is_one = !axes_.empty();
      for (std::size_t k = 0; is_one && k < operands_.size(); ++k)
        is_one = next.steps[k] == axes_.front().steps[k] * axes_.front().extent;
      if (is_one) {
        axes_.front().extent *= next.extent;
      } else {
        axes_.insert(axes_.begin(), next);
      }
    }
    if (axes_.empty()) axes_.push_back({1, 1, std::vector<std::int64_t>(operands_.size(), 0)});
  }

  void run_rows(const Run& run, std::int64_t first, std::int64_t last, std::int64_t begin, std::int64_t end) const {
    const std::size_t count = operands_.size();
    const float* starts[kMostOperands];
    const float* rows[kMostOperands];
    for (std::size_t k = 0; k < count; ++k) starts[k] = run.at<const float>(operands_[k].place);
    ChainRow row;
    row.ops = ops_.data();
    row.op_count = static_cast<int>(ops_.size());
    row.operands = rows;
    row.are_single = are_single_;
    row.count = end - begin;
    float* output = run.at<float>(output_);
    Rows starts_of_rows(*this, first);
    for (std::int64_t index = first; index < last; ++index) {
      const std::int64_t* at = starts_of_rows.next();
      for (std::size_t k = 0; k < count; ++k) rows[k] = starts[k] + at[k] + (are_single_[k] ? 0 : begin);
      row.output = output + index * axes_.back().extent + begin;
      function_(row);
    }
  }

  Place output_;
  std::vector<ChainOperand> operands_;
  std::vector<ChainOp> ops_;
  std::vector<std::size_t> bytes_;
  std::vector<Axis> axes_;
  bool are_single_[kMostOperands] = {};
  std::int64_t elements_ = 0;
  ChainStart start_;
  ChainFunction function_ = nullptr;
  ChainReader read_ = nullptr;
  std::vector<float> table_;  // result of the chain for each byte
  std::string kind_;
};

double evaluated(const ChainOp& op, double x) {
  switch (op.kind) {
    case ChainKind::kExp:
      return std::exp(x);
    case ChainKind::kLog:
      return std::log(x);
    case ChainKind::kSin:
      return std::sin(x);
    case ChainKind::kCos:
      return std::cos(x);
    case ChainKind::kTanh:
      return std::tanh(x);
    case ChainKind::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case ChainKind::kElu:
      return x > 0 ? x : std::expm1(x);
    case ChainKind::kGelu:
      return x * 0.5 * std::erfc(-x * std::sqrt(0.5));
    case ChainKind::kGeluTanh:
      return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * (x * x * x))));
    case ChainKind::kSilu:
      return x / (1 + std::exp(-op.a * x));
    case ChainKind::kSoftplus:
      return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x)));
    case ChainKind::kMish:
      return x * std::tanh(std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))));
    default:
      return x;
  }
}

// Functions of the form x * f(x) with limit 0 at -infinity, where direct evaluation gives -infinity * 0 = NaN.
bool vanishes_below(const ChainOp& op) {
  return op.kind == ChainKind::kGelu || op.kind == ChainKind::kGeluTanh || op.kind == ChainKind::kMish ||
         (op.kind == ChainKind::kSilu && op.a > 0);
}

}  // namespace

ChainSource chain_source_named(const std::string& name) {
  if (name == "u8") return ChainSource::kByte;
  if (name == "u16") return ChainSource::kWord;
  if (name == "i16") return ChainSource::kSignedWord;
  throw std::invalid_argument("chain_float32: there are no integers '" + name + "'");
}

ChainKind chain_kind_named(const std::string& name) {
  for (const Name& entry : kNames)
    if (name == entry.name) return entry.kind;
  throw std::invalid_argument("chain_float32: there is no operation '" + name + "'");
}

const ChainKernels& chain_kernels(Isa isa) {
  return TPU_SELECT(isa, kChainScalar, kChainAvx2, kChainAvx512, kChainNeon);
}

void apply_precise(const ChainOp& op, const float* from, float* to, std::int64_t count) {
  const bool vanishes = vanishes_below(op);
  for (std::int64_t i = 0; i < count; ++i) {
    const double x = static_cast<double>(from[i]);
    to[i] = vanishes && std::isinf(x) && x < 0 ? 0.0f : static_cast<float>(evaluated(op, x));
  }
}

std::shared_ptr<Step> make_chain_float(const ChainSpec& spec, Isa isa) {
  return std::make_shared<ChainFloatStep>(spec, isa);
}

}  // namespace tpuconvert
