// Memory for packed weights and arenas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "core/step.h"

namespace tpuconvert {

constexpr std::size_t kHugePage = std::size_t{1} << 21;

// 64-byte aligned memory of undefined content. From kHugePage on it is advised to be of huge pages: weights are read
// once per run, and with pages of 4 KB their addresses cost more than their bytes.
std::shared_ptr<std::uint8_t> allocate_aligned(std::size_t bytes);

// The same as a part of larger pieces, which live as long as one of their parts: a thousand pages that are touched for
// the first time take longer than packing the weights that go there. The pieces double in size up to a limit, so that
// small plans stay small, and a part keeps no more than that alive.
std::shared_ptr<std::uint8_t> allocate_part(std::size_t bytes);

// Zeroed, 64-byte aligned memory with kSlack readable bytes after it.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  AlignedBytes(AlignedBytes&&) = default;  // not copied: copies would share their bytes
  AlignedBytes& operator=(AlignedBytes&&) = default;
  explicit AlignedBytes(std::size_t size) : AlignedBytes(size, allocate_aligned(padded(size))) {
    std::memset(bytes_.get(), 0, size_);
  }

  // In one piece with other weights and parameters.
  static AlignedBytes part(std::size_t size) {
    AlignedBytes part = unwritten_part(size);
    std::memset(part.data(), 0, size);
    return part;
  }

  // The same; only the slack is zeroed.
  static AlignedBytes unwritten_part(std::size_t size) { return {size, allocate_part(padded(size))}; }

  std::uint8_t* data() { return bytes_.get(); }
  const std::uint8_t* data() const { return bytes_.get(); }
  std::size_t size() const { return size_; }

  template <typename T>
  T* as(std::size_t offset = 0) {
    return reinterpret_cast<T*>(bytes_.get() + offset);
  }
  template <typename T>
  const T* as(std::size_t offset = 0) const {
    return reinterpret_cast<const T*>(bytes_.get() + offset);
  }

 private:
  AlignedBytes(std::size_t size, std::shared_ptr<std::uint8_t> bytes) : bytes_(std::move(bytes)), size_(size) {
    std::memset(bytes_.get() + size, 0, padded(size) - size);
  }

  static std::size_t padded(std::size_t size) { return (size + kSlack + 63) / 64 * 64; }

  std::shared_ptr<std::uint8_t> bytes_;
  std::size_t size_ = 0;
};

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kGuardsBuffers = true;
#else
constexpr bool kGuardsBuffers = false;
#endif

// Memory for one buffer of a build with AddressSanitizer: 64-byte aligned, exactly kSlack readable bytes
// after `size`. Filled with a pattern, so that uninitialized bytes show in results.
class GuardedBytes {
 public:
  static constexpr std::uint8_t kPattern = 0xA5;

  explicit GuardedBytes(std::size_t size) : size_(size), bytes_(new (std::align_val_t(64)) std::uint8_t[size + kSlack]) {
    std::memset(bytes_.get(), kPattern, size + kSlack);
  }

  std::uint8_t* data() { return bytes_.get(); }

  bool is_slack_untouched() const {
    for (std::size_t index = size_; index < size_ + kSlack; ++index)
      if (bytes_[index] != kPattern) return false;
    return true;
  }

 private:
  struct Free {
    void operator()(std::uint8_t* bytes) const { ::operator delete[](bytes, std::align_val_t(64)); }
  };
  std::size_t size_;
  std::unique_ptr<std::uint8_t[], Free> bytes_;
};

}  // namespace tpuconvert
