#include "core/aligned.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace tpuconvert {

namespace {

constexpr std::size_t kSmallestPiece = 256 * 1024, kLargestPiece = 8 * 1024 * 1024;

// The piece that parts are taken from. It belongs to its parts: with the last of them it is gone.
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

}  // namespace

std::shared_ptr<std::uint8_t> allocate_aligned(std::size_t bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, bytes >= kHugePage ? kHugePage : 64, bytes) != 0) throw std::bad_alloc();
#if defined(__linux__)
  if (bytes >= kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);  // only advice
#endif
  return {static_cast<std::uint8_t*>(memory), &std::free};
}

std::shared_ptr<std::uint8_t> allocate_part(std::size_t bytes) {
  if (kGuardsBuffers) return allocate_aligned(bytes);  // so that reads past the end of a part are detected
  Piece& piece = current_piece();
  const std::lock_guard<std::mutex> lock(piece.mutex);
  std::shared_ptr<std::uint8_t> memory = piece.memory.lock();
  if (!memory || bytes > piece.size - piece.taken) {
    if (bytes > kLargestPiece) return allocate_aligned(bytes);
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

}  // namespace tpuconvert
