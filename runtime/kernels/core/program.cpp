#include "core/program.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <stdexcept>
#include <string>

#include "core/extents.h"

namespace tpuconvert {

namespace {

void check_externals(const std::vector<BufferPlan>& buffers, const Memory& memory) {
  for (std::size_t index = 0; index < buffers.size(); ++index)
    if (buffers[index].size != 0 && memory.buffer(static_cast<int>(index)) == nullptr)
      throw std::logic_error("a run was started before all its inputs and outputs were set");
}

constexpr auto kMost = static_cast<std::size_t>(kMostBytes);

std::size_t padded(std::size_t size) { return (size + kSlack + 63) / 64 * 64; }

// Size of the block with the scratch areas and the arena. A large one uses huge pages: 4 KB pages have arbitrary physical
// addresses, so pages that map to the same cache sets would evict each other. Two blocks would have a huge page each, of
// which ResNet50 used 1.8 and 0.5 of 2 MB.
std::size_t block_size(std::size_t scratch_bytes, std::size_t arena_bytes) {
  if (kGuardsBuffers) return scratch_bytes;  // buffers of the arena have memory of their own
  const std::size_t bytes = scratch_bytes + arena_bytes;
  return bytes >= kHugePage / 4 ? std::max(bytes, kHugePage) : bytes;
}

// Counts a run while it exists.
class Active {
 public:
  explicit Active(std::atomic<int>* count) : count_(count) { ++*count_; }
  ~Active() { --*count_; }
  Active(const Active&) = delete;
  Active& operator=(const Active&) = delete;

