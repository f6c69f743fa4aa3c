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

// Kind and location of a buffer of the plan.
struct BufferPlan {
  enum class Kind { kArena, kConstant, kExternal };
  Kind kind = Kind::kArena;
  std::size_t offset = 0;               // in the arena
  std::size_t size = 0;                 // bytes without slack
  const std::uint8_t* data = nullptr;   // of a constant; the owner of the program keeps it alive
  bool has_slack = true;                // kSlack readable bytes after `size`
};

// The memory of one run at a time: arena, scratch and the addresses of all buffers.
//
// A build with AddressSanitizer gives every buffer and every thread's scratch area an allocation of its own, filled with
// a pattern: reads after the slack and of stale data of another step then show. Writes
// into the slack are found by `check_slack`.
class Memory {
 public:
  // `program` identifies the program whose steps may run on it.
  Memory(std::uint64_t program, const std::vector<BufferPlan>& buffers, std::size_t arena_bytes,
         std::size_t scratch_bytes, int threads);

  std::uint64_t program() const { return program_; }
  std::uint8_t* const* buffers() const { return addresses_.data(); }
  std::uint8_t* buffer(int index) const { return addresses_[index]; }
  void set_external(int index, std::uint8_t* address) { addresses_[index] = address; }
  std::uint8_t* scratch() { return scratch_.data(); }
  std::size_t scratch_stride() const { return scratch_stride_; }

  // The step that ended the last run with an exception.
  std::size_t failed_step() const { return failed_step_; }
  void set_failed_step(std::size_t step) { failed_step_ = step; }

  // Throws std::logic_error if a step has written after the end of a buffer. Does nothing in ordinary builds.
  void check_slack() const;

 private:
  std::uint64_t program_;
  AlignedBytes arena_;
  AlignedBytes scratch_;
  std::size_t scratch_stride_;
  std::size_t failed_step_ = 0;
  std::vector<std::uint8_t*> addresses_;
  std::vector<GuardedBytes> guarded_;
};

class Program {
 public:
  // Throws std::invalid_argument if a buffer with its slack is outside of the arena, a step is missing, or a step violates
  // the rules of a buffer: it leaves it, reads past the end of one of the caller, writes to a constant, or accesses
  // elements from places that are not multiples of their size.
  Program(std::vector<std::shared_ptr<const Step>> steps, std::vector<BufferPlan> buffers, std::size_t arena_bytes,
          int threads);

  std::size_t steps() const { return steps_.size(); }
  std::size_t arena_bytes() const { return arena_bytes_; }
  std::size_t packed_bytes() const;
  int threads() const { return threads_; }
  const std::vector<BufferPlan>& buffers() const { return buffers_; }

  // Requirements of the steps on a buffer of the caller, whose address is known only at run time.
  struct Demands {
    std::size_t alignment = 1;
    bool is_written = false;
  };
  const Demands& demands(int buffer) const { return demands_[static_cast<std::size_t>(buffer)]; }

  std::uint64_t identity() const { return identity_; }
  const char* kind(std::size_t step) const { return steps_[step]->kind(); }

  std::unique_ptr<Memory> make_memory() const;

  // Runs steps first..last-1. Runs with different memories may overlap: a run that finds the pool busy uses one thread.
  // Throws std::invalid_argument for the memory of another program, and what a step throws: std::out_of_range where
  // numbers that the model computed do not fit; the memory knows which step then.
  void run(Memory& memory, std::size_t first, std::size_t last) const;

  // The same, with the seconds that each step took.
  std::vector<double> profile(Memory& memory, std::size_t first, std::size_t last) const;

 private:
  std::vector<std::shared_ptr<const Step>> steps_;
  std::vector<BufferPlan> buffers_;
  std::vector<Demands> demands_;  // one per buffer
  std::size_t arena_bytes_;
  std::size_t scratch_bytes_ = 0;
  int threads_;
  std::uint64_t identity_;
  mutable std::mutex pool_in_use_;
  // A forked child has the pool but not its threads: there runs take one thread, and the pool is never destroyed, since
  // that would wait for them.
  struct InOwnProcess {
    void operator()(ThreadPool* pool) const;
  };
  std::unique_ptr<ThreadPool, InOwnProcess> pool_;

  void check_span(std::size_t step, const Span& span);
  void run_step(Memory& memory, const Run& run, std::size_t step) const;
  void check_memory(const Memory& memory) const;
  ThreadPool* free_pool(std::unique_lock<std::mutex>* lock) const;
};

}  // namespace tpuconvert
