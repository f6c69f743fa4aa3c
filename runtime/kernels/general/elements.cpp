#include "general/elements.h"

#include <algorithm>
#include <limits>
#include <map>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "core/extents.h"
#include "general/shifts.h"

namespace tpuconvert {

namespace {

constexpr std::int64_t kLanes = 256;
constexpr std::int64_t kElementsPerPart = 1 << 13;
constexpr int kMostOperands = 4;

template <typename Lane>
using Function = void (*)(const Lane* const* x, Lane* y, std::int64_t count, const AnyElementsSpec& spec);

template <typename Lane>
struct Operation {
  std::size_t operands;
  Function<Lane> function;
};

template <typename Lane, typename Compute>
void each2(const Lane* const* x, Lane* y, std::int64_t count, Compute compute) {
  const Lane *a = x[0], *b = x[1];
  for (std::int64_t i = 0; i < count; ++i) y[i] = compute(a[i], b[i]);
}

// Defines an operation on two operands named a and b.
#define TPU_BINARY(Lane, expression)                                                                        \
  {2, [](const Lane* const* x, Lane* y, std::int64_t count, [[maybe_unused]] const AnyElementsSpec& spec) { \
     each2(x, y, count, [&](Lane a, Lane b) -> Lane { return static_cast<Lane>(expression); });             \
   }}

// Both choices are read, so that the compiler can vectorize the selection.
template <typename Lane, typename Holds>
void choose(const Lane* c, const Lane* d, Lane* y, std::int64_t count, Holds holds) {
  for (std::int64_t i = 0; i < count; ++i) {
    const Lane first = c[i], second = d[i];
    y[i] = holds(i) ? first : second;
  }
}

template <typename Lane>
void select_positive(const Lane* const* x, Lane* y, std::int64_t count, const AnyElementsSpec&) {
  choose(x[1], x[2], y, count, [a = x[0]](std::int64_t i) { return a[i] > 0; });
}

template <typename Lane>
void select_greater(const Lane* const* x, Lane* y, std::int64_t count, const AnyElementsSpec&) {
  choose(x[2], x[3], y, count, [a = x[0], b = x[1]](std::int64_t i) { return a[i] > b[i]; });
}

template <typename Lane>
void select_greater_equal(const Lane* const* x, Lane* y, std::int64_t count, const AnyElementsSpec&) {
  choose(x[2], x[3], y, count, [a = x[0], b = x[1]](std::int64_t i) { return a[i] >= b[i]; });
}

template <typename Lane>
void copy(const Lane* const* x, Lane* y, std::int64_t count, const AnyElementsSpec&) {
  std::copy(x[0], x[0] + count, y);
}

// clamp(x, low, high); NaN stays NaN, and of equal operands the bound is the result, as in the reference.
template <typename Lane>
void clamp(const Lane* const* x, Lane* y, std::int64_t count, const AnyElementsSpec&) {
  for (std::int64_t i = 0; i < count; ++i) {
    const Lane above = x[0][i] > x[1][i] || x[0][i] != x[0][i] ? x[0][i] : x[1][i];
    y[i] = above < x[2][i] || above != above ? above : x[2][i];
  }
}

template <typename Lane>
std::map<std::string, Operation<Lane>> common_operations() {
  return {
      {"gt", TPU_BINARY(Lane, a > b)},
      {"ge", TPU_BINARY(Lane, a >= b)},
      {"lt", TPU_BINARY(Lane, a < b)},
      {"le", TPU_BINARY(Lane, a <= b)},
      {"eq", TPU_BINARY(Lane, a == b)},
      {"ne", TPU_BINARY(Lane, a != b)},
      {"add", TPU_BINARY(Lane, a + b)},
      {"sub", TPU_BINARY(Lane, a - b)},
      {"mul", TPU_BINARY(Lane, a * b)},
      {"max", TPU_BINARY(Lane, a > b || a != a ? a : b)},
      {"min", TPU_BINARY(Lane, a < b || a != a ? a : b)},
      {"select_positive", {3, select_positive<Lane>}},
      {"select_greater", {4, select_greater<Lane>}},
      {"select_greater_equal", {4, select_greater_equal<Lane>}},
      {"copy", {1, copy<Lane>}},
      {"clamp", {3, clamp<Lane>}},
  };
}

template <typename Lane>
const std::map<std::string, Operation<Lane>>& operations();

template <>
const std::map<std::string, Operation<float>>& operations<float>() {
  static const auto table = [] {
    auto found = common_operations<float>();
    found.insert({"div", TPU_BINARY(float, a / b)});
    return found;
  }();
  return table;
}

template <typename Lane>
std::map<std::string, Operation<Lane>> integer_operations() {
  auto found = common_operations<Lane>();
  found.insert({
      {"bit_and", TPU_BINARY(Lane, a & b)},
      {"bit_or", TPU_BINARY(Lane, a | b)},
      {"bit_xor", TPU_BINARY(Lane, a ^ b)},
  });
  return found;
}

template <>
const std::map<std::string, Operation<std::int32_t>>& operations<std::int32_t>() {
  static const auto table = [] {
    auto found = integer_operations<std::int32_t>();
    found.erase("mul");  // may overflow
    return found;
  }();
  return table;
}

template <>
const std::map<std::string, Operation<std::int64_t>>& operations<std::int64_t>() {
  static const auto table = [] {
    auto found = integer_operations<std::int64_t>();
    found.insert({
        {"shift_wrapping", TPU_BINARY(std::int64_t, shift_modulo(a, b))},
        {"shift_wrapping_right", TPU_BINARY(std::int64_t, shift_modulo(a, -b))},
        {"shift_saturating",
         TPU_BINARY(std::int64_t, shift_left(shift_right(a, -b, static_cast<Rounding>(spec.rounding)), b))},
        // Left shifts drop the bits beyond the width; right shifts are rounded and saturated.
        {"shift_logical",
         TPU_BINARY(std::int64_t,
                    b > 0 ? shift_modulo(a, b)
                          : std::clamp(shift_right(a, -b, static_cast<Rounding>(spec.rounding)), spec.low, spec.high))},
        {"shift_rounding_right", TPU_BINARY(std::int64_t, shift_right(a, b, Rounding::kHalfUp))},
    });
    return found;
  }();
  return table;
}

// Operations whose results are stored modulo the range of the type.
bool wraps(const std::string& operation) {
  return operation == "shift_wrapping" || operation == "shift_wrapping_right" || operation == "shift_logical";
}

bool is_mergeable(const AnyElementsSpec& spec, std::size_t outer, std::size_t inner, std::int64_t extent) {
  const auto follows = [&](const AnyTensor& tensor) {
    return tensor.strides[outer] == tensor.strides[inner] * extent;
  };
  return follows(spec.result) && std::all_of(spec.operands.begin(), spec.operands.end(), follows);
}

// Removes axes of extent 1 and merges axes that are contiguous in every tensor, so that inner loops are long.
void merge_axes(AnyElementsSpec& spec) {
  std::vector<AnyTensor*> tensors{&spec.result};
  for (AnyTensor& tensor : spec.operands) tensors.push_back(&tensor);
  for (std::size_t axis = spec.shape.size(); axis-- > 0;) {
    const bool is_single = spec.shape[axis] == 1 && spec.shape.size() > 1;
    const bool is_merged = !is_single && axis + 1 < spec.shape.size() && is_mergeable(spec, axis, axis + 1, spec.shape[axis + 1]);
    if (!is_single && !is_merged) continue;
    if (is_merged) spec.shape[axis + 1] *= spec.shape[axis];
    spec.shape.erase(spec.shape.begin() + static_cast<std::ptrdiff_t>(axis));
    for (AnyTensor* tensor : tensors) tensor->strides.erase(tensor->strides.begin() + static_cast<std::ptrdiff_t>(axis));
  }
}

// The element type whose memory is an array of lanes.
template <typename Lane>
constexpr AnyType kOwnType = std::is_same_v<Lane, float>          ? AnyType::kF32
                             : std::is_same_v<Lane, std::int32_t> ? AnyType::kI32
                                                                  : static_cast<AnyType>(-1);

template <typename Lane>
class AnyElementsStep final : public Step {
 public:
  explicit AnyElementsStep(const AnyElementsSpec& given) : spec_(given) {
    const auto found = operations<Lane>().find(spec_.operation);
    if (found == operations<Lane>().end()) throw std::invalid_argument("unknown operation '" + spec_.operation + "'");
    if (found->second.operands != spec_.operands.size() || spec_.operands.size() > kMostOperands)
      throw std::invalid_argument(spec_.operation + ": wrong number of operands");
    if (spec_.shape.empty() || spec_.rounding < 0 || spec_.rounding > static_cast<int>(Rounding::kHalfDown))
      throw std::invalid_argument(spec_.operation + ": no axes, or an unknown rounding mode");
    constexpr bool kIsFloat = std::is_same_v<Lane, float>;
    // Sums of 16-bit numbers fit 32 bits, and so does what only compares or selects numbers of 32 bits.
    const bool adds = spec_.operation == "add" || spec_.operation == "sub";
    for (const AnyTensor& tensor : spec_.operands) {
      if (!kIsFloat && is_float(tensor.type)) throw std::invalid_argument(spec_.operation + ": a float among integers");
      if (std::is_same_v<Lane, std::int32_t> && (tensor.type == AnyType::kU32 || (adds && size_of(tensor.type) > 2)))
        throw std::invalid_argument(spec_.operation + ": 32 bits are too few");
      spans_.push_back(Span::reads(tensor.place, bytes_of(tensor, spec_.shape), static_cast<std::size_t>(size_of(tensor.type))));
    }
    if (!kIsFloat && is_float(spec_.result.type)) throw std::invalid_argument(spec_.operation + ": a float result of integers");
    spans_.push_back(Span::writes(spec_.result.place, bytes_of(spec_.result, spec_.shape),
                                  static_cast<std::size_t>(size_of(spec_.result.type))));
    function_ = found->second.function;
    wraps_ = wraps(spec_.operation);
    merge_axes(spec_);
    inner_ = spec_.shape.back();
    blocks_ = (inner_ + kLanes - 1) / kLanes;
    rows_ = 1;
    for (std::size_t axis = 0; axis + 1 < spec_.shape.size(); ++axis) rows_ = product_of({rows_, spec_.shape[axis]});
  }

