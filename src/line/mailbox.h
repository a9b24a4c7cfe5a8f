// A mailbox for one task, by which another thread has the task done on a worker's thread: between
// two of the worker's bursts, when no burst holds an id and nothing is locked.
//
// The worker's thread calls `open`, `serve` once a burst, and `close`. One other thread at a time
// calls `post` and, if that returned true, `wait`. Any thread may call `is_new`.
#pragma once

#include <atomic>
#include <functional>

namespace millrace {

class Mailbox {
 public:
  using Task = std::function<void()>;

  /// @name For the worker's thread
  /// @{
  /// Lets tasks be posted from now on.
  void open() { task_.store(nullptr, std::memory_order_release); }
  /// Does the task that has been posted, if there is one. Throws what the task throws.
  void serve() {
    if (task_.load(std::memory_order_relaxed) != nullptr) [[unlikely]]
      take();
  }
  /// Does the task that has been posted, if there is one. From now on `post` returns false.
  void close() {
    const Task* none = nullptr;
    while (!task_.compare_exchange_weak(none, &kClosed, std::memory_order_acq_rel)) {
      take();
      none = nullptr;
    }
  }
  /// @}

  /// True if `open` has never been called.
  bool is_new() const { return task_.load(std::memory_order_acquire) == &kNew; }
  /// Posts a task, which must live until `wait` returns. False: the mailbox is closed, not open
  /// yet, or has another task; then this task will not be done.
  bool post(const Task& task) {
    const Task* none = nullptr;
    return task_.compare_exchange_strong(none, &task, std::memory_order_acq_rel);
  }
  /// Waits until the task that was posted has been done, or has thrown.
  void wait(const Task& task) const { task_.wait(&task, std::memory_order_acquire); }

 private:
  static inline const Task kNew;
  static inline const Task kClosed;

  void take() {
    const Task* const task = task_.load(std::memory_order_acquire);
    if (task == nullptr || task == &kNew || task == &kClosed) return;
    const Done done{task_};  // the task ends also if it throws
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
