#include "general/tensor.h"

#include <cmath>
#include <stdexcept>

#include "core/extents.h"

namespace tpuconvert {

namespace {

template <typename T, typename Lane, typename Convert>
void load(const std::uint8_t* from, std::int64_t stride, std::int64_t count, Lane* lanes, Convert convert) {
  const T* x = reinterpret_cast<const T*>(from);
  if (stride == 1) {
    for (std::int64_t i = 0; i < count; ++i) lanes[i] = convert(x[i]);
  } else {
    for (std::int64_t i = 0; i < count; ++i) lanes[i] = convert(x[i * stride]);
  }
}

template <typename T, typename Lane, typename Convert>
void store(std::uint8_t* to, std::int64_t stride, std::int64_t count, const Lane* lanes, Convert convert) {
  T* y = reinterpret_cast<T*>(to);
  if (stride == 1) {
    for (std::int64_t i = 0; i < count; ++i) y[i] = convert(lanes[i]);
  } else {
    for (std::int64_t i = 0; i < count; ++i) y[i * stride] = convert(lanes[i]);
  }
}

template <typename Lane>
void load_integers(AnyType type, const std::uint8_t* from, std::int64_t stride, std::int64_t count, Lane* lanes) {
  const auto plain = [](auto x) { return static_cast<Lane>(x); };
  switch (type) {
    case AnyType::kS8:
      return load<std::uint8_t>(from, stride, count, lanes,
                                [](std::uint8_t x) { return static_cast<Lane>(static_cast<int>(x) - kStoredBias); });
    case AnyType::kU8: return load<std::uint8_t>(from, stride, count, lanes, plain);
    case AnyType::kI16: return load<std::int16_t>(from, stride, count, lanes, plain);
    case AnyType::kU16: return load<std::uint16_t>(from, stride, count, lanes, plain);
    case AnyType::kI32: return load<std::int32_t>(from, stride, count, lanes, plain);
    default: return load<std::uint32_t>(from, stride, count, lanes, plain);
  }
}

template <typename Lane>
void store_integers(AnyType type, std::uint8_t* to, std::int64_t stride, std::int64_t count, const Lane* lanes) {
  const auto truncate = [&](auto zero) {
    using T = decltype(zero);
    store<T>(to, stride, count, lanes, [](Lane x) { return static_cast<T>(x); });
  };
  switch (type) {
    case AnyType::kS8:
      return store<std::uint8_t>(to, stride, count, lanes, [](Lane x) { return static_cast<std::uint8_t>(x + kStoredBias); });
    case AnyType::kU8: return truncate(std::uint8_t{});
    case AnyType::kI16: return truncate(std::int16_t{});
    case AnyType::kU16: return truncate(std::uint16_t{});
    case AnyType::kI32: return truncate(std::int32_t{});
    case AnyType::kU32: return truncate(std::uint32_t{});
    default: throw std::invalid_argument("integers are stored as floats");
  }
}

}  // namespace

AnyType any_type(const std::string& name) {
  constexpr const char* kNames[] = {"s8", "u8", "i16", "u16", "i32", "u32", "f16", "f32"};
  for (int index = 0; index < 8; ++index)
    if (name == kNames[index]) return static_cast<AnyType>(index);
  throw std::invalid_argument("unknown element type '" + name + "'");
}

std::size_t bytes_of(const AnyTensor& tensor, const std::vector<std::int64_t>& shape) {
  if (tensor.strides.size() != shape.size()) throw std::invalid_argument("a tensor does not have one stride per axis");
  std::int64_t last = 0;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] < 1) throw std::invalid_argument("an extent is below 1");
    last += product_of({shape[axis] - 1, tensor.strides[axis]});
    if (last > kMostBytes) throw std::invalid_argument("extents are too large");
  }
  return static_cast<std::size_t>(product_of({last + 1, size_of(tensor.type)}));
}

void load_lanes(AnyType type, const std::uint8_t* from, std::int64_t stride, std::int64_t count, std::int64_t* lanes) {
  load_integers(type, from, stride, count, lanes);
}

void load_lanes(AnyType type, const std::uint8_t* from, std::int64_t stride, std::int64_t count, std::int32_t* lanes) {
  load_integers(type, from, stride, count, lanes);
}

void load_lanes(AnyType type, const std::uint8_t* from, std::int64_t stride, std::int64_t count, float* lanes) {
  if (type == AnyType::kF32) return load<float>(from, stride, count, lanes, [](float x) { return x; });
  if (type == AnyType::kF16) return load<std::uint16_t>(from, stride, count, lanes, half_to_float);
  load_integers(type, from, stride, count, lanes);
}

void store_lanes(AnyType type, std::uint8_t* to, std::int64_t stride, std::int64_t count, const std::int64_t* lanes) {
  store_integers(type, to, stride, count, lanes);
}

void store_lanes(AnyType type, std::uint8_t* to, std::int64_t stride, std::int64_t count, const std::int32_t* lanes) {
  store_integers(type, to, stride, count, lanes);
}

void store_lanes(AnyType type, std::uint8_t* to, std::int64_t stride, std::int64_t count, const float* lanes) {
  if (type == AnyType::kF32) return store<float>(to, stride, count, lanes, [](float x) { return x; });
  if (type == AnyType::kF16) return store<std::uint16_t>(to, stride, count, lanes, float_to_half);
  throw std::invalid_argument("floats are stored as integers");
}

std::int64_t round_half_away(float value) {
  if (std::isnan(value)) return 0;
  const double rounded = std::trunc(static_cast<double>(value) + std::copysign(0.5, static_cast<double>(value)));
  if (rounded >= 2147483647.0) return 2147483647;
  return rounded <= -2147483648.0 ? -2147483648LL : static_cast<std::int64_t>(rounded);
}

}  // namespace tpuconvert