  void run(const Run& run) const override {
    const std::int64_t all = rows_ * blocks_;
    const std::int64_t useful = std::max<std::int64_t>(1, rows_ * inner_ / kElementsPerPart);
    const std::int64_t parts = run.threads() == 1 ? 1 : std::min({all, useful, std::int64_t{2} * run.threads()});
    run.parallel(static_cast<int>(parts), [&](int part, int) {
      for (std::int64_t block = all * part / parts; block < all * (part + 1) / parts; ++block) compute(run, block);
    });
  }

  std::vector<Span> spans() const override { return spans_; }
  const char* kind() const override { return "any_elements"; }

 private:
  void compute(const Run& run, std::int64_t block) const {
    const std::int64_t row = block / blocks_, start = block % blocks_ * kLanes;
    const std::int64_t count = std::min(kLanes, inner_ - start);
    Lane lanes[kMostOperands][kLanes], y[kLanes];
    const Lane* x[kMostOperands];
    for (std::size_t k = 0; k < spec_.operands.size(); ++k) {
      const AnyTensor& tensor = spec_.operands[k];
      const std::uint8_t* from = run.at<const std::uint8_t>(tensor.place) + offset(tensor, row, start) * size_of(tensor.type);
      if (tensor.type == kOwnType<Lane> && tensor.strides.back() == 1) {
        x[k] = reinterpret_cast<const Lane*>(from);
        continue;
      }
      load_lanes(tensor.type, from, tensor.strides.back(), count, lanes[k]);
      x[k] = lanes[k];
    }
    function_(x, y, count, spec_);
    std::uint8_t* to = run.at<std::uint8_t>(spec_.result.place) + offset(spec_.result, row, start) * size_of(spec_.result.type);
    store(to, y, count);
  }

