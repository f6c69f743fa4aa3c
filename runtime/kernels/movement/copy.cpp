#include "movement/copy.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "core/extents.h"
#include "movement/transpose.h"

namespace tpuconvert {

namespace {

// Bytes from the start of the first element to the end of the last one.
std::size_t extent_of(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides, int itemsize) {
  std::int64_t last = 0;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 0) return 0;
    if (shape[axis] < 0 || strides[axis] < 0) throw std::invalid_argument("copy: negative extent or stride");
    std::int64_t step = 0;
    if (__builtin_mul_overflow(shape[axis] - 1, strides[axis], &step) || __builtin_add_overflow(last, step, &last))
      throw std::invalid_argument("copy: extents are too large");
  }
  return static_cast<std::size_t>(last) + static_cast<std::size_t>(itemsize);
}

struct Axis {
  std::int64_t extent, from, to;
};

constexpr std::int64_t kBytesPerPart = 1 << 15;

template <typename T>
void copy_row(const std::uint8_t* __restrict from_bytes, std::uint8_t* __restrict to_bytes, const Axis& axis, T flip) {
  const std::int64_t extent = axis.extent, from_step = axis.from, to_step = axis.to;
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));
  const T* __restrict from = reinterpret_cast<const T*>(from_bytes);
  T* __restrict to = reinterpret_cast<T*>(to_bytes);
  if (from_step == kSize && to_step == kSize) {
    for (std::int64_t index = 0; index < extent; ++index) to[index] = static_cast<T>(from[index] ^ flip);
  } else if (from_step == 0 && to_step == kSize) {
    const T value = static_cast<T>(*from ^ flip);
    for (std::int64_t index = 0; index < extent; ++index) to[index] = value;
  } else {
    for (std::int64_t index = 0; index < extent; ++index)
      to[index * to_step / kSize] = static_cast<T>(from[index * from_step / kSize] ^ flip);
  }
}

class CopyStep final : public Step {
 public:
  explicit CopyStep(const CopySpec& spec) : source_(spec.source), target_(spec.target), itemsize_(spec.itemsize) {
    if (spec.shape.size() != spec.source_strides.size() || spec.shape.size() != spec.target_strides.size())
      throw std::invalid_argument("copy: one stride per axis is needed");
    if (itemsize_ != 1 && itemsize_ != 2 && itemsize_ != 4) throw std::invalid_argument("copy: elements of 1, 2, 4 bytes");
    flip_ = static_cast<std::uint8_t>(spec.flip);
    source_bytes_ = extent_of(spec.shape, spec.source_strides, itemsize_);
    target_bytes_ = extent_of(spec.shape, spec.target_strides, itemsize_);
    bytes_ = itemsize_;
    for (std::size_t axis = 0; axis < spec.shape.size(); ++axis) {
      if (spec.shape[axis] > 1 && spec.target_strides[axis] == 0)
        throw std::invalid_argument("copy: elements are written more than once");
      if (spec.source_strides[axis] % itemsize_ != 0 || spec.target_strides[axis] % itemsize_ != 0)
        throw std::invalid_argument("copy: a stride is not a multiple of the element");
      bytes_ = product_of({bytes_, spec.shape[axis]});
      product_of({spec.shape[axis], std::max(spec.source_strides[axis], spec.target_strides[axis])});
    }
    for (std::size_t axis = 0; axis < spec.shape.size(); ++axis)
      if (spec.shape[axis] != 1) axes_.push_back({spec.shape[axis], spec.source_strides[axis], spec.target_strides[axis]});
    if (source_bytes_ == 0) return;
    if (source_.buffer == target_.buffer && source_.offset < target_.offset + target_bytes_ &&
        target_.offset < source_.offset + source_bytes_)
      throw std::invalid_argument("copy: a tensor is copied over itself");
    arrange();
  }

  void run(const Run& run) const override {
    if (source_bytes_ == 0) return;
    const std::uint8_t* from = run.at<const std::uint8_t>(source_);
    std::uint8_t* to = run.at<std::uint8_t>(target_);
    const Axis& whole = axes_[split_];
    const std::int64_t useful = std::max<std::int64_t>(1, bytes_ / kBytesPerPart);
    const std::int64_t parts =
        run.threads() == 1 ? 1 : std::min({whole.extent, useful, static_cast<std::int64_t>(2 * run.threads())});
    run.parallel(static_cast<int>(parts), [&](int part, int) {
      const std::int64_t first = whole.extent * part / parts, last = whole.extent * (part + 1) / parts;
      copy_axis(from + first * whole.from, to + first * whole.to, 0, last - first);
    });
  }

