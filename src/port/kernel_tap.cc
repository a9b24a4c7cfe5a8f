#include "port/kernel_tap.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <libmnl/libmnl.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/if_tun.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "port/kernel_interface.h"
#include "port/netlink.h"

namespace millrace {
namespace {

constexpr const char* kFile = "/dev/net/tun";

std::unexpected<Error> failed(const std::string& name, const std::string& what, int error) {
  return std::unexpected(Error{fmt::format("{}: {}: {}", name, what, std::strerror(error))});
}

int set_up(Netlink& netlink, const TapSettings& settings, int index) {
  nlmsghdr* const message = netlink.begin(RTM_NEWLINK, NLM_F_ACK);
  auto* const link = put<ifinfomsg>(message);
  link->ifi_index = index;
  link->ifi_flags = link->ifi_change = IFF_UP;
  mnl_attr_put(message, IFLA_ADDRESS, settings.mac.bytes.size(), settings.mac.bytes.data());
  mnl_attr_put_u32(message, IFLA_MTU, settings.mtu);
  return netlink.ask(message);
}

int change_address(Netlink& netlink, std::uint16_t type, int index, const TapAddress& address) {
  const auto flags = type == RTM_NEWADDR ? NLM_F_CREATE | NLM_F_REPLACE : 0;
  nlmsghdr* const message = netlink.begin(type, static_cast<std::uint16_t>(NLM_F_ACK | flags));
  auto* const is = put<ifaddrmsg>(message);
  is->ifa_index = static_cast<std::uint32_t>(index);
  is->ifa_prefixlen = static_cast<std::uint8_t>(address.bits);
  is->ifa_flags = IFA_F_NODAD;  // no duplicate detection: millrace has the address as well
  std::visit(
      [&]<class A>(const A& of) {
        is->ifa_family = A::kBytes == 4 ? AF_INET : AF_INET6;
        mnl_attr_put(message, IFA_LOCAL, of.bytes.size(), of.bytes.data());
        mnl_attr_put(message, IFA_ADDRESS, of.bytes.size(), of.bytes.data());
      },
      address.address);
  return netlink.ask(message);
}

using Addresses = std::set<TapAddress>;

/// One answer of the kernel, and the set to which its address is added.
struct Told {
  ifaddrmsg is{};
  Addresses& all;
};

int hear_address(const nlattr* attribute, void* to) {
  const auto& [is, all] = *static_cast<Told*>(to);
  const auto read = [&]<class A>(A address) {
    if (mnl_attr_get_payload_len(attribute) != address.bytes.size()) return;
    std::memcpy(address.bytes.data(), mnl_attr_get_payload(attribute), address.bytes.size());
    all.insert({address, is.ifa_prefixlen});
  };
  const int type = mnl_attr_get_type(attribute);
  if (is.ifa_family == AF_INET && type == IFA_LOCAL) read(AddressV4());
  if (is.ifa_family == AF_INET6 && type == IFA_ADDRESS) read(AddressV6());
  return MNL_CB_OK;
}

/// Returns all interfaces' addresses by interface index, except link-local ones, which the kernel
/// makes itself.
std::map<int, Addresses> all_addresses(Netlink& netlink) {
  std::map<int, Addresses> all;
  nlmsghdr* const message = netlink.begin(RTM_GETADDR, NLM_F_DUMP);
  put<ifaddrmsg>(message)->ifa_family = AF_UNSPEC;
  netlink.ask(message, [&](const nlmsghdr* one) {
    const auto is = *static_cast<const ifaddrmsg*>(mnl_nlmsg_get_payload(one));
    if (is.ifa_scope == RT_SCOPE_LINK) return;
    Told told{.is = is, .all = all[static_cast<int>(is.ifa_index)]};
    mnl_attr_parse(one, sizeof(ifaddrmsg), hear_address, &told);
  });
  return all;
}

Addresses addresses_of(Netlink& netlink, int index) { return all_addresses(netlink)[index]; }

/// Writes a setting of the interface, of family "ipv4" or "ipv6". Errors are ignored: a kernel
/// without the file has nothing to set.
void configure(const std::string& name, std::string_view family, std::string_view setting,
               std::string_view value) {
  std::ofstream(fmt::format("/proc/sys/net/{}/conf/{}/{}", family, name, setting))
      << value << std::flush;
}

}  // namespace

Result<KernelTap> KernelTap::open(const TapSettings& settings) {
  const std::string& name = settings.name;
  if (auto ok = KernelInterface::check_tap(name); !ok) return std::unexpected(ok.error());
  KernelTap tap(settings, ::open(kFile, O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (tap.fd_ < 0) return failed(name, kFile, errno);
  ifreq request{};
  std::memcpy(request.ifr_name, name.c_str(), std::min<std::size_t>(name.size(), IFNAMSIZ - 1));
  request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_MULTI_QUEUE;
  if (::ioctl(tap.fd_, TUNSETIFF, &request) != 0) {
    if (errno != EINVAL && errno != EBUSY) return failed(name, "cannot be made", errno);
    return std::unexpected(
        Error{name +
              " exists, and is not an interface that millrace made: give the port's `kernel` "
              "another name, or delete that interface (ip link delete " +
              name + ")"});
  }
  // Detached until `start`: another millrace may still use the interface.
  request.ifr_flags = IFF_DETACH_QUEUE;
  if (::ioctl(tap.fd_, TUNSETQUEUE, &request) != 0) return failed(name, "cannot be set up", errno);
  tap.index_ = static_cast<int>(::if_nametoindex(name.c_str()));
  return tap;
}

KernelTap::KernelTap(KernelTap&& other) noexcept
    : settings_(std::move(other.settings_)),
      fd_(std::exchange(other.fd_, -1)),
      index_(other.index_),
      carrier_(other.carrier_),
      has_(std::move(other.has_)) {}

KernelTap::~KernelTap() {
  if (fd_ >= 0) ::close(fd_);
}

Result<void> KernelTap::start() {
  // Without promote_secondaries, deleting an address also deletes other addresses of its network,
  // and deleting the last address deletes all routes by the interface.
  configure(name(), "ipv4", "promote_secondaries", "1");
  configure(name(), "ipv6", "addr_gen_mode", "0");  // the same link-local address as millrace
  configure(name(), "ipv6", "autoconf", "0");       // packets to SLAAC addresses would be routed
  configure(name(), "ipv6", "accept_dad", "0");
  configure(name(), "ipv6", "keep_addr_on_down", "1");
  Netlink netlink;
  if (const int error = set_up(netlink, settings_, index_); error != 0)
    return failed(name(), "cannot be set up", error);
  if (auto ok = set_addresses(settings_.addresses); !ok) return ok;
  ifreq request{};
  request.ifr_flags = IFF_ATTACH_QUEUE;
  if (::ioctl(fd_, TUNSETQUEUE, &request) != 0 || ::ioctl(fd_, TUNSETPERSIST, 1) != 0)
    return failed(name(), "does not start", errno);
  return {};
}

Result<void> KernelTap::set_addresses(std::span<const TapAddress> addresses) {
  std::array<char, IF_NAMESIZE> its_name{};
  if (::if_indextoname(static_cast<unsigned>(index_), its_name.data()) == nullptr) return {};
  const bool has_v6 = std::ranges::any_of(addresses, [](const TapAddress& one) {
    return std::holds_alternative<AddressV6>(one.address);
  });
  configure(its_name.data(), "ipv6", "disable_ipv6", has_v6 ? "0" : "1");
  Netlink netlink;
  const Addresses wanted(addresses.begin(), addresses.end());
  has_ = wanted;
  const auto add_missing = [&]() -> Result<void> {
    const Addresses there = addresses_of(netlink, index_);
    for (const TapAddress& one : wanted) {
      if (there.contains(one)) continue;
      const int error = change_address(netlink, RTM_NEWADDR, index_, one);
      if (error == ENODEV) return {};
      if (error == 0) continue;
      return failed(name(), fmt::format("does not take {}/{}", to_string(one.address), one.bits),
                    error);
    }
    return {};
  };
  if (auto ok = add_missing(); !ok) return ok;
  for (const TapAddress& one : addresses_of(netlink, index_)) {
    if (!wanted.contains(one)) change_address(netlink, RTM_DELADDR, index_, one);
  }
  return add_missing();  // deletions may have removed wanted addresses, too
}

void KernelTap::stop() {
  ifreq request{};
  request.ifr_flags = IFF_DETACH_QUEUE;
  static_cast<void>(::ioctl(fd_, TUNSETQUEUE, &request));
}

std::vector<std::string> KernelTap::doubts() const {
  std::vector<std::string> all;
  Netlink netlink;
  for (const auto& [index, addresses] : all_addresses(netlink)) {
    std::array<char, IF_NAMESIZE> its{};
    if (index == index_ || ::if_indextoname(static_cast<unsigned>(index), its.data()) == nullptr)
      continue;
    for (const TapAddress& one : addresses) {
      if (std::ranges::count(has_, one.address, &TapAddress::address) == 0) continue;
      all.push_back(
          fmt::format("{1} and {0} both have {2}, so the kernel may send by {1} what should "
                      "go by {0}: ip address delete {2}/{3} dev {1}",
                      name(), its.data(), to_string(one.address), one.bits));
    }
  }
  return all;
}

std::vector<std::string> KernelTap::foreign_addresses() const {
  std::vector<std::string> all;
  Netlink netlink;
  for (const TapAddress& one : addresses_of(netlink, index_)) {
    if (!has_.contains(one)) all.push_back(to_string(one.address));
  }
  return all;
}

void KernelTap::set_carrier(bool is_up) {
  const int carrier = is_up ? 1 : 0;
  if (carrier == carrier_) return;
  if (::ioctl(fd_, TUNSETCARRIER, &carrier) == 0) carrier_ = carrier;
}

std::size_t KernelTap::read(std::span<std::byte> frame) const {
  std::byte more{};
  const std::array<iovec, 2> parts{{{frame.data(), frame.size()}, {&more, 1}}};
  const auto got = ::readv(fd_, parts.data(), parts.size());
  return got > 0 ? static_cast<std::size_t>(got) : 0;
}

bool KernelTap::write(std::span<const std::byte> frame) const {
  return ::write(fd_, frame.data(), frame.size()) == std::ssize(frame);
}

}  // namespace millrace