  template <typename Integer>
  void store(std::uint8_t* to, Integer* y, std::int64_t count) const {
    const auto low = static_cast<Integer>(std::max<std::int64_t>(spec_.low, std::numeric_limits<Integer>::min()));
    const auto high = static_cast<Integer>(std::min<std::int64_t>(spec_.high, std::numeric_limits<Integer>::max()));
    if (!wraps_)
      for (std::int64_t i = 0; i < count; ++i) y[i] = std::min(std::max(y[i], low), high);
    store_lanes(spec_.result.type, to, spec_.result.strides.back(), count, y);
  }

  void store(std::uint8_t* to, float* y, std::int64_t count) const {
    if (is_float(spec_.result.type)) return store_lanes(spec_.result.type, to, spec_.result.strides.back(), count, y);
    std::int64_t integers[kLanes];
    for (std::int64_t i = 0; i < count; ++i) integers[i] = std::clamp(round_half_away(y[i]), spec_.low, spec_.high);
    store_lanes(spec_.result.type, to, spec_.result.strides.back(), count, integers);
  }

  std::int64_t offset(const AnyTensor& tensor, std::int64_t row, std::int64_t start) const {
    std::int64_t elements = start * tensor.strides.back();
    for (std::size_t axis = spec_.shape.size() - 1; axis-- > 0;) {
      elements += row % spec_.shape[axis] * tensor.strides[axis];
      row /= spec_.shape[axis];
    }
    return elements;
  }

  AnyElementsSpec spec_;
  Function<Lane> function_ = nullptr;
  bool wraps_ = false;
  std::int64_t inner_ = 1, blocks_ = 1, rows_ = 1;
  std::vector<Span> spans_;
};

}  // namespace

std::shared_ptr<Step> make_any_elements(const AnyElementsSpec& spec) {
  if (spec.low > spec.high) throw std::invalid_argument("any_elements: low is above high");
  if (spec.domain == "integer") return std::make_shared<AnyElementsStep<std::int64_t>>(spec);
  if (spec.domain == "small integer") return std::make_shared<AnyElementsStep<std::int32_t>>(spec);
  if (spec.domain == "float") return std::make_shared<AnyElementsStep<float>>(spec);
  throw std::invalid_argument("any_elements: unknown domain '" + spec.domain + "'");
}

}  // namespace tpuconvert
