// Packed weights of steps that are made: saved for a file, or read from one instead of being packed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/aligned.h"

namespace tpuconvert {

// Checksum of 64 bits, several times as fast as memory. It detects accidents: every change of a single word changes the
// result, and words that change places do almost always.
std::uint64_t checksum_of(const std::uint8_t* bytes, std::size_t size);

// Bytes of a file.
struct PackedPart {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint64_t checksum = 0;
};

// A file of packed weights that is mapped into memory, read-only. Its pages are those of the system's file cache, so that
// processes with the same file share them. If the file is truncated, the next access to a lost page ends the process.
class MappedFile {
 public:
  MappedFile() = default;  // no file
  // Maps the first `size` bytes of an open file, which may be closed afterwards. Throws std::invalid_argument.
  MappedFile(int descriptor, std::size_t size);

  const std::shared_ptr<const std::uint8_t>& bytes() const { return bytes_; }
  std::size_t size() const { return size_; }

 private:
  std::shared_ptr<const std::uint8_t> bytes_;
  std::size_t size_ = 0;
};

// Weights that the steps made by one thread pack, in the order of packing. A kernel that supports it calls `current()`
// when it is made. If there is a record, it takes its packed weights from it, or adds them to it. A part contains
// numbers only, no offsets or sizes: everything that determines an address is computed from the spec, so that no file
// makes a kernel leave its memory.
class PackedRecord {
 public:
  // The record of the calling thread, or null.
  static PackedRecord* current();
  // Sets the record of the calling thread.
  static void set_current(PackedRecord* record);

  // Saves packed weights.
  PackedRecord() = default;
  // Reads parts of an open file, which must stay open while the steps are made. Weights are not copied from a mapped
  // file; the steps keep the mapping.
  PackedRecord(int descriptor, std::vector<PackedPart> parts, MappedFile file = {});

  bool is_read() const { return is_read_; }

  // Saves a part.
  void add(const void* bytes, std::size_t size);
  // States that the saved parts replace these weights.
  void add_source(const void* weights) { sources_.push_back(weights); }

  // Reads the next part. Throws std::invalid_argument if there is none, or one of another size or checksum.
  void take(void* bytes, std::size_t size);
  // Returns the next part: a copy, or its place in a mapped file, which another process may change at any time. Only for
  // bytes that are factors of products. Throws like take().
  AlignedBytes take_weights(std::size_t size);

  const std::vector<std::vector<std::uint8_t>>& parts() const { return saved_; }
  const std::vector<const void*>& sources() const { return sources_; }
  std::size_t taken() const { return taken_; }
  std::size_t available() const { return parts_.size(); }

 private:
  const PackedPart& next(std::size_t size);

  bool is_read_ = false;
  std::vector<std::vector<std::uint8_t>> saved_;
  std::vector<const void*> sources_;
  int descriptor_ = -1;
  std::vector<PackedPart> parts_;
  MappedFile file_;
  std::size_t taken_ = 0;
};

}  // namespace tpuconvert
