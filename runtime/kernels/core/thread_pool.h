// A fork-join pool: the caller and the workers that are awake share the parts of one job. The caller does not wait for
// a worker that has not started a part, because a busy operating system may not schedule it for a long time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tpuconvert {

class ThreadPool {
 public:
  // Starts threads - 1 workers; the caller of `run` is the remaining one. Throws std::bad_alloc if they cannot be started.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // False in a forked child of the process that created the pool: the workers do not exist there.
  bool is_of_this_process() const;

  // Calls work(part) for every part in 0..parts-1, at most one call per thread at a time, and returns when all have
  // returned. One caller at a time. The first exception of `work` is thrown after all parts have ended.
  void run(int parts, const std::function<void(int part, int worker)>& work);

 private:
  void serve(int worker);
  void close();
  void run_part(int part, int worker);
  // Runs parts until none is left, and returns the number of the job that is exhausted.
  std::uint32_t take_parts(int worker);
  void set_job(int parts);
  bool has_new_job(std::uint32_t seen) const { return job_.load(std::memory_order_seq_cst).number != seen; }

  // The current job: its number, its number of parts, and the next part to take. All three are one atomic word, so that
  // a thread never takes a part of a later job by mistake. The caller returns only after every taken part is done.
  struct alignas(8) Job {  // Clang calls a library for a word that its type does not align
    std::uint32_t number;
    std::uint16_t parts, next;
  };
  static_assert(sizeof(Job) == 8, "a job is exchanged as one word");
  std::atomic<Job> job_{Job{0, 0, 0}};
  // Written by the caller before it sets the job; read only by threads that have taken a part of the job.
  const std::function<void(int, int)>* work_ = nullptr;
  std::atomic<int> done_{0};  // completed parts of the current job
  std::exception_ptr error_;  // of the current job
  std::mutex error_mutex_;
  std::atomic<bool> is_closing_{false};
  std::atomic<int> asleep_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> workers_;
  int process_;
};

}  // namespace tpuconvert
