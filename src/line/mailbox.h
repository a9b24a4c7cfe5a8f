// By which other threads ask something of a worker: it is done on the worker's thread, between two
// of its bursts, when no packet is on its way and nothing is locked.
//
// The worker calls `open`, `serve` once a burst, and `close`; one other thread at a time calls
// `post` and `wait`.
#pragma once

#include <atomic>
#include <functional>

namespace millrace {

class Mailbox {
 public:
  using Task = std::function<void()>;

  /// @name The worker
  /// @{
  void open() { task_.store(nullptr, std::memory_order_release); }
  void serve() {
    if (task_.load(std::memory_order_relaxed) != nullptr) [[unlikely]]
      take();
  }
  /// What has been posted is done; what comes later never is.
  void close() {
    const Task* none = nullptr;
    while (!task_.compare_exchange_weak(none, &kClosed, std::memory_order_acq_rel)) {
      take();
      none = nullptr;
    }
  }
  /// @}

  /// The worker has not begun to serve.
  bool is_new() const { return task_.load(std::memory_order_acquire) == &kNew; }
  /// `task` will be done; it outlives `wait`. False: the worker serves nobody, not yet or no more.
  bool post(const Task& task) {
    const Task* none = nullptr;
    return task_.compare_exchange_strong(none, &task, std::memory_order_acq_rel);
  }
  /// Until the task that was posted has been done.
  void wait(const Task& task) const { task_.wait(&task, std::memory_order_acquire); }

 private:
  static inline const Task kNew;
  static inline const Task kClosed;

  void take() {
    const Task* const task = task_.load(std::memory_order_acquire);
    if (task == nullptr || task == &kNew || task == &kClosed) return;
    const Done done{task_};  // also where there is no memory left for it
    (*task)();
  }

  struct Done {
    std::atomic<const Task*>& task;
    ~Done() {
      task.store(nullptr, std::memory_order_release);
      task.notify_all();
    }
  };

  std::atomic<const Task*> task_ = &kNew;
};

}  // namespace millrace
