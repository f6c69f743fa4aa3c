// A program: the steps of a plan in execution order over one arena, and the memory of its runs.
#pragma once

#include <atomic>
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
  std::size_t offset = 0;               // kArena: position in the arena
  std::size_t size = 0;                 // in bytes, without slack
  const std::uint8_t* data = nullptr;   // kConstant: kept alive by the owner of the program
  bool has_slack = true;                // kSlack bytes after `size` are readable
};

// The memory of one run at a time: arena, scratch areas and the addresses of all buffers.
//
// A build with AddressSanitizer allocates every buffer and every thread's scratch area separately and fills it with a
// pattern. This reveals reads past the slack and reads of stale data from another step; `check_slack` detects writes
// into the slack.
class Memory {
 public:
  // `program` identifies the program whose steps may run on it.
  Memory(std::uint64_t program, const std::vector<BufferPlan>& buffers, std::size_t arena_bytes,
         std::size_t scratch_bytes, int threads);

  std::uint64_t program() const { return program_; }
  std::uint8_t* const* buffers() const { return addresses_.data(); }
  std::uint8_t* buffer(int index) const { return addresses_[index]; }
  void set_external(int index, std::uint8_t* address) { addresses_[index] = address; }
  std::uint8_t* scratch() { return block_.data(); }
  std::size_t scratch_stride() const { return scratch_stride_; }
  int threads() const { return threads_; }  // number of scratch areas

  // The step that ended the last run with an exception.
  std::size_t failed_step() const { return failed_step_; }
  void set_failed_step(std::size_t step) { failed_step_ = step; }

  // Throws std::logic_error if a step has written after the end of a buffer. Does nothing in ordinary builds.
  void check_slack() const;

 private:
  std::uint64_t program_;
  AlignedBytes block_;  // the scratch areas, then the arena
  std::size_t scratch_stride_;
  int threads_;
  std::size_t failed_step_ = 0;
  std::vector<std::uint8_t*> addresses_;
  std::vector<GuardedBytes> guarded_;
};

// The array of all parts of a batch for one of the caller's buffers: that of a part begins at data + part * stride.
struct BatchArray {
  int buffer;
  std::uint8_t* data;
  std::size_t stride;
};

// Takes values of a run between its steps.
class Observation {
 public:
  virtual ~Observation() = default;

  // Bytes of a buffer that `add` reads.
  virtual Span span() const = 0;

  // Returns false, without a change, for a value that the caller has to look at.
  virtual bool add(const std::uint8_t* data) = 0;
};

// A value that is complete after `steps` steps. Without an observation the caller looks at it.
struct Observed {
  std::size_t steps = 0;
  std::shared_ptr<Observation> observation;
};

class Program {
 public:
  // Throws std::invalid_argument if a buffer with its slack exceeds the arena, if a step is missing, or if a step
  // violates the rules of a buffer: it accesses bytes outside of the buffer, reads the slack of a caller's buffer,
  // writes to a constant, or accesses elements at an offset that is not a multiple of their size.
  Program(std::vector<std::shared_ptr<const Step>> steps, std::vector<BufferPlan> buffers, std::size_t arena_bytes,
          int threads);

  std::size_t steps() const { return steps_.size(); }
  std::size_t arena_bytes() const { return arena_bytes_; }
  std::size_t packed_bytes() const;
  std::size_t scratch_bytes() const;  // of all threads
  int threads() const { return threads_; }
  const std::vector<BufferPlan>& buffers() const { return buffers_; }

  // Requirements of the steps on a caller's buffer, whose address is known only at run time.
  struct Demands {
    std::size_t alignment = 1;
    bool is_written = false;
  };
  const Demands& demands(int buffer) const { return demands_[static_cast<std::size_t>(buffer)]; }

  std::uint64_t identity() const { return identity_; }
  const char* kind(std::size_t step) const { return steps_[step]->kind(); }

  // Memory of a run on `threads` threads, which is 1 for a batch.
  std::unique_ptr<Memory> make_memory(int threads) const;

  // Runs steps first..last-1. Runs with different memories may overlap: a run uses one thread if it finds the pool busy,
  // if there are as many runs as threads, or if the memory is of one thread.
  // Throws std::invalid_argument for the memory of another program. Exceptions of a step are passed on, for example
  // std::out_of_range for indices computed by the model; Memory::failed_step() is then the index of the step.
  void run(Memory& memory, std::size_t first, std::size_t last) const;

  // A place in an observed run: the number of steps that have run, and of values that were taken.
  struct Progress {
    std::size_t steps = 0;
    std::size_t values = 0;
  };

  // Like run(), from a place to the end or to the next value that the caller has to look at. `observed` is in the order of
  // the steps. Returns where it stopped: at the end, `values` is the number of values.
  Progress run_observed(Memory& memory, const std::vector<Observed>& observed, Progress from) const;

  // Throws std::invalid_argument if an observation leaves its buffer.
  void check_observed(const std::vector<Observed>& observed) const;

  // Runs all steps once for each part of a batch. Every thread of the pool runs whole parts on a memory of its own, so
  // that threads do not wait for each other after every step. `memories` has threads() of them; their arrays are replaced.
  // If parts fail, the exception of the first one is thrown, and failed_step() of the first memory is its step.
  void run_batch(const std::vector<Memory*>& memories, const std::vector<BatchArray>& arrays, int parts) const;

  // Like run(). Returns the time of each step in seconds.
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
  mutable std::atomic<int> active_{0};  // runs in progress
  // A forked child has the pool but not its threads. There, runs use one thread, and the pool is never destroyed,
  // because its destructor would wait for the threads.
  struct InOwnProcess {
    void operator()(ThreadPool* pool) const;
  };
  std::unique_ptr<ThreadPool, InOwnProcess> pool_;

  void check_span(std::size_t step, const Span& span);
  void run_step(Memory& memory, const Run& run, std::size_t step) const;
  void check_memory(const Memory& memory) const;
  void check_memories(const std::vector<Memory*>& memories) const;
  ThreadPool* free_pool(std::unique_lock<std::mutex>* lock) const;
};

}  // namespace tpuconvert
