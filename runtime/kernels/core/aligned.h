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

// Allocates 64-byte aligned memory of undefined content. Huge pages are requested for kHugePage bytes or more: weights
// are read once per run, and with 4 KB pages address translation takes longer than reading the bytes.
std::shared_ptr<std::uint8_t> allocate_aligned(std::size_t bytes);

// Allocates a part of a larger block, which is freed with its last part. The first access to a new page is slow: for a
// thousand small allocations it would take longer than packing the weights. Block sizes double up to a limit, so that
// small plans stay small and a single remaining part keeps little memory alive.
std::shared_ptr<std::uint8_t> allocate_part(std::size_t bytes);

// Returns memory that allocate_part() has reserved for further parts to the system, until it is used. To be called after
// the last step of a plan was made.
void free_unused_parts();

// Zeroed, 64-byte aligned memory with kSlack readable bytes after it.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  AlignedBytes(AlignedBytes&&) = default;  // move-only: copies would share their bytes
  AlignedBytes& operator=(AlignedBytes&&) = default;
  explicit AlignedBytes(std::size_t size) : AlignedBytes(size, allocate_aligned(padded(size))) {
    std::memset(bytes_.get(), 0, size_);
  }

  // Allocates zeroed memory in a block shared with other weights and parameters.
  static AlignedBytes part(std::size_t size) {
    AlignedBytes part = unwritten_part(size);
    std::memset(part.data(), 0, size);
    return part;
  }

  // Like part(), but zeroes only the slack.
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

// GCC defines the macro, Clang has the feature.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TPU_HAS_ADDRESS_SANITIZER
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(TPU_HAS_ADDRESS_SANITIZER)
constexpr bool kGuardsBuffers = true;
#else
constexpr bool kGuardsBuffers = false;
#endif

// Memory of one buffer in a build with AddressSanitizer: 64-byte aligned, with exactly kSlack readable bytes after
// `size`. It is filled with a pattern, so that uninitialized bytes become visible in results.
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
