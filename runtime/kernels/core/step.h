// One step of a plan, and its view of a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/thread_pool.h"

namespace tpuconvert {

// Slack: bytes after every arena buffer, constant and scratch area that vector loads may read, but nothing may write.
// Buffers of the caller have no slack; a step that reads it states so in its Span.
constexpr std::size_t kSlack = 64;

// Added to an INT8 value when it is stored, because kernels work on unsigned bytes only. UINT8 values are stored
// unchanged.
constexpr int kStoredBias = 128;

// Address of a tensor: a buffer of the plan and a byte offset.
struct Place {
  int buffer = 0;
  std::size_t offset = 0;
};

// Byte range that a step reads or writes. The program checks once that it is inside its buffer and aligned to the element
// size, so that no parameter of an untrusted file causes an out-of-bounds access.
struct Span {
  enum class Access {
    kReadsSlack,  // loads whole registers, which may read the slack after the buffer
    kReads,       // nothing after the last element is read
    kWrites,      // may also read; nothing after the last element is accessed
  };

  Place place;
  std::size_t bytes = 0;
  std::size_t element = 1;
  Access access = Access::kReadsSlack;  // the default permits the most

  static Span reads_slack(const Place& place, std::size_t bytes, std::size_t element = 1) {
    return {place, bytes, element, Access::kReadsSlack};
  }
  static Span reads(const Place& place, std::size_t bytes, std::size_t element = 1) {
    return {place, bytes, element, Access::kReads};
  }
  static Span writes(const Place& place, std::size_t bytes, std::size_t element = 1) {
    return {place, bytes, element, Access::kWrites};
  }
};

// One execution of a plan. Steps are constant and shared by all runs; this object contains everything that changes.
class Run {
 public:
  Run(std::uint8_t* const* buffers, std::uint8_t* scratch, std::size_t scratch_stride, ThreadPool* pool)
      : buffers_(buffers), scratch_(scratch), scratch_stride_(scratch_stride), pool_(pool) {}

  template <typename T>
  T* at(const Place& place) const {
    return reinterpret_cast<T*>(buffers_[place.buffer] + place.offset);
  }

  int threads() const { return pool_ == nullptr ? 1 : pool_->threads(); }

  // 64-byte aligned memory for one thread, of the size that the step requested. Its content is undefined.
  std::uint8_t* scratch(int worker) const { return scratch_ + static_cast<std::size_t>(worker) * scratch_stride_; }

  // Calls work(part, worker) for every part; worker is below threads().
  void parallel(int parts, const std::function<void(int part, int worker)>& work) const {
    if (pool_ == nullptr || parts <= 1) {
      for (int part = 0; part < parts; ++part) work(part, 0);
    } else {
      pool_->run(parts, work);
    }
  }

 private:
  std::uint8_t* const* buffers_;
  std::uint8_t* scratch_;
  std::size_t scratch_stride_;
  ThreadPool* pool_;
};

class Step {
 public:
  virtual ~Step() = default;

  // Results do not depend on the number of threads.
  virtual void run(const Run& run) const = 0;

  // Every byte range of a buffer that `run` reads or writes. A range excludes the slack; its `access` states whether
  // the slack is read.
  virtual std::vector<Span> spans() const = 0;

  // Scratch memory that each thread needs, in bytes.
  virtual std::size_t scratch_bytes() const { return 0; }

  // Weights and parameters that the step owns, in bytes.
  virtual std::size_t packed_bytes() const { return 0; }

  // Name in profiles, such as "conv_int8 3x3".
  virtual const char* kind() const = 0;
};

}  // namespace tpuconvert
