// One step of a plan, and what it sees of the run it is part of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/thread_pool.h"

namespace tpuconvert {

// Bytes behind the end of every buffer of the arena and of every scratch area that may be read (never written): vector
// loads may run over. They do not hold for buffers of the caller, which only the copy steps touch.
constexpr std::size_t kSlack = 64;

// What is added to an INT8 value to store it: kernels see unsigned bytes only. UINT8 values are stored as they are.
constexpr int kStoredBias = 128;

// Where a tensor starts: a buffer of the plan and a byte offset into it.
struct Place {
  int buffer = 0;
  std::size_t offset = 0;
};

// Bytes that a step reads or writes. The program checks once that they lie inside their buffers, so that no parameter of a
// file can lead a kernel astray.
struct Span {
  Place place;
  std::size_t bytes = 0;
};

// One execution of a plan. Steps are constant and shared by all runs; whatever changes is in here.
class Run {
 public:
  Run(std::uint8_t* const* buffers, std::uint8_t* scratch, std::size_t scratch_stride, ThreadPool* pool)
      : buffers_(buffers), scratch_(scratch), scratch_stride_(scratch_stride), pool_(pool) {}

  template <typename T>
  T* at(const Place& place) const {
    return reinterpret_cast<T*>(buffers_[place.buffer] + place.offset);
  }

  int threads() const { return pool_ == nullptr ? 1 : pool_->threads(); }

  // 64-byte aligned memory for one thread, of the size that the step asked for; its content is undefined.
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

  // Everything that `run` reads or writes in buffers, without reads into the slack.
  virtual std::vector<Span> spans() const = 0;

  // Bytes of scratch memory that each thread needs.
  virtual std::size_t scratch_bytes() const { return 0; }

  // Bytes of weights and parameters that the step keeps.
  virtual std::size_t packed_bytes() const { return 0; }

  // What a profile calls it, such as "conv_int8 3x3".
  virtual const char* kind() const = 0;
};

}  // namespace tpuconvert
