#include "core/packed_record.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

#if !defined(_WIN32)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace tpuconvert {

namespace {

thread_local PackedRecord* the_current = nullptr;

constexpr int kLanes = 8;  // independent sums
constexpr std::size_t kBlock = kLanes * sizeof(std::uint64_t);
constexpr std::size_t kPiece = 256 * 1024;  // stays in the second-level cache between reading and adding up
constexpr std::uint64_t kAlignment = 64;  // of a part
constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15u;

// Checksum of bytes that arrive in pieces; all but the last one have a multiple of kBlock bytes. Each lane has the sum of
// its words, and the sum of these sums, in which the first words count most. Additions of 64 bits are vector instructions
// on every processor, multiplications are not.
class Checksum {
 public:
  void add(const std::uint8_t* bytes, std::size_t size) {
    add_blocks(bytes, size / kBlock);
    const std::size_t rest = size % kBlock;
    if (rest == 0) return;
    std::uint8_t last[kBlock] = {};
    std::memcpy(last, bytes + size - rest, rest);
    add_blocks(last, 1);
  }

  std::uint64_t result(std::size_t size) const {
    std::uint64_t sum = size * kOdd;
    for (int i = 0; i < kLanes; ++i)
      for (const std::uint64_t part : {sums_[i], weighted_[i]}) {
        sum = (sum ^ part) * kOdd;  // invertible, as is the next line
        sum ^= sum >> 29;
      }
    return sum;
  }

 private:
  void add_blocks(const std::uint8_t* bytes, std::size_t count) {
    // Local sums that begin at 0 become vectors. Sums in members do not: the bytes could be part of this object.
    std::uint64_t sums[kLanes] = {}, weighted[kLanes] = {};
    for (std::size_t block = 0; block < count; ++block) {
      std::uint64_t words[kLanes];
      std::memcpy(words, bytes + block * kBlock, kBlock);
      for (int i = 0; i < kLanes; ++i) {
        sums[i] += words[i];
        weighted[i] += sums[i];
      }
    }
    for (int i = 0; i < kLanes; ++i) {
      weighted_[i] += count * sums_[i] + weighted[i];
      sums_[i] += sums[i];
    }
  }

  std::uint64_t sums_[kLanes] = {}, weighted_[kLanes] = {};
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

MappedFile::MappedFile(int descriptor, std::size_t size) : size_(size) {
#if defined(_WIN32)
  static_cast<void>(descriptor);
  throw std::invalid_argument("packed weights are not supported on this system");
#else
#if defined(MAP_POPULATE)
  constexpr int kPopulate = MAP_POPULATE;  // one call instead of a page fault per 64 KiB
#else
  constexpr int kPopulate = 0;
#endif
  void* memory = mmap(nullptr, size, PROT_READ, MAP_SHARED | kPopulate, descriptor, 0);
  if (memory == MAP_FAILED) throw std::invalid_argument("the file of packed weights cannot be mapped into memory");
  bytes_ = {static_cast<const std::uint8_t*>(memory), [size](const std::uint8_t* bytes) { munmap(const_cast<std::uint8_t*>(bytes), size); }};
#endif
}

std::uint64_t checksum_of(const std::uint8_t* bytes, std::size_t size) {
  Checksum checksum;
  checksum.add(bytes, size);
  return checksum.result(size);
}

PackedRecord* PackedRecord::current() { return the_current; }

void PackedRecord::set_current(PackedRecord* record) { the_current = record; }

PackedRecord::PackedRecord(int descriptor, std::vector<PackedPart> parts, MappedFile file)
    : is_read_(true), descriptor_(descriptor), parts_(std::move(parts)), file_(std::move(file)) {}

void PackedRecord::add(const void* bytes, std::size_t size) {
  const auto* first = static_cast<const std::uint8_t*>(bytes);
  saved_.emplace_back(first, first + size);
}

const PackedPart& PackedRecord::next(std::size_t size) {
  if (taken_ == parts_.size()) throw std::invalid_argument("a part of the packed weights is missing");
  const PackedPart& part = parts_[taken_++];
  if (part.size != size) throw std::invalid_argument("a part of the packed weights has another size");
  return part;
}

void PackedRecord::take(void* bytes, std::size_t size) {
  const PackedPart& part = next(size);
  Checksum checksum;
  auto* to = static_cast<std::uint8_t*>(bytes);
  for (std::size_t done = 0; done < size; done += kPiece) {
    const std::size_t count = std::min(kPiece, size - done);
    read_at(descriptor_, part.offset + done, to + done, count);
    checksum.add(to + done, count);
  }
  if (checksum.result(size) != part.checksum) throw std::invalid_argument("a part of the packed weights was changed");
}

AlignedBytes PackedRecord::take_weights(std::size_t size) {
  if (!file_.bytes()) {
    AlignedBytes bytes = AlignedBytes::unwritten_part(size);
    take(bytes.data(), size);
    return bytes;
  }
  const PackedPart& part = next(size);
  if (part.offset % kAlignment != 0 || part.offset > file_.size() || file_.size() - part.offset < size + kSlack)
    throw std::invalid_argument("a part of the packed weights is outside of the file");
  const std::uint8_t* bytes = file_.bytes().get() + part.offset;
  if (checksum_of(bytes, size) != part.checksum) throw std::invalid_argument("a part of the packed weights was changed");
  return AlignedBytes::view({file_.bytes(), bytes}, size);
}

}  // namespace tpuconvert
