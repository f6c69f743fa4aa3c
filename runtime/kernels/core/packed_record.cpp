#include "core/packed_record.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

#if !defined(_WIN32)
#include <unistd.h>
#endif

namespace tpuconvert {

namespace {

thread_local PackedRecord* the_current = nullptr;

constexpr int kLanes = 8;  // independent chains of multiplications
constexpr std::size_t kBlock = kLanes * sizeof(std::uint64_t);
constexpr std::size_t kPiece = 256 * 1024;  // stays in the second-level cache between reading and adding up
constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15u;

// Checksum of bytes that arrive in pieces; all but the last one have a multiple of kBlock bytes.
class Checksum {
 public:
  void add(const std::uint8_t* bytes, std::size_t size) {
    for (; size >= kBlock; bytes += kBlock, size -= kBlock) add_block(bytes);
    if (size == 0) return;
    std::uint8_t rest[kBlock] = {};
    std::memcpy(rest, bytes, size);
    add_block(rest);
  }

  std::uint64_t result(std::size_t size) const {
    std::uint64_t sum = size * kOdd;
    for (const std::uint64_t lane : lanes_) {
      sum = (sum ^ lane) * kOdd;
      sum ^= sum >> 29;
    }
    return sum;
  }

 private:
  void add_block(const std::uint8_t* bytes) {
    std::uint64_t words[kLanes];
    std::memcpy(words, bytes, kBlock);
    for (int i = 0; i < kLanes; ++i) {
      const std::uint64_t mixed = (lanes_[i] ^ words[i]) * kOdd;
      lanes_[i] = mixed ^ mixed >> 32;
    }
  }

  std::uint64_t lanes_[kLanes] = {1, 2, 3, 4, 5, 6, 7, 8};
};

void read_at(int descriptor, std::uint64_t offset, std::uint8_t* bytes, std::size_t size) {
#if defined(_WIN32)
  static_cast<void>(descriptor), static_cast<void>(offset), static_cast<void>(bytes), static_cast<void>(size);
  throw std::invalid_argument("packed weights are not supported on this system");
#else
  while (size > 0) {
    const ssize_t count = pread(descriptor, bytes, size, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw std::invalid_argument("a part of the packed weights cannot be read");
    bytes += count;
    offset += static_cast<std::uint64_t>(count);
    size -= static_cast<std::size_t>(count);
  }
#endif
}

}  // namespace

std::uint64_t checksum_of(const std::uint8_t* bytes, std::size_t size) {
  Checksum checksum;
  checksum.add(bytes, size);
  return checksum.result(size);
}

PackedRecord* PackedRecord::current() { return the_current; }

void PackedRecord::set_current(PackedRecord* record) { the_current = record; }

PackedRecord::PackedRecord(int descriptor, std::vector<PackedPart> parts)
    : is_read_(true), descriptor_(descriptor), parts_(std::move(parts)) {}

void PackedRecord::add(const void* bytes, std::size_t size) {
  const auto* first = static_cast<const std::uint8_t*>(bytes);
  saved_.emplace_back(first, first + size);
}

void PackedRecord::take(void* bytes, std::size_t size) {
  if (taken_ == parts_.size()) throw std::invalid_argument("a part of the packed weights is missing");
  const PackedPart& part = parts_[taken_++];
  if (part.size != size) throw std::invalid_argument("a part of the packed weights has another size");
  Checksum checksum;
  auto* to = static_cast<std::uint8_t*>(bytes);
  for (std::size_t done = 0; done < size; done += kPiece) {
    const std::size_t count = std::min(kPiece, size - done);
    read_at(descriptor_, part.offset + done, to + done, count);
    checksum.add(to + done, count);
  }
  if (checksum.result(size) != part.checksum) throw std::invalid_argument("a part of the packed weights was changed");
}

}  // namespace tpuconvert