 private:
  std::atomic<int>* count_;
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Memory::Memory(std::uint64_t program, const std::vector<BufferPlan>& buffers, std::size_t arena_bytes,
               std::size_t scratch_bytes, int threads)
    : program_(program), scratch_stride_(padded(scratch_bytes)), threads_(threads) {
  const std::size_t all_scratch = scratch_stride_ * static_cast<std::size_t>(threads);
  block_ = AlignedBytes(block_size(all_scratch, arena_bytes));
  std::uint8_t* const arena = block_.data() + all_scratch;
  addresses_.reserve(buffers.size());
  for (const BufferPlan& buffer : buffers) {
    switch (buffer.kind) {
      case BufferPlan::Kind::kArena:
        if (kGuardsBuffers) {
          guarded_.emplace_back(buffer.size);
          addresses_.push_back(guarded_.back().data());
        } else {
          addresses_.push_back(arena + buffer.offset);
        }
        break;
      case BufferPlan::Kind::kConstant:
        addresses_.push_back(const_cast<std::uint8_t*>(buffer.data));  // steps never write to constants
        break;
      case BufferPlan::Kind::kExternal:
        addresses_.push_back(nullptr);
        break;
    }
  }
}

void Memory::check_slack() const {
  for (const GuardedBytes& bytes : guarded_)
    if (!bytes.is_slack_untouched()) throw std::logic_error("a step has written past the end of a buffer");
}

Program::Program(std::vector<std::shared_ptr<const Step>> steps, std::vector<BufferPlan> buffers,
                 std::size_t arena_bytes, int threads)
    : steps_(std::move(steps)),
      buffers_(std::move(buffers)),
      demands_(buffers_.size()),
      arena_bytes_(arena_bytes),
      threads_(threads) {
  static std::atomic<std::uint64_t> programs{0};
  identity_ = ++programs;
  if (threads < 1) throw std::invalid_argument("a program needs at least one thread");
  if (arena_bytes > kMost) throw std::invalid_argument("the arena is too large");
  for (const BufferPlan& buffer : buffers_) {
    if (buffer.kind != BufferPlan::Kind::kArena) continue;
    if (buffer.size > kMost || buffer.offset > kMost || buffer.offset + buffer.size + kSlack > arena_bytes)
      throw std::invalid_argument("a buffer is outside of the arena");
  }
  for (std::size_t index = 0; index < steps_.size(); ++index) {
    const Step* step = steps_[index].get();
    if (step == nullptr) throw std::invalid_argument("a step is missing");
    for (const Span& span : step->spans()) check_span(index, span);
    scratch_bytes_ = std::max(scratch_bytes_, step->scratch_bytes());
  }
  if (scratch_bytes_ > kMost / static_cast<std::size_t>(threads))
    throw std::invalid_argument("the threads need too much memory");
  if (threads > 1) pool_.reset(new ThreadPool(threads));
  free_unused_parts();
}

void Program::check_span(std::size_t step, const Span& span) {
  const auto refuse = [&](const std::string& before, const char* after) {
    throw std::invalid_argument("step " + std::to_string(step) + " (" + steps_[step]->kind() + ") " + before +
                                " buffer " + std::to_string(span.place.buffer) + after);
  };
  const auto index = static_cast<std::size_t>(span.place.buffer);
  if (span.place.buffer < 0 || index >= buffers_.size()) refuse("would leave its", ", which does not exist");
  const BufferPlan& buffer = buffers_[index];
  if (span.place.offset > buffer.size || span.bytes > buffer.size - span.place.offset) refuse("would leave its", "");
  if (span.bytes == 0) return;
  const bool is_written = span.access == Span::Access::kWrites;
  const bool is_constant = buffer.kind == BufferPlan::Kind::kConstant;
  if (is_written && is_constant) refuse("would write to", ", which is constant");
  if (span.access == Span::Access::kReadsSlack && !buffer.has_slack)
    refuse("may read past the end of", is_constant ? ", which has no slack" : ", which is the caller's and has no slack");
  std::size_t start = 0;  // the addresses of external buffers are checked when they are set
  if (is_constant) start = reinterpret_cast<std::uintptr_t>(buffer.data);
  if (buffer.kind == BufferPlan::Kind::kArena) start = buffer.offset;
  if ((start + span.place.offset) % span.element != 0)
    refuse("takes elements of " + std::to_string(span.element) + " bytes from", " that do not begin at a multiple of that");
  Demands& demands = demands_[index];
  demands.alignment = std::max(demands.alignment, span.element);
  demands.is_written = demands.is_written || is_written;
}

void Program::InOwnProcess::operator()(ThreadPool* pool) const {
  if (pool->is_of_this_process()) delete pool;
}

void Program::check_memory(const Memory& memory) const {
  if (memory.program() != identity_) throw std::invalid_argument("the memory belongs to another program");
}

void Program::check_memories(const std::vector<Memory*>& memories) const {
  std::vector<Memory*> sorted = memories;
  std::sort(sorted.begin(), sorted.end());
  const bool differ = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  if (memories.size() != static_cast<std::size_t>(threads_) || sorted.front() == nullptr || !differ)
    throw std::invalid_argument("a batch needs one memory per thread");
  for (const Memory* memory : memories) check_memory(*memory);
}

ThreadPool* Program::free_pool(std::unique_lock<std::mutex>* lock) const {
  // With as many runs as threads, every thread has one: sharing them would make more threads than processors.
  const int active = active_.load(std::memory_order_relaxed);
  if (active > 1 && active >= threads_) return nullptr;
  if (!pool_ || !pool_->is_of_this_process() || !lock->try_lock()) return nullptr;
  return pool_.get();
}

std::size_t Program::scratch_bytes() const { return padded(scratch_bytes_) * static_cast<std::size_t>(threads_); }

std::size_t Program::packed_bytes() const {
  std::size_t total = 0;
  for (const auto& step : steps_) total += step->packed_bytes();
  return total;
}

std::unique_ptr<Memory> Program::make_memory(int threads) const {
  return std::make_unique<Memory>(identity_, buffers_, arena_bytes_, scratch_bytes_, threads);
}

void Program::run_step(Memory& memory, const Run& run, std::size_t step) const {
  try {
    steps_[step]->run(run);
  } catch (...) {
    memory.set_failed_step(step);
    throw;
  }
}

void Program::run(Memory& memory, std::size_t first, std::size_t last) const {
  check_memory(memory);
  check_externals(buffers_, memory);
  const Active active(&active_);
  std::unique_lock<std::mutex> lock(pool_in_use_, std::defer_lock);
  const Run run(memory.buffers(), memory.scratch(), memory.scratch_stride(), memory.threads() < threads_ ? nullptr : free_pool(&lock));
  for (std::size_t index = first; index < last; ++index) {
    run_step(memory, run, index);
    if (kGuardsBuffers) memory.check_slack();
  }
}

void Program::check_observed(const std::vector<Observed>& observed) const {
  std::size_t steps = 0;
  for (const Observed& value : observed) {
    if (value.steps < steps || value.steps > steps_.size()) throw std::invalid_argument("values are not in the order of the steps");
    steps = value.steps;
    if (!value.observation) continue;
    const Span span = value.observation->span();
    const auto index = static_cast<std::size_t>(span.place.buffer);
    if (span.place.buffer < 0 || index >= buffers_.size() || span.place.offset > buffers_[index].size ||
        span.bytes > buffers_[index].size - span.place.offset || span.place.offset % span.element != 0)
      throw std::invalid_argument("an observed value leaves its buffer");
  }
}

Program::Progress Program::run_observed(Memory& memory, const std::vector<Observed>& observed, Progress from) const {
  check_memory(memory);
  check_externals(buffers_, memory);
  const Active active(&active_);
  std::unique_lock<std::mutex> lock(pool_in_use_, std::defer_lock);
  const Run run(memory.buffers(), memory.scratch(), memory.scratch_stride(), memory.threads() < threads_ ? nullptr : free_pool(&lock));
  for (;; ++from.steps) {
    for (; from.values < observed.size() && observed[from.values].steps <= from.steps; ++from.values) {
      Observation* observation = observed[from.values].observation.get();
      if (observation == nullptr) return from;
      const Place place = observation->span().place;
      if (!observation->add(memory.buffer(place.buffer) + place.offset)) return from;
    }
    if (from.steps == steps_.size()) return from;
    run_step(memory, run, from.steps);
    if (kGuardsBuffers) memory.check_slack();
  }
}

void Program::run_batch(const std::vector<Memory*>& memories, const std::vector<BatchArray>& arrays, int parts) const {
  check_memories(memories);
  const Active active(&active_);
  std::mutex failure_in_use;
  int failed_part = parts;
  std::size_t failed_step = 0;
  std::exception_ptr failure;
  const auto run_part = [&](int part, int worker) {
    Memory& memory = *memories[static_cast<std::size_t>(worker)];
    try {
      for (const BatchArray& array : arrays)
        memory.set_external(array.buffer, array.data + static_cast<std::size_t>(part) * array.stride);
      check_externals(buffers_, memory);
      const Run run(memory.buffers(), memory.scratch(), memory.scratch_stride(), nullptr);
      for (std::size_t index = 0; index < steps_.size(); ++index) {
        run_step(memory, run, index);
        if (kGuardsBuffers) memory.check_slack();
      }
    } catch (...) {
      const std::lock_guard<std::mutex> lock(failure_in_use);
      if (part >= failed_part) return;
      failed_part = part;
      failed_step = memory.failed_step();
      failure = std::current_exception();
    }
  };
  std::unique_lock<std::mutex> lock(pool_in_use_, std::defer_lock);
  if (ThreadPool* pool = free_pool(&lock)) {
    pool->run(parts, run_part);
  } else {
    for (int part = 0; part < parts; ++part) run_part(part, 0);
  }
  if (!failure) return;
  memories[0]->set_failed_step(failed_step);
  std::rethrow_exception(failure);
}

std::vector<double> Program::profile(Memory& memory, std::size_t first, std::size_t last) const {
  check_memory(memory);
  check_externals(buffers_, memory);
  const Active active(&active_);
  std::unique_lock<std::mutex> lock(pool_in_use_, std::defer_lock);
  const Run run(memory.buffers(), memory.scratch(), memory.scratch_stride(), memory.threads() < threads_ ? nullptr : free_pool(&lock));
  std::vector<double> seconds;
  for (std::size_t index = first; index < last; ++index) {
    const double start = seconds_now();
    run_step(memory, run, index);
    seconds.push_back(seconds_now() - start);
  }
  return seconds;
}

}  // namespace tpuconvert
