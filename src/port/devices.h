// Network devices, driven by DPDK: where packets come from and go to when millrace runs live.
//
// Users of this class see *links*, numbered as their settings were given: a device, or one of the
// VLANs on a device (link_map.h). Frames have such a VLAN's tag on the wire only: `receive` takes
// tags off, and `transmit` puts them on. A link that takes all other VLANs keeps the tags.
//
// One thread opens, starts and closes the devices; any thread may read statistics. One worker at a
// time polls a receive queue, and only worker n calls `transmit`, `has_waiting` and `drain` with
// the number n. Packets may pass between workers. No DPDK type shows here: a `Handle` is an
// `rte_mbuf*`.
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
#include "port/link_map.h"

namespace millrace {

/// Packet counters of a link since its device was opened, and its state. If the device has VLANs,
/// `in` and `out` are those of the link's own frames.
struct LinkStatistics {
  std::uint64_t in = 0;
  std::uint64_t out = 0;
  /// Packets of any link of the device that the device dropped: the queue was full, or no memory
  /// was left.
  std::uint64_t missed = 0;
  bool link_is_up = false;
};

class Devices {
 public:
  /// Checks the kernel's interfaces, taps and memifs' sockets, and starts DPDK, which then takes
  /// the PCI devices. `open` begins with the same steps; call `prepare` to learn early whether
  /// `open` can succeed. Errors: as `open`.
  static Result<void> prepare(std::span<const LinkSettings> settings,
                              const std::vector<std::string>& eal_options);
  /// Opens all devices for `workers` workers, with packet memory for their queues. Errors:
  /// unreadable (a device cannot be opened), failed (a device is not ready or its driver refuses
  /// it, there is no memory, or DPDK does not start). The message names the device at fault.
  static Result<std::unique_ptr<Devices>> open(std::span<const LinkSettings> settings,
                                               unsigned workers,
                                               const std::vector<std::string>& eal_options);
  /// Stops and closes the devices, except memifs and taps without `remote=`: the end of the process
  /// closes those. So a process cannot open them twice.
  ~Devices();
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  unsigned links() const;
  /// Returns the name of the link's device.
  const DeviceName& name(unsigned link) const;
  /// Returns the link's VLAN; 0: its frames have no tag, or keep it.
  unsigned vlan(unsigned link) const;
  /// Returns the MAC of the link's device.
  Mac mac(unsigned link) const;
  unsigned mtu(unsigned link) const;
  LinkStatistics statistics(unsigned link) const;
  /// Returns warnings of one line each about faults of devices that this process could not prevent.
  std::vector<std::string> warnings() const;
  Pages pages() const;

  /// Starts the devices: packets arrive from now on. Errors: failed (a device does not start, or a
  /// memif cannot show its socket).
  Result<void> start();

  /// Drops the packets that have arrived so far, at most 8192 of each queue. To be called before
  /// workers receive.
  void discard();
  /// Returns the settings to restore when this process, or one that takes over, ends: one element
  /// for each interface whose packets come through the kernel; a tap's is empty.
  InterfaceSettings to_restore() const;
  /// Adds settings to restore at the end, after this process's own. If no device uses an interface,
  /// its settings are restored at once.
  void restore(InterfaceSettings settings);
  void restore_none();

  /// Returns the number of receive queues of all devices. Queue n belongs to worker n % workers at
  /// first.
  unsigned receive_queues() const;
  /// True if frames of several links may come by the queue, or frames of no link.
  bool has_vlans(unsigned queue) const;
  /// Returns the first link of the queue's device.
  unsigned first_link(unsigned queue) const;
  /// Registers the calling thread with DPDK. A worker's thread calls `join` before any other
  /// function of this class.
  static void join();
  static void leave();
  /// Appends at most `most` packets of `queue` to the burst, as far as there is room, and returns
  /// their number. Writes `data`, `length`, `wire_length`, `handle` and `link`; the link is
  /// `kNoLink` for a frame of a VLAN that no link has, or without a tag on a device whose links all
  /// have VLANs. Such a frame keeps its tag.
  unsigned receive(unsigned queue, Burst& burst, unsigned most);
  /// Sends frames on their links, on each in the given order, or lets them wait (`has_waiting`).
  /// Returns how many frames the devices did not accept, frames that had waited included; these
  /// frames are freed. A frame that others share (`share`) must not be sent.
  unsigned transmit(unsigned worker, std::span<const Outgoing> frames);
  /// True if frames of `worker` wait because another worker was using the send queue. They are sent
  /// by the next `transmit` that finds the queue free, or by `drain`.
  bool has_waiting(unsigned worker) const;
  /// Sends the waiting frames; blocks while another worker uses the queue. Returns how many of them
  /// the devices did not accept; these are freed.
  unsigned drain(unsigned worker);

  /// Returns memory for a frame of `bytes`; handle 0 and data null if no memory is left, or if
  /// `bytes` do not fit. Any thread.
  Outgoing make(unsigned bytes);
  static void free(std::span<const Handle> handles);
  /// Adds `more` references to the frame; each reference must be freed, too.
  static void share(Handle handle, unsigned more);
  /// Writes a packet to place `at` of a burst, as `receive` does.
  static void place(Burst& burst, unsigned at, Handle handle);
  /// Returns the bytes of a frame, in the length as received or set by `set_length`.
  static std::span<std::byte> bytes(Handle handle);
  /// Sets the length of a frame that came from `make`, counted from its first byte.
  static void set_length(Handle handle, std::uint16_t length);
  /// Returns the link on which the packet arrived, or for which it is marked.
  unsigned link_of(Handle handle) const;
  /// Marks a frame as one that the kernel sends on a link.
  static void mark_of_kernel(Handle handle, unsigned link);
  static bool has_kernel_mark(Handle handle);
  /// Marks the packet at place `at` in a burst as its customer's, and cuts its frame to what the
  /// burst has of it.
  static void mark_of_customer(const Burst& burst, unsigned at);
  /// Returns the customer in a frame's mark; 0: none.
  static Zone customer_of(Handle handle);
  /// Marks a packet as one that comes again, on its link, with the bytes that it has now.
  static void mark_as_again(const Outgoing& packet);
  static bool comes_again(Handle handle);
  /// Marks a frame from `make` as a packet that another server has sent here, which got it on that
  /// link from that customer (0: none).
  static void mark_as_hopped(Handle handle, unsigned link, Zone customer);
  static bool has_hopped(Handle handle);
  /// Numbers from which on a frame's port, in DPDK's words, is a mark with a link's number in its
  /// low byte: a packet from another server, one that comes again, a frame of a customer, one of a
  /// link whose device has VLANs, and one that the kernel sends.
  static constexpr unsigned kHopped = 0xfb00;
  static constexpr unsigned kAgain = 0xfc00;
  static constexpr unsigned kOfCustomer = 0xfd00;
  static constexpr unsigned kOfLink = 0xfe00;
  static constexpr unsigned kOfKernel = 0xff00;

 private:
  struct Impl;
  explicit Devices(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