  std::vector<Span> spans() const override {
    const auto item = static_cast<std::size_t>(itemsize_);
    return {Span::reads(source_, source_bytes_, item), Span::writes(target_, target_bytes_, item)};
  }
  const char* kind() const override { return transposes_ ? "transpose" : "copy"; }

 private:
  // Sorts the axes so that the target is written in ascending order, and merges adjacent axes that are contiguous in
  // both tensors.
  void arrange() {
    std::stable_sort(axes_.begin(), axes_.end(), [](const Axis& a, const Axis& b) { return a.to > b.to; });
    for (std::size_t axis = axes_.size(); axis-- > 1;) {
      Axis& outer = axes_[axis - 1];
      const Axis& inner = axes_[axis];
      if (outer.from == inner.from * inner.extent && outer.to == inner.to * inner.extent) {
        outer = {outer.extent * inner.extent, inner.from, inner.to};
        axes_.erase(axes_.begin() + static_cast<std::ptrdiff_t>(axis));
      }
    }
    if (axes_.empty()) axes_.push_back({1, itemsize_, itemsize_});
    // If source and target have different fastest axes, make these two the innermost axes: each pair is a matrix to
    // transpose.
    const Axis inner = axes_.back();
    if (inner.to == itemsize_ && inner.from != itemsize_ && inner.from != 0) {
      for (std::size_t axis = 0; axis + 1 < axes_.size(); ++axis) {
        if (axes_[axis].from != itemsize_) continue;
        std::rotate(axes_.begin() + static_cast<std::ptrdiff_t>(axis), axes_.begin() + static_cast<std::ptrdiff_t>(axis) + 1,
                    axes_.end() - 1);
        transposes_ = true;
        break;
      }
    }
    bytes_ = itemsize_;
    for (const Axis& axis : axes_) bytes_ *= axis.extent;
    for (std::size_t axis = 0; axis < axes_.size(); ++axis)
      if (axes_[axis].extent > axes_[split_].extent) split_ = axis;
  }

  // `share` is the extent of the split axis in this call.
  void copy_axis(const std::uint8_t* from, std::uint8_t* to, std::size_t index, std::int64_t share) const {
    Axis axis = axes_[index];
    if (index == split_) axis.extent = share;
    if (transposes_ && index + 2 == axes_.size()) {
      Axis inner = axes_[index + 1];
      if (index + 1 == split_) inner.extent = share;
      const Transposition shape{inner.extent, axis.extent, inner.from, axis.to};
      if (itemsize_ == 1) return transpose<std::uint8_t>(from, to, shape, flip_);
      if (itemsize_ == 2) return transpose<std::uint16_t>(from, to, shape, 0);
      return transpose<std::uint32_t>(from, to, shape, 0);
    }
    if (index + 1 < axes_.size()) {
      for (std::int64_t item = 0; item < axis.extent; ++item)
        copy_axis(from + item * axis.from, to + item * axis.to, index + 1, share);
      return;
    }
    if (axis.from == itemsize_ && axis.to == itemsize_ && flip_ == 0) {
      std::memcpy(to, from, static_cast<std::size_t>(axis.extent) * static_cast<std::size_t>(itemsize_));
    } else if (itemsize_ == 1) {
      copy_row<std::uint8_t>(from, to, axis, flip_);
    } else if (itemsize_ == 2) {
      copy_row<std::uint16_t>(from, to, axis, 0);
    } else {
      copy_row<std::uint32_t>(from, to, axis, 0);
    }
  }

  Place source_, target_;
  int itemsize_;
  std::uint8_t flip_ = 0;
  bool transposes_ = false;
  std::size_t source_bytes_ = 0, target_bytes_ = 0;
  std::int64_t bytes_ = 0;
  std::size_t split_ = 0;  // index of the longest axis, which is divided among threads
  std::vector<Axis> axes_;
};

}  // namespace

std::shared_ptr<Step> make_copy(const CopySpec& spec) { return std::make_shared<CopyStep>(spec); }

}  // namespace tpuconvert
