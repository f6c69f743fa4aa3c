// A fork-join pool: the caller and its workers share the parts of one job, then all of them are done.
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
  void take_parts(int worker);

  // The job at hand. Written by the caller before `generation_` changes, read by workers after they have seen it change.
  const std::function<void(int, int)>* work_ = nullptr;
  int parts_ = 0;
  std::atomic<int> next_{0};
  std::atomic<int> busy_{0};  // workers that have not left the job yet
  std::atomic<std::uint32_t> generation_{0};
  std::atomic<bool> is_closing_{false};
  std::atomic<int> asleep_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> workers_;
  int process_;
};

}  // namespace tpuconvert
