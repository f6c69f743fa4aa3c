#include "core/thread_pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if !defined(_WIN32)
#include <unistd.h>
#endif

namespace tpuconvert {

namespace {

// About 50 us on a 4 GHz processor: longer than the gaps between the steps of a network, short enough not to burn a core
// between runs.
constexpr int kSpins = 4000;

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// Processes are only forked where there is fork().
int this_process() {
#if defined(_WIN32)
  return 0;
#else
  return static_cast<int>(getpid());
#endif
}

}  // namespace

bool ThreadPool::is_of_this_process() const { return process_ == this_process(); }

ThreadPool::ThreadPool(int threads) : process_(this_process()) {
  for (int worker = 1; worker < threads; ++worker) workers_.emplace_back([this, worker] { serve(worker); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    is_closing_ = true;
    generation_.fetch_add(1);
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(int parts, const std::function<void(int, int)>& work) {
  if (workers_.empty() || parts <= 1) {
    for (int part = 0; part < parts; ++part) work(part, 0);
    return;
  }
  work_ = &work;
  parts_ = parts;
  next_.store(0, std::memory_order_relaxed);
  busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_seq_cst);
  if (asleep_.load(std::memory_order_seq_cst) > 0) {
    // The lock orders this with a worker that has announced its sleep but does not wait yet.
    { std::lock_guard<std::mutex> lock(mutex_); }
    wake_.notify_all();
  }
  take_parts(0);
  // Spin first; then give the processor away: a worker may share it with this thread.
  for (int spins = 0; busy_.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < kSpins) {
      relax();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadPool::take_parts(int worker) {
  for (int part = next_.fetch_add(1, std::memory_order_relaxed); part < parts_;
       part = next_.fetch_add(1, std::memory_order_relaxed))
    (*work_)(part, worker);
}

void ThreadPool::serve(int worker) {
  std::uint32_t seen = 0;
  for (;;) {
    int spins = 0;
    while (generation_.load(std::memory_order_acquire) == seen && spins < kSpins) {
      relax();
      ++spins;
    }
    if (generation_.load(std::memory_order_acquire) == seen) {
      std::unique_lock<std::mutex> lock(mutex_);
      asleep_.fetch_add(1, std::memory_order_seq_cst);
      wake_.wait(lock, [&] { return generation_.load(std::memory_order_seq_cst) != seen; });
      asleep_.fetch_sub(1, std::memory_order_seq_cst);
    }
    // The caller waits for every worker, so that no generation is ever missed.
    ++seen;
    if (is_closing_) return;
    take_parts(worker);
    busy_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace tpuconvert
