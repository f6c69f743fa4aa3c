// Memory for packed weights and arenas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "core/step.h"

namespace tpuconvert {

constexpr std::size_t kHugePage = std::size_t{1} << 21;

// Zeroed, 64-byte aligned memory with kSlack readable bytes behind it.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  explicit AlignedBytes(std::size_t size) : size_(size) {
    const std::size_t alignment = size >= kHugePage ? kHugePage : 64;
    const std::size_t needed = size + kSlack;
    const std::size_t whole = (needed + 63) / 64 * 64;
    void* bytes = nullptr;
    if (posix_memalign(&bytes, alignment, whole) != 0) throw std::bad_alloc();
    bytes_.reset(static_cast<std::uint8_t*>(bytes));
#if defined(__linux__)
    // Weights are read once per run: with pages of 4 KB their addresses cost more than their bytes. Only advice.
    if (size >= kHugePage) madvise(bytes, whole, MADV_HUGEPAGE);
#endif
    std::memset(bytes_.get(), 0, whole);
  }

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
  struct Free {
    void operator()(std::uint8_t* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<std::uint8_t[], Free> bytes_;
  std::size_t size_ = 0;
};

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kGuardsBuffers = true;
#else
constexpr bool kGuardsBuffers = false;
#endif

// Memory for one buffer of a build with AddressSanitizer: 64-byte aligned, kSlack readable bytes behind `size`, and not
// one more. Filled with a pattern, so that what nobody wrote is seen in results.
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
