// The kernel beside millrace: for a port that has one, an interface of the kernel's by which it
// gets what is for it, and sends, on the port's own link.
//
// A thread of its own moves frames between these interfaces and the workers, by rings of bounded
// length: workers make no system call for it, and wait for nothing. It gives way to workers where
// they want its processor, so that what is sent to the kernel cannot starve what is forwarded.
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

/// Of one port, since it was opened. Frames of the kernel's are not lost: they wait in its queue.
struct KernelSideStatistics {
  std::uint64_t given = 0;  ///< frames that the kernel got
  std::uint64_t taken = 0;  ///< that it sent
  std::uint64_t full = 0;   ///< that found no room on their way to it
};

/// Opened, started and destroyed by one thread; any may ask for statistics.
class KernelSide {
 public:
  /// Frames that may wait, from each worker, and to the one that sends a port's.
  static constexpr unsigned kRing = 1023;

  /// An interface for each link that has settings. `devices` outlive it. Errors: as
  /// `KernelTap::open`; no memory (failed).
  static Result<std::unique_ptr<KernelSide>> open(
      Devices& devices, unsigned workers, std::span<const std::optional<TapSettings>> links);
  ~KernelSide();
  KernelSide(const KernelSide&) = delete;
  KernelSide& operator=(const KernelSide&) = delete;

  /// Sets the interfaces up; frames move from now on. Errors: as `KernelTap::start`; no thread
  /// (failed).
  Result<void> start();

  /// Of a link that has an interface; by the thread that opens.
  Result<void> set_addresses(unsigned link, std::span<const TapAddress> addresses) {
    return links_[link]->tap.set_addresses(addresses);
  }
  /// Null where the link has none.
  const KernelTap* tap(unsigned link) const { return links_[link] ? &links_[link]->tap : nullptr; }
  KernelSideStatistics statistics(unsigned link) const;

  /// @name A worker's
  /// @{
  /// The kernel gets that frame on a link that has an interface, and its memory is let go. False:
  /// there is no room; it stays the caller's.
  bool give(unsigned worker, Handle frame, unsigned link);
  /// Frames that the kernel sends on links whose frames this worker sends, as many as fit at most.
  unsigned take(unsigned worker, std::span<Outgoing> frames);
  /// @}

 private:
  struct Link {
    Link(KernelTap its_tap, PointerRing to_worker, unsigned most)
        : tap(std::move(its_tap)), taken(std::move(to_worker)), bytes(most) {}

    KernelTap tap;
    PointerRing taken;  ///< to the worker
    unsigned bytes;     ///< of a frame, at most
    Outgoing frame;     ///< memory for the next one, or one that waits for room
    bool must_wait = false;
    bool is_gone = false;  ///< somebody has taken the interface away
    Counter given;
    Counter full_there;  ///< the kernel did not take them
    Counter of_kernel;
    std::atomic<std::uint64_t> full_here = 0;  ///< of any worker
  };

  KernelSide(Devices& devices, unsigned workers) : devices_(&devices), workers_(workers) {}
  void run(const std::stop_token& stop);
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
