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
  /// Makes it, or finds it; sets it up. Errors: it may not (unreadable); another program has it, or
  /// it is no such interface (failed).
  static Result<KernelTap> open(const TapSettings& settings);
  KernelTap(KernelTap&& other) noexcept;
  KernelTap& operator=(KernelTap&&) = delete;
  ~KernelTap();

  /// From now on what the kernel sends comes here. Before, it goes to the millrace that has it,
  /// too.
  Result<void> start();
  /// Has these addresses, and no others. Errors (failed) name the address.
  Result<void> set_addresses(std::span<const TapAddress> addresses);
  /// Whether there is a link behind it.
  void set_carrier(bool is_up);

  const std::string& name() const { return name_; }
  int fd() const { return fd_; }
  /// A frame that the kernel sends; its bytes, 0 where there is none. Longer ones are cut.
  std::size_t read(std::span<std::byte> frame) const;
  /// The kernel receives it. False: it does not take it.
  bool write(std::span<const std::byte> frame) const;

 private:
  KernelTap(std::string name, int fd) : name_(std::move(name)), fd_(fd) {}

  std::string name_;
  int fd_;
  int carrier_ = -1;
};

}  // namespace millrace
