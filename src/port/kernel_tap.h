// An interface of the kernel's that millrace makes: a tap, whose other end is millrace. Linux only.
//
// It stays when millrace ends, with its addresses and whatever routes others gave it, so that the
// next millrace, or one that takes over, finds all of that; `ip link delete` takes it away.
#pragma once

#include <cstddef>
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

/// One thread at a time.
class KernelTap {
 public:
  /// Makes it, or finds it: then it stays as it is, since another millrace may have it still.
  /// Errors: it may not (unreadable); another program has it, or it is no such interface (failed).
  static Result<KernelTap> open(const TapSettings& settings);
  KernelTap(KernelTap&& other) noexcept;
  KernelTap& operator=(KernelTap&&) = delete;
  ~KernelTap();

  /// Sets it up. From now on what the kernel sends comes here; it goes to the millrace that has had
  /// it, too. Errors (failed) name the address that it does not take.
  Result<void> start();
  /// Has these addresses, and no others; nothing where somebody has taken the interface away.
  /// Errors: as `start`.
  Result<void> set_addresses(std::span<const TapAddress> addresses);
  /// Whether there is a link behind it.
  void set_carrier(bool is_up);

  const std::string& name() const { return settings_.name; }
  int fd() const { return fd_; }
  /// A frame that the kernel sends; its bytes, 0 where there is none. Longer ones are cut.
  std::size_t read(std::span<std::byte> frame) const;
  /// The kernel receives it. False: it does not take it.
  bool write(std::span<const std::byte> frame) const;

 private:
  KernelTap(TapSettings settings, int fd) : settings_(std::move(settings)), fd_(fd) {}

  TapSettings settings_;  ///< as it was opened
  int fd_;
  int index_ = 0;  ///< stays when somebody gives the interface another name
  int carrier_ = -1;
};

}  // namespace millrace
