// Network devices, through DPDK: what packets come from and go to where millrace runs live.
//
// Opened, started and closed by one thread; any may ask for statistics. Each receive queue then
// belongs to one worker, and so does each place in `transmit`; packets may pass between workers. No
// type of DPDK's shows here: a `Handle` is an `rte_mbuf*`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/burst.h"
#include "core/counter.h"
#include "core/dpdk_eal.h"
#include "core/mac.h"
#include "core/outgoing.h"
#include "millrace/memory.h"
#include "millrace/types.h"
#include "port/device_name.h"
#include "port/kernel_interface.h"

namespace millrace {

struct DeviceSettings {
  DeviceName device;
  unsigned mtu = 0;  ///< 0: as it is, 1500 where that cannot be told
};

/// Of one device, since it was opened.
struct DeviceStatistics {
  std::uint64_t in = 0;
  std::uint64_t out = 0;
  std::uint64_t missed = 0;  ///< that the device dropped: its queue was full, or no memory was left
  bool link_is_up = false;
};

class Devices {
 public:
  /// What `open` begins with, for a process that wants to know early whether it succeeds: looks at
  /// interfaces of the kernel's, and starts DPDK, which takes PCI devices then. Errors: as `open`.
  static Result<void> prepare(std::span<const DeviceSettings> settings,
                              const std::vector<std::string>& eal_options);
  /// All of them, for so many workers, with packet memory for their queues. Errors name the device:
  /// it cannot be opened (unreadable), its driver refuses it, or DPDK does not start (failed).
  static Result<std::unique_ptr<Devices>> open(std::span<const DeviceSettings> settings,
                                               unsigned workers,
                                               const std::vector<std::string>& eal_options);
  /// The end of the process closes taps and memifs: nobody opens them anew in this one.
  ~Devices();
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  std::size_t count() const;
  const DeviceName& name(std::size_t device) const;
  Mac mac(std::size_t device) const;
  unsigned mtu(std::size_t device) const;
  DeviceStatistics statistics(std::size_t device) const;
  /// What devices do otherwise than they should, for want of a permission: a line each.
  std::vector<std::string> warnings() const;
  Pages pages() const;

  /// Packets come from now on.
  Result<void> start();

  /// Lets go what has come so far; before workers receive.
  void discard();
  /// What is restored at the end, by this process or another, of each interface of the kernel's
  /// that it has; of a tap, nothing.
  InterfaceSettings to_restore() const;
  /// Restores those, too, at the end, and last; at once where no device is that interface.
  void restore(InterfaceSettings settings);
  void restore_none();

  /// Those of all devices; queue n is worker n % workers's.
  unsigned receive_queues() const;
  /// A worker's thread calls it first of all.
  static void join();
  static void leave();
  /// Adds packets of that queue to the burst, which has room for them, `most` of them at most; how
  /// many. Writes `data`, `length`, `wire_length` and `handle`.
  unsigned receive(unsigned queue, Burst& burst, unsigned most);
  /// Sends frames on their links, in their order on each; how many were not taken, and are freed.
  unsigned transmit(unsigned worker, std::span<const Outgoing> frames);
  /// Whether frames of that worker wait for a queue that another one uses: until it transmits
  /// again.
  bool has_waiting(unsigned worker) const;
  /// Sends those, waiting for whoever uses the queue; as `transmit`.
  unsigned drain(unsigned worker);

  /// Memory for a frame of `bytes`; null where none is left.
  Outgoing make(unsigned bytes);
  static void free(std::span<const Handle> handles);
  /// One more must free it, too.
  static void share(Handle handle, unsigned more);
  /// A packet's place in a burst, as `receive` writes it.
  static void place(Burst& burst, unsigned at, Handle handle);
  /// Returns the bytes of a frame as it came, or as `set_length` has it.
  static std::span<std::byte> bytes(Handle handle);
  /// Sets how many bytes a frame has that was made, from where `make` said it begins.
  static void set_length(Handle handle, std::uint16_t length);
  /// The device that it came from.
  unsigned device_of(Handle handle) const;

 private:
  struct Impl;
  explicit Devices(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
