#include "core/thread_pool.h"

#include <new>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if !defined(_WIN32)
#include <unistd.h>
#endif

namespace tpuconvert {

namespace {

// About 50 us at 4 GHz: longer than the gap between two steps, and short enough not to occupy a core between runs.
constexpr int kSpins = 4000;

constexpr int kMostParts = 0xFFFF;  // limit of the 16-bit counters of a job

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// Process id, to detect a fork. Windows has no fork().
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
  try {
    for (int worker = 1; worker < threads; ++worker) workers_.emplace_back([this, worker] { serve(worker); });
  } catch (...) {  // no memory, or too many threads: those that run must end before their objects are destroyed
    close();
    throw std::bad_alloc();
  }
}

ThreadPool::~ThreadPool() { close(); }

void ThreadPool::close() {
  is_closing_ = true;
  set_job(0);
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(int parts, const std::function<void(int, int)>& work) {
  if (workers_.empty() || parts <= 1) {
    for (int part = 0; part < parts; ++part) work(part, 0);
    return;
  }
  if (parts > kMostParts) {
    const int each = (parts + kMostParts - 1) / kMostParts;
    run((parts + each - 1) / each, [&](int group, int worker) {
      for (int part = group * each; part < parts && part < (group + 1) * each; ++part) work(part, worker);
    });
    return;
  }
  work_ = &work;
  done_.store(0, std::memory_order_relaxed);
  set_job(parts);
  take_parts(0);
  // Spin first, then yield: a worker may be waiting for the processor of this thread.
  for (int spins = 0; done_.load(std::memory_order_acquire) != parts; ++spins) {
    if (spins < kSpins) {
      relax();
    } else {
      std::this_thread::yield();
    }
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

// Keeps the first error of a job. A part counts as done after its error was kept, so that the caller sees it.
void ThreadPool::run_part(int part, int worker) {
  try {
    (*work_)(part, worker);
  } catch (...) {
    const std::lock_guard<std::mutex> lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

void ThreadPool::set_job(int parts) {
  const std::uint32_t number = job_.load(std::memory_order_relaxed).number + 1;
  job_.store({number, static_cast<std::uint16_t>(parts), 0}, std::memory_order_seq_cst);
  if (asleep_.load(std::memory_order_seq_cst) > 0) {
    // Taking the lock prevents a lost wake-up of a worker that has incremented `asleep_` but does not wait yet.
    { std::lock_guard<std::mutex> lock(mutex_); }
    wake_.notify_all();
  }
}

std::uint32_t ThreadPool::take_parts(int worker) {
  Job job = job_.load(std::memory_order_acquire);
  while (job.next < job.parts) {
    const Job taken{job.number, job.parts, static_cast<std::uint16_t>(job.next + 1)};
    if (!job_.compare_exchange_weak(job, taken, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    run_part(job.next, worker);
    done_.fetch_add(1, std::memory_order_release);
    job = job_.load(std::memory_order_acquire);
  }
  return job.number;
}

void ThreadPool::serve(int worker) {
  std::uint32_t seen = 0;
  while (!is_closing_) {
    for (int spins = 0; !has_new_job(seen) && spins < kSpins; ++spins) relax();
    if (!has_new_job(seen)) {
      std::unique_lock<std::mutex> lock(mutex_);
      asleep_.fetch_add(1, std::memory_order_seq_cst);
      wake_.wait(lock, [&] { return has_new_job(seen); });
      asleep_.fetch_sub(1, std::memory_order_seq_cst);
    }
    seen = take_parts(worker);
  }
}

}  // namespace tpuconvert
