// Packed weights of steps that are made: saved for a file, or read from one instead of being packed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tpuconvert {

// Checksum of 64 bits, several times as fast as memory. It detects accidents: multiplication by an odd number is
// invertible, so that every change of a single word changes the result.
std::uint64_t checksum_of(const std::uint8_t* bytes, std::size_t size);

// Bytes of a file.
struct PackedPart {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint64_t checksum = 0;
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
  // Reads parts of an open file, which must stay open while the steps are made.
  PackedRecord(int descriptor, std::vector<PackedPart> parts);

  bool is_read() const { return is_read_; }

  // Saves a part.
  void add(const void* bytes, std::size_t size);
  // States that the saved parts replace these weights.
  void add_source(const void* weights) { sources_.push_back(weights); }

  // Reads the next part. Throws std::invalid_argument if there is none, or one of another size or checksum.
  void take(void* bytes, std::size_t size);

  const std::vector<std::vector<std::uint8_t>>& parts() const { return saved_; }
  const std::vector<const void*>& sources() const { return sources_; }
  std::size_t taken() const { return taken_; }
  std::size_t available() const { return parts_.size(); }

 private:
  bool is_read_ = false;
  std::vector<std::vector<std::uint8_t>> saved_;
  std::vector<const void*> sources_;
  int descriptor_ = -1;
  std::vector<PackedPart> parts_;
  std::size_t taken_ = 0;
};

}  // namespace tpuconvert
