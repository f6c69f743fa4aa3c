// A plan: steps in running order over one arena, and the memory of its runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/aligned.h"
#include "core/step.h"
#include "core/thread_pool.h"

namespace tpuconvert {

// Where a buffer of the plan lies during a run.
struct BufferPlan {
  enum class Kind { kArena, kConstant, kExternal };
  Kind kind = Kind::kArena;
  std::size_t offset = 0;               // in the arena
  std::size_t size = 0;                 // bytes without slack
  const std::uint8_t* data = nullptr;   // of a constant; the owner of the program keeps it alive
};

// The memory of one run at a time: arena, scratch and the addresses of all buffers.
class Memory {
 public:
  Memory(const std::vector<BufferPlan>& buffers, std::size_t arena_bytes, std::size_t scratch_bytes, int threads);

  std::uint8_t* const* buffers() const { return addresses_.data(); }
  std::uint8_t* buffer(int index) const { return addresses_[index]; }
  void set_external(int index, std::uint8_t* address) { addresses_[index] = address; }
  std::uint8_t* scratch() { return scratch_.data(); }
  std::size_t scratch_stride() const { return scratch_stride_; }

 private:
  AlignedBytes arena_;
  AlignedBytes scratch_;
  std::size_t scratch_stride_;
  std::vector<std::uint8_t*> addresses_;
};

class Program {
 public:
  // Throws std::invalid_argument when a buffer with its slack does not lie in the arena, or a step leaves a buffer.
  Program(std::vector<std::shared_ptr<const Step>> steps, std::vector<BufferPlan> buffers, std::size_t arena_bytes,
          int threads);

  std::size_t steps() const { return steps_.size(); }
  std::size_t arena_bytes() const { return arena_bytes_; }
  std::size_t packed_bytes() const;
  int threads() const { return threads_; }
  const std::vector<BufferPlan>& buffers() const { return buffers_; }
  const char* kind(std::size_t step) const { return steps_[step]->kind(); }

  std::unique_ptr<Memory> make_memory() const;

  // Runs steps first..last-1. Runs with different memories may overlap: whoever finds the pool taken runs on one thread.
  void run(Memory& memory, std::size_t first, std::size_t last) const;

  // The same, with the seconds that each step took.
  std::vector<double> profile(Memory& memory, std::size_t first, std::size_t last) const;

 private:
  std::vector<std::shared_ptr<const Step>> steps_;
  std::vector<BufferPlan> buffers_;
  std::size_t arena_bytes_;
  std::size_t scratch_bytes_ = 0;
  int threads_;
  mutable std::mutex pool_in_use_;
  std::unique_ptr<ThreadPool> pool_;
};

}  // namespace tpuconvert
