// The kernel beside millrace: interfaces (`KernelTap`) by which the kernel receives and sends on
// the ports' links.
//
// This class has a thread that moves frames between these interfaces and the workers through
// bounded rings. Workers never wait for the thread, and make a system call only to wake it. The
// thread runs at a lower priority than workers on its processor, so that frames to the kernel
// cannot starve forwarded traffic.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "core/counter.h"
#include "core/outgoing.h"
#include "millrace/types.h"
#include "port/devices.h"
#include "port/kernel_tap.h"
#include "port/ring.h"

namespace millrace {

/// Frame counters of one port since it was opened. Frames that the kernel sends stay in the
/// kernel's queue while the worker's ring has no room.
struct KernelSideStatistics {
  std::uint64_t given = 0;     ///< frames delivered to the kernel
  std::uint64_t taken = 0;     ///< frames that the kernel sent
  std::uint64_t full = 0;      ///< frames for the kernel for which there was no room
  std::uint64_t too_long = 0;  ///< frames of the kernel above the port's MTU, dropped
  bool is_gone = false;        ///< the interface has been deleted
};

/// One thread opens, starts and destroys a `KernelSide`, and sets addresses; any thread may read
/// statistics.
/// Workers must have ended before the object is destroyed.
class KernelSide {
 public:
  /// Capacity in frames of each worker's ring to the thread, and of each interface's ring to the
  /// worker that sends its frames.
  static constexpr unsigned kRing = 1023;

  /// Opens an interface for each link that has settings. `devices` must outlive the object. Errors:
  /// as `KernelTap::open`; failed (no memory, no file descriptor).
  static Result<std::unique_ptr<KernelSide>> open(
      Devices& devices, unsigned workers, std::span<const std::optional<TapSettings>> links);
  ~KernelSide();
  KernelSide(const KernelSide&) = delete;
  KernelSide& operator=(const KernelSide&) = delete;

  /// Sets the interfaces up, and starts the thread. Errors: as `KernelTap::start`; failed (no
  /// thread).
  Result<void> start();

  /// Leaves the interfaces to another process: stops the thread, moves the frames that are still
  /// queued in either direction, for 50 ms at most, and moves no frames afterwards.
  void leave();
  /// Returns the warnings of `KernelTap::doubts` for all links.
  std::vector<std::string> doubts() const;

  /// Sets the addresses of a link that has an interface. Errors: as `KernelTap::set_addresses`.
  Result<void> set_addresses(unsigned link, std::span<const TapAddress> addresses) {
    return links_[link]->tap.set_addresses(addresses);
  }
  /// Returns the link's interface; null if the link has none.
  const KernelTap* tap(unsigned link) const { return links_[link] ? &links_[link]->tap : nullptr; }
  /// Returns the counters of a link that has an interface.
  KernelSideStatistics statistics(unsigned link) const;

  /// @name Called only by the worker of the number `worker`
  /// @{
  /// Gives the kernel a frame that came on a link which has an interface; the frame is freed
  /// afterwards. False: there is no room, and the caller keeps the frame.
  bool give(unsigned worker, Handle frame, unsigned link);
  /// Fills `frames` with frames that the kernel sends on this worker's links, and returns their
  /// number. Link n belongs to worker n % workers. The caller owns the frames' memory.
  unsigned take(unsigned worker, std::span<Outgoing> frames);
  /// @}

 private:
  struct Link {
    Link(KernelTap its_tap, PointerRing to_worker, unsigned most)
        : tap(std::move(its_tap)), taken(std::move(to_worker)), bytes(most) {}

    KernelTap tap;
    PointerRing taken;       ///< ring to the worker that sends the kernel's frames
    unsigned bytes;          ///< length of the longest frame that is taken
    Outgoing frame;          ///< memory for the next frame, or a frame that waits for room
    bool must_wait = false;  ///< true: the ring is full, or memory is short
    std::atomic<bool> is_gone = false;  ///< the interface has been deleted
    Counter given;
    Counter full_there;  ///< frames that the kernel did not accept
    Counter of_kernel;
    Counter too_long;
    std::atomic<std::uint64_t> full_here = 0;  ///< frames for which a worker's ring was full
  };

  KernelSide(Devices& devices, unsigned workers) : devices_(&devices), workers_(workers) {}
  void run(const std::stop_token& stop);
  void stop();
  bool move();
  bool take_from(Link& link);
  void sleep();
  void wake();

  Devices* devices_;
  unsigned workers_;
  std::vector<std::unique_ptr<Link>> links_;  ///< indexed by link; null: no interface
  std::vector<PointerRing> given_;            ///< indexed by worker
  int alarm_ = -1;                            ///< an eventfd that ends the thread's sleep
  std::atomic<bool> sleeps_ = false;
  std::jthread thread_;
};

}  // namespace millrace
