// An interface that millrace makes for the kernel: a tap, with millrace at its other end. Linux
// only.
//
// The interface stays when millrace ends, with its addresses and the routes that other programs
// gave it, for the next millrace or one that takes over. `ip link delete` removes it.
//
// One thread opens, starts and destroys a `KernelTap` and sets its addresses. From `start` to the
// destruction another thread may at the same time read, write and set the carrier.
#pragma once

#include <cstddef>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/address.h"
#include "core/mac.h"
#include "millrace/types.h"

namespace millrace {

struct TapAddress {
  AnyAddress address;
  unsigned bits = 0;  ///< prefix length of the network on the link

  friend auto operator<=>(const TapAddress&, const TapAddress&) = default;
};

struct TapSettings {
  std::string name;
  Mac mac;
  unsigned mtu = 1500;
  std::vector<TapAddress> addresses;  ///< all addresses except IPv6 link-local ones
};

class KernelTap {
 public:
  /// Makes the interface, or opens an existing one. An existing interface stays unchanged until
  /// `start`, since another millrace may still use it. Errors: unreadable (this process may not),
  /// failed (another program has the interface, or it is not a multi-queue tap).
  static Result<KernelTap> open(const TapSettings& settings);
  KernelTap(KernelTap&& other) noexcept;
  KernelTap& operator=(KernelTap&&) = delete;
  ~KernelTap();

  /// Sets the interface up, and begins to read what the kernel sends. If another millrace has the
  /// interface, too, that millrace gets all frames of the kernel before this call, and each of the
  /// two gets a part of them afterwards. Errors: failed (the interface cannot be set up, or refuses
  /// an address, which the message names).
  Result<void> start();
  /// Gives the interface exactly these addresses, besides IPv6 link-local ones. Without an IPv6
  /// address, IPv6 is turned off there. Routes by the interface stay as long as one of its
  /// addresses stays. Does nothing if the interface has been deleted. Errors: failed (an address is
  /// refused).
  Result<void> set_addresses(std::span<const TapAddress> addresses);
  /// Stops reading: frames of the kernel go to another millrace that has the interface, if there is
  /// one.
  void stop();
  /// Returns warnings, one a line, about other interfaces that have an address of this one.
  std::vector<std::string> doubts() const;
  /// Returns the interface's addresses that millrace did not set, without IPv6 link-local ones.
  /// Packets to these addresses do not reach the kernel. Any thread, but not during
  /// `set_addresses`.
  std::vector<std::string> foreign_addresses() const;
  /// Sets the interface's carrier to the state of the port's link.
  void set_carrier(bool is_up);

  const std::string& name() const { return settings_.name; }
  /// Returns the descriptor to poll for frames that the kernel sends.
  int fd() const { return fd_; }
  /// Reads a frame that the kernel sends, and returns its length in bytes; 0 if there is none. A
  /// frame that is longer than `frame` is cut off, and a length greater than `frame.size()`
  /// returned.
  std::size_t read(std::span<std::byte> frame) const;
  /// Makes the kernel receive a frame. False: the kernel does not accept it.
  bool write(std::span<const std::byte> frame) const;

 private:
  KernelTap(TapSettings settings, int fd) : settings_(std::move(settings)), fd_(fd) {}

  TapSettings settings_;  ///< settings that `open` was given
  int fd_;
  int index_ = 0;  ///< the kernel's number, which stays when the interface is renamed
  int carrier_ = -1;
  std::set<TapAddress> has_;  ///< the addresses that `set_addresses` was given
};

}  // namespace millrace
