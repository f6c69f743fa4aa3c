#include "core/aligned.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>

#if defined(_WIN32)
#include <malloc.h>
#elif defined(__linux__)
#include <sys/mman.h>
#endif

namespace tpuconvert {

namespace {

constexpr std::size_t kSmallestPiece = 256 * 1024, kLargestPiece = 8 * 1024 * 1024;

// The block of memory that allocate_part() divides. Every part shares ownership of it, so it is freed with the last
// part.
struct Piece {
  std::mutex mutex;
  std::weak_ptr<std::uint8_t> memory;
  std::size_t size = 0;
  std::size_t taken = 0;
};

Piece& current_piece() {
  static Piece piece;
  return piece;
}

// Returns the pages after the used part of a piece to the system: writing to a huge page has allocated all of it.
void free_tail(const Piece& piece, const std::shared_ptr<std::uint8_t>& memory) {
#if defined(__linux__)
  constexpr std::size_t kPage = 4096;
  if (!memory || piece.size < kHugePage) return;
  const std::size_t used = (piece.taken + kPage - 1) / kPage * kPage, end = piece.size / kPage * kPage;
  if (used < end) madvise(memory.get() + used, end - used, MADV_DONTNEED);
#else
  static_cast<void>(piece), static_cast<void>(memory);
#endif
}

}  // namespace

std::shared_ptr<std::uint8_t> allocate_aligned(std::size_t bytes) {
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : 64;
#if defined(_WIN32)
  void* memory = _aligned_malloc(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return {static_cast<std::uint8_t*>(memory), &_aligned_free};
#else
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, bytes) != 0) throw std::bad_alloc();
#if defined(__linux__)
  if (bytes >= kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);  // a failure is harmless: the call is only advice
#endif
  return {static_cast<std::uint8_t*>(memory), &std::free};
#endif
}

std::shared_ptr<std::uint8_t> allocate_part(std::size_t bytes) {
  if (kGuardsBuffers) return allocate_aligned(bytes);  // a separate allocation detects reads past the end
  Piece& piece = current_piece();
  const std::lock_guard<std::mutex> lock(piece.mutex);
  std::shared_ptr<std::uint8_t> memory = piece.memory.lock();
  if (!memory || bytes > piece.size - piece.taken) {
    if (bytes > kLargestPiece) return allocate_aligned(bytes);
    free_tail(piece, memory);
    std::size_t size = memory ? std::min(2 * piece.size, kLargestPiece) : kSmallestPiece;
    while (size < bytes) size *= 2;
    memory = allocate_aligned(size);
    piece.memory = memory;
    piece.size = size;
    piece.taken = 0;
  }
  std::uint8_t* part = memory.get() + piece.taken;
  piece.taken += bytes;
  return {std::move(memory), part};
}

void free_unused_parts() {
  Piece& piece = current_piece();
  const std::lock_guard<std::mutex> lock(piece.mutex);
  free_tail(piece, piece.memory.lock());
}

}  // namespace tpuconvert
