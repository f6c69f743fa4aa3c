// A fork-join pool: the caller and the workers that are awake share the parts of one job. The caller does not wait for a
// worker that has not begun: on a busy machine the system may not run it for a long while.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tpuconvert {

class ThreadPool {
 public:
  // Starts threads - 1 workers; the caller of `run` is the remaining one.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // False in a process that was forked from the one that made the pool: its workers do not exist there.
  bool is_of_this_process() const;

  // Calls work(part) for every part in 0..parts-1, at most one call per thread at a time, and returns when all have
  // returned. One caller at a time. `work` does not throw.
  void run(int parts, const std::function<void(int part, int worker)>& work);

 private:
  void serve(int worker);
  // Takes parts until there are none, and returns the number of the job that had none left.
  std::uint32_t take_parts(int worker);
  void set_job(int parts);
  bool has_new_job(std::uint32_t seen) const { return job_.load(std::memory_order_seq_cst).number != seen; }

  // The job at hand: its number, how many parts it has, and the next one to take. All three are one word, so that who
  // takes a part knows that it is one of this job: the caller returns only when every part that was taken is done.
  struct Job {
    std::uint32_t number;
    std::uint16_t parts, next;
  };
  static_assert(sizeof(Job) == 8, "a job is exchanged as one word");
  std::atomic<Job> job_{Job{0, 0, 0}};
  // Written by the caller before it sets the job, read by those who have taken a part of it.
  const std::function<void(int, int)>* work_ = nullptr;
  std::atomic<int> done_{0};  // parts
  std::atomic<bool> is_closing_{false};
  std::atomic<int> asleep_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> workers_;
  int process_;
};

}  // namespace tpuconvert
