// An interface of the kernel's that millrace makes: a tap, whose other end is millrace. Linux only.
//
// It stays when millrace ends, with its addresses and whatever routes others gave it, so that the
// next millrace, or one that takes over, finds all of that; `ip link delete` takes it away.
//
// One thread opens, starts and destroys it and sets its addresses. Another one may read, write and
// set the carrier meanwhile, from `start` to the destruction.
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
  unsigned bits = 0;  ///< of the network that is on the link

  friend auto operator<=>(const TapAddress&, const TapAddress&) = default;
};

struct TapSettings {
  std::string name;
  Mac mac;
  unsigned mtu = 1500;
  std::vector<TapAddress> addresses;  ///< all of them, but for link-local ones of IPv6
};

class KernelTap {
 public:
  /// Makes the interface, or finds the one that is there: that stays as it is, since another
  /// millrace may have it still. Errors: this process may not (unreadable); another program has it,
  /// or it is no such interface (failed).
  static Result<KernelTap> open(const TapSettings& settings);
  KernelTap(KernelTap&& other) noexcept;
  KernelTap& operator=(KernelTap&&) = delete;
  ~KernelTap();

  /// Sets the interface up, and begins to read what the kernel sends. Until then all of that goes
  /// to the millrace which has the interface too, if there is one; afterwards each of both gets a
  /// part. Errors (failed) name the address that it does not take.
  Result<void> start();
  /// Gives the interface these addresses, and takes away all others but link-local ones of IPv6;
  /// without IPv6 addresses the kernel has no IPv6 there. Routes by the interface stay as long as
  /// one of its addresses does. Does nothing where somebody has taken the interface away. Errors:
  /// as `start`.
  Result<void> set_addresses(std::span<const TapAddress> addresses);
  /// Reads no more: the kernel gives what it sends to the millrace that has the interface too.
  void stop();
  /// Returns what may go wrong outside of millrace, a line each: another interface of the kernel's
  /// has an address of this one.
  std::vector<std::string> doubts() const;
  /// Returns addresses that somebody else has given the interface, so that nothing which comes to
  /// them is the kernel's; but link-local ones of IPv6. Any thread that sets no addresses
  /// meanwhile.
  std::vector<std::string> foreign_addresses() const;
  /// Tells the kernel whether there is a link behind the interface.
  void set_carrier(bool is_up);

  const std::string& name() const { return settings_.name; }
  /// The descriptor to wait at for frames that the kernel sends.
  int fd() const { return fd_; }
  /// Reads a frame that the kernel sends, and returns its length in bytes; 0 where there is none.
  /// Of one that is longer than `frame` has bytes the rest is lost, and a number beyond these
  /// returned.
  std::size_t read(std::span<std::byte> frame) const;
  /// Has the kernel receive a frame. False: it does not take it.
  bool write(std::span<const std::byte> frame) const;

 private:
  KernelTap(TapSettings settings, int fd) : settings_(std::move(settings)), fd_(fd) {}

  TapSettings settings_;  ///< as it was opened
  int fd_;
  int index_ = 0;  ///< stays when somebody gives the interface another name
  int carrier_ = -1;
  std::set<TapAddress> has_;  ///< by `set_addresses`
};

}  // namespace millrace
