#include "core/program.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>

namespace tpuconvert {

namespace {

void check_externals(const std::vector<BufferPlan>& buffers, const Memory& memory) {
  for (std::size_t index = 0; index < buffers.size(); ++index)
    if (buffers[index].size != 0 && memory.buffer(static_cast<int>(index)) == nullptr)
      throw std::logic_error("a run was started before all its inputs and outputs were set");
}

std::size_t padded(std::size_t size) { return (size + kSlack + 63) / 64 * 64; }

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Memory::Memory(std::uint64_t program, const std::vector<BufferPlan>& buffers, std::size_t arena_bytes,
               std::size_t scratch_bytes, int threads)
    : program_(program), arena_(arena_bytes), scratch_stride_(padded(scratch_bytes)) {
  scratch_ = AlignedBytes(scratch_stride_ * static_cast<std::size_t>(threads));
  addresses_.reserve(buffers.size());
  for (const BufferPlan& buffer : buffers) {
    switch (buffer.kind) {
      case BufferPlan::Kind::kArena:
        if (kGuardsBuffers) {
          guarded_.emplace_back(buffer.size);
          addresses_.push_back(guarded_.back().data());
        } else {
          addresses_.push_back(arena_.data() + buffer.offset);
        }
        break;
      case BufferPlan::Kind::kConstant:
        addresses_.push_back(const_cast<std::uint8_t*>(buffer.data));  // steps only read them
        break;
      case BufferPlan::Kind::kExternal:
        addresses_.push_back(nullptr);
        break;
    }
  }
}

void Memory::check_slack() const {
  for (const GuardedBytes& bytes : guarded_)
    if (!bytes.is_slack_untouched()) throw std::logic_error("a step has written behind the end of a buffer");
}

Program::Program(std::vector<std::shared_ptr<const Step>> steps, std::vector<BufferPlan> buffers,
                 std::size_t arena_bytes, int threads)
    : steps_(std::move(steps)), buffers_(std::move(buffers)), arena_bytes_(arena_bytes), threads_(threads) {
  static std::atomic<std::uint64_t> programs{0};
  identity_ = ++programs;
  if (threads < 1) throw std::invalid_argument("a program needs at least one thread");
  for (const BufferPlan& buffer : buffers_) {
    const bool is_inside =
        buffer.size <= arena_bytes && kSlack <= arena_bytes && buffer.offset <= arena_bytes - buffer.size;
    if (buffer.kind == BufferPlan::Kind::kArena && (!is_inside || buffer.offset + buffer.size + kSlack > arena_bytes))
      throw std::invalid_argument("a buffer does not lie in the arena");
  }
  for (const auto& step : steps_) {
    if (!step) throw std::invalid_argument("a step is missing");
    for (const Span& span : step->spans()) {
      const bool exists = span.place.buffer >= 0 && static_cast<std::size_t>(span.place.buffer) < buffers_.size();
      const std::size_t size = exists ? buffers_[span.place.buffer].size : 0;
      if (span.place.offset > size || span.bytes > size - span.place.offset)
        throw std::invalid_argument(std::string("a step would leave its buffer: ") + step->kind());
    }
    scratch_bytes_ = std::max(scratch_bytes_, step->scratch_bytes());
  }
  if (threads > 1) pool_.reset(new ThreadPool(threads));
}

void Program::InOwnProcess::operator()(ThreadPool* pool) const {
  if (pool->is_of_this_process()) delete pool;
}

void Program::check_memory(const Memory& memory) const {
  if (memory.program() != identity_) throw std::invalid_argument("the memory belongs to another program");
}

ThreadPool* Program::free_pool(std::unique_lock<std::mutex>* lock) const {
  if (!pool_ || !pool_->is_of_this_process() || !lock->try_lock()) return nullptr;
  return pool_.get();
}

std::size_t Program::packed_bytes() const {
  std::size_t total = 0;
  for (const auto& step : steps_) total += step->packed_bytes();
  return total;
}

std::unique_ptr<Memory> Program::make_memory() const {
  return std::make_unique<Memory>(identity_, buffers_, arena_bytes_, scratch_bytes_, threads_);
}

void Program::run(Memory& memory, std::size_t first, std::size_t last) const {
  check_memory(memory);
  check_externals(buffers_, memory);
  std::unique_lock<std::mutex> lock(pool_in_use_, std::defer_lock);
  const Run run(memory.buffers(), memory.scratch(), memory.scratch_stride(), free_pool(&lock));
  for (std::size_t index = first; index < last; ++index) {
    steps_[index]->run(run);
    if (kGuardsBuffers) memory.check_slack();
  }
}

std::vector<double> Program::profile(Memory& memory, std::size_t first, std::size_t last) const {
  check_memory(memory);
  check_externals(buffers_, memory);
  std::unique_lock<std::mutex> lock(pool_in_use_, std::defer_lock);
  const Run run(memory.buffers(), memory.scratch(), memory.scratch_stride(), free_pool(&lock));
  std::vector<double> seconds;
  for (std::size_t index = first; index < last; ++index) {
    const double start = seconds_now();
    steps_[index]->run(run);
    seconds.push_back(seconds_now() - start);
  }
  return seconds;
}

}  // namespace tpuconvert
