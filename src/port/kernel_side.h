// The kernel beside millrace: interfaces of the kernel's (`KernelTap`) by which it receives and
// sends on the links of ports.
//
// A thread of this class moves frames between these interfaces and the workers, by rings of bounded
// length: workers wait for nothing, and make a system call only to wake that thread. It gives way
// to workers that want its processor, so that what is sent to the kernel cannot starve what is
// forwarded.
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

/// Frames of one port, since it was opened. Those that the kernel sends wait in its queue where a
/// worker has no room.
struct KernelSideStatistics {
  std::uint64_t given = 0;     ///< the kernel got them
  std::uint64_t taken = 0;     ///< the kernel sent them
  std::uint64_t full = 0;      ///< for the kernel, but found no room
  std::uint64_t too_long = 0;  ///< the kernel sent them, but they are longer than the port's MTU
  bool is_gone = false;        ///< somebody has taken the interface away
};

/// One thread opens, starts and destroys it and sets addresses; any may ask for statistics. Workers
/// have ended when it is destroyed.
class KernelSide {
 public:
  /// Frames that may wait, from each worker, and from each interface to the worker that sends them.
  static constexpr unsigned kRing = 1023;

  /// Opens an interface for each link that has settings. `devices` outlive it. Errors: as
  /// `KernelTap::open`; no memory, no descriptor (failed).
  static Result<std::unique_ptr<KernelSide>> open(
      Devices& devices, unsigned workers, std::span<const std::optional<TapSettings>> links);
  ~KernelSide();
  KernelSide(const KernelSide&) = delete;
  KernelSide& operator=(const KernelSide&) = delete;

  /// Sets the interfaces up, and begins to move frames. Errors (failed): as `KernelTap::start`; no
  /// thread.
  Result<void> start();

  /// Another process goes on with the interfaces: gives the workers what their queues have still,
  /// for a moment at most, and moves no frames any more.
  void leave();
  /// As `KernelTap::doubts`, of all links.
  std::vector<std::string> doubts() const;

  /// As `KernelTap::set_addresses`, of a link that has an interface.
  Result<void> set_addresses(unsigned link, std::span<const TapAddress> addresses) {
    return links_[link]->tap.set_addresses(addresses);
  }
  /// Returns the link's interface; null where it has none.
  const KernelTap* tap(unsigned link) const { return links_[link] ? &links_[link]->tap : nullptr; }
  /// Counters of a link that has an interface.
  KernelSideStatistics statistics(unsigned link) const;

  /// @name Called by that worker only
  /// @{
  /// Gives the kernel a frame that came on a link which has an interface; its memory is let go.
  /// False: there is no room, and it stays the caller's.
  bool give(unsigned worker, Handle frame, unsigned link);
  /// Fills the first so many with frames that the kernel sends on this worker's share of the links.
  /// Their memory is the caller's.
  unsigned take(unsigned worker, std::span<Outgoing> frames);
  /// @}

 private:
  struct Link {
    Link(KernelTap its_tap, PointerRing to_worker, unsigned most)
        : tap(std::move(its_tap)), taken(std::move(to_worker)), bytes(most) {}

    KernelTap tap;
    PointerRing taken;                  ///< to the worker
    unsigned bytes;                     ///< of a frame, at most
    Outgoing frame;                     ///< memory for the next one, or one that waits for room
    bool must_wait = false;             ///< for room, or for memory
    std::atomic<bool> is_gone = false;  ///< somebody has taken the interface away
    Counter given;
    Counter full_there;  ///< the kernel did not take them
    Counter of_kernel;
    Counter too_long;
    std::atomic<std::uint64_t> full_here = 0;  ///< a worker's ring was full
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
  std::vector<std::unique_ptr<Link>> links_;  ///< by number; null: it has none
  std::vector<PointerRing> given_;            ///< by worker
  int alarm_ = -1;                            ///< an eventfd that ends the thread's sleep
  std::atomic<bool> sleeps_ = false;
  std::jthread thread_;
};

}  // namespace millrace
