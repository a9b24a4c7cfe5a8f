#include "port/kernel_interface.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <linux/capability.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <ranges>
#include <string_view>
#include <utility>

#include "port/ethtool_features.h"
#include "port/xdp_pass.h"

namespace millrace {
namespace {

class Socket {
 public:
  Socket(int family, int type, int protocol = 0)
      : fd_(::socket(family, type | SOCK_CLOEXEC, protocol)) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

ifreq request_for(const std::string& name) {
  ifreq request{};
  std::memcpy(request.ifr_name, name.c_str(), std::min<std::size_t>(name.size(), IFNAMSIZ - 1));
  return request;
}

/// Performs an ioctl that reads a property of an interface; none on failure.
std::optional<ifreq> ask(const std::string& name, unsigned long what) {
  const Socket socket(AF_INET, SOCK_DGRAM);
  ifreq request = request_for(name);
  if (::ioctl(socket.fd(), what, &request) != 0) return std::nullopt;
  return request;
}

/// Performs an ethtool command that gets or sets one value.
bool ethtool(const std::string& name, ethtool_value& value) {
  const Socket socket(AF_INET, SOCK_DGRAM);
  ifreq request = request_for(name);
  request.ifr_data = reinterpret_cast<char*>(&value);
  return ::ioctl(socket.fd(), SIOCETHTOOL, &request) == 0;
}

unsigned queues_of(const std::string& name) {
  const Socket socket(AF_INET, SOCK_DGRAM);
  ethtool_channels channels{};
  channels.cmd = ETHTOOL_GCHANNELS;
  ifreq request = request_for(name);
  request.ifr_data = reinterpret_cast<char*>(&channels);
  if (::ioctl(socket.fd(), SIOCETHTOOL, &request) != 0) return 1;
  return std::max(1U, channels.rx_count + channels.combined_count);
}

std::string driver_of(const std::string& name) {
  const Socket socket(AF_INET, SOCK_DGRAM);
  ethtool_drvinfo info{};
  info.cmd = ETHTOOL_GDRVINFO;
  ifreq request = request_for(name);
  request.ifr_data = reinterpret_cast<char*>(&info);
  return ::ioctl(socket.fd(), SIOCETHTOOL, &request) == 0 ? info.driver : "";
}

bool has_net_admin() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> has{};
  return ::syscall(SYS_capget, &header, has.data()) == 0 &&
         (has[CAP_TO_INDEX(CAP_NET_ADMIN)].effective & CAP_TO_MASK(CAP_NET_ADMIN)) != 0;
}

std::string names_of_all() {
  const std::unique_ptr<struct if_nameindex, decltype(&::if_freenameindex)> all(
      ::if_nameindex(), &::if_freenameindex);
  std::string names;
  for (const struct if_nameindex* one = all.get(); one != nullptr && one->if_index != 0; ++one)
    names.append(names.empty() ? "" : ", ").append(one->if_name);
  return names;
}

std::unexpected<Error> wrong(const std::string& what, Error::Kind kind = Error::Kind::failed) {
  return std::unexpected(Error{what, kind});
}

struct Offload {
  std::uint32_t get;
  std::uint32_t set;
};
constexpr std::array kOffloads{
    Offload{ETHTOOL_GGRO, ETHTOOL_SGRO}, Offload{ETHTOOL_GTSO, ETHTOOL_STSO},
    Offload{ETHTOOL_GGSO, ETHTOOL_SGSO}, Offload{ETHTOOL_GTXCSUM, ETHTOOL_STXCSUM}};

/// The features by which an interface takes tags off frames, and those by which it receives the
/// frames of some VLANs only. "stag": tags of the type 0x88a8.
constexpr std::array<std::string_view, 4> kFeatures{"rx-vlan-hw-parse", "rx-vlan-stag-hw-parse",
                                                    "rx-vlan-filter", "rx-vlan-stag-filter"};

/// A setting that keeps the kernel's own stack from packets that are millrace's. An interface
/// without an address still forwards packets that have a route, and receives packets for an address
/// of any other interface. Strict reverse path filtering drops packets for such an address unless
/// replies would leave here (RFC 3704).
struct Fence {
  std::string_view family;
  std::string_view setting;
  std::string_view value;
  std::string_view what;

  std::string file(const std::string& interface) const {
    return fmt::format("/proc/sys/net/{}/conf/{}/{}", family, interface, setting);
  }
};
constexpr std::array kFences{Fence{"ipv4", "forwarding", "0", "the kernel's forwarding"},
                             Fence{"ipv4", "rp_filter", "1", "the kernel's reception"},
                             Fence{"ipv6", "disable_ipv6", "1", "the kernel's IPv6"}};

}  // namespace

Result<KernelInterface> KernelInterface::take(const std::string& name) {
  using enum Error::Kind;
  // A longer name would be cut, perhaps to another interface's name.
  const bool is_name = name.size() < IFNAMSIZ;
  const auto flags = is_name ? ask(name, SIOCGIFFLAGS) : std::nullopt;
  if (!flags)
    return wrong("no interface is called " + name + ": there are " + names_of_all(), unreadable);
  if (const Socket raw(AF_PACKET, SOCK_RAW); raw.fd() < 0)
    return wrong(
        name + ": this process may not read the interface: run as root, or with CAP_NET_RAW",
        unreadable);
  if ((flags->ifr_flags & IFF_LOOPBACK) != 0)
    return wrong(name +
                 " is this machine's loopback, which has no other end: use another interface");
  if ((flags->ifr_flags & IFF_UP) == 0)
    return wrong(name + " is down: ip link set " + name + " up");
  if (const auto addresses = addresses_of(name); !addresses.empty()) {
    return wrong(
        fmt::format("{0} has addresses that the kernel answers for ({1}): take them away "
                    "(ip address flush dev {0}, which ends logins over these addresses; "
                    "docs/one-card.md says how the port's kernel interface gets them), or "
                    "use another interface",
                    name, fmt::join(addresses, ", ")));
  }
  KernelInterface interface(name);
  const auto mac = mac_of(name);
  const auto mtu = ask(name, SIOCGIFMTU);
  if (!mac || !mtu) return wrong(name + " went away", unreadable);
  interface.mac_ = *mac;
  interface.mtu_ = static_cast<unsigned>(mtu->ifr_mtu);
  interface.queues_ = queues_of(name);
  interface.program_ = attached_xdp_pass(::if_nametoindex(name.c_str()));
  return interface;
}

std::vector<std::string> KernelInterface::addresses_of(const std::string& name) {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> all(first, &::freeifaddrs);
  std::vector<std::string> addresses;
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || name != one->ifa_name) continue;
    std::array<char, INET6_ADDRSTRLEN> text{};
    const int family = one->ifa_addr->sa_family;
    if (family == AF_INET) {
      const auto* address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
      ::inet_ntop(family, &address->sin_addr, text.data(), text.size());
    } else if (family == AF_INET6) {
      const auto* address = reinterpret_cast<const sockaddr_in6*>(one->ifa_addr);
      if (IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr)) continue;
      ::inet_ntop(family, &address->sin6_addr, text.data(), text.size());
    } else {
      continue;
    }
    addresses.emplace_back(text.data());
  }
  return addresses;
}

std::optional<Mac> KernelInterface::mac_of(const std::string& name) {
  const auto is = ask(name, SIOCGIFHWADDR);
  if (!is) return std::nullopt;
  Mac mac;
  std::memcpy(mac.bytes.data(), is->ifr_hwaddr.sa_data, mac.bytes.size());
  return mac;
}

Result<void> KernelInterface::check_tap(const std::string& name) {
  constexpr const char* kFile = "/dev/net/tun";
  if (::access(kFile, F_OK) != 0)
    return wrong("tap:" + name + ": there is no " + kFile + ": modprobe tun",
                 Error::Kind::unreadable);
  if (!has_net_admin() || ::access(kFile, R_OK | W_OK) != 0)
    return wrong(
        "tap:" + name + ": this process may not make the tap: run as root, or with CAP_NET_ADMIN",
        Error::Kind::unreadable);
  if (mac_of(name) && driver_of(name) != "tun")
    return wrong(name + " exists, and is not an interface that millrace made: give another name, " +
                 "or delete that interface (ip link delete " + name + ")");
  return {};
}

KernelInterface::KernelInterface(KernelInterface&& other) noexcept
    : name_(std::move(other.name_)),
      mac_(other.mac_),
      mtu_(other.mtu_),
      queues_(other.queues_),
      program_(std::exchange(other.program_, -1)),
      was_(std::exchange(other.was_, {})) {}

void KernelInterface::restore(std::vector<InterfaceSetting> settings) {
  was_.insert(was_.begin(), std::make_move_iterator(settings.begin()),
              std::make_move_iterator(settings.end()));
}

void KernelInterface::set(const std::string& name, const std::vector<InterfaceSetting>& settings) {
  for (const InterfaceSetting& was : settings | std::views::reverse) {
    if (was.file.empty() && std::ranges::find(kFeatures, was.value) != kFeatures.end()) {
      set_feature(name, was.value, true);
    } else if (was.file.empty()) {
      ethtool_value value{.cmd = was.command, .data = 1};
      ethtool(name, value);
    } else if (std::ranges::any_of(
                   kFences, [&](const Fence& fence) { return was.file == fence.file(name); })) {
      std::ofstream(was.file) << was.value;
    }
  }
}

KernelInterface::~KernelInterface() {
  set(name_, was_);
  if (program_ >= 0) ::close(program_);
}

bool KernelInterface::is_running() const {
  const auto flags = ask(name_, SIOCGIFFLAGS);
  return flags && (flags->ifr_flags & IFF_UP) != 0 && (flags->ifr_flags & IFF_RUNNING) != 0;
}

std::string KernelInterface::fence() {
  std::string left;
  const auto note = [&left](bool done, std::string_view what) {
    if (!done) left.append(left.empty() ? "" : ", ").append(what);
  };
  bool offloads = true;
  for (const Offload& offload : kOffloads) offloads &= turn_off(offload.get, offload.set);
  note(offloads, "its offloads");
  for (const Fence& fence : kFences)
    note(write_setting(fence.file(name_), std::string(fence.value)), fence.what);
  if (left.empty()) return left;
  return name_ + ": this process may not turn off " + left +
         ": run as root, or with CAP_NET_ADMIN and a writable /proc/sys";
}

std::string KernelInterface::keep_tags() {
  if (turn_off(kFeatures[0]) && turn_off(kFeatures[1])) return {};
  return fmt::format(
      "{0} takes the tags of VLANs off, which cannot be turned off (ethtool -K {0} rxvlan off): "
      "millrace takes frames of any VLAN for frames without a tag",
      name_);
}

std::string KernelInterface::receive_all_vlans() {
  if (turn_off(kFeatures[2]) && turn_off(kFeatures[3])) return {};
  return fmt::format(
      "{0} receives the frames of some VLANs only, which cannot be turned off (ethtool -K {0} "
      "rx-vlan-filter off): if frames are missing, try ip link set {0} promisc on",
      name_);
}

bool KernelInterface::refuse_large_packets() {
  if (driver_of(name_) != "veth") return true;  // no other end
  if (program_ < 0) program_ = attach_xdp_pass(::if_nametoindex(name_.c_str()));
  return program_ >= 0;
}

/// Turns an offload off. False: this process may not. Also true if the interface cannot change the
/// offload.
bool KernelInterface::turn_off(std::uint32_t get, std::uint32_t set) {
  ethtool_value value{.cmd = get, .data = 0};
  if (!ethtool(name_, value) || value.data == 0) return true;
  value = {.cmd = set, .data = 0};
  if (!ethtool(name_, value)) return errno != EPERM;
  was_.push_back({.command = set, .file = {}, .value = {}});
  return true;
}

/// Turns a feature off. False: it stays on.
bool KernelInterface::turn_off(std::string_view feature) {
  const FeatureState is = feature_state(name_, feature);
  if (is == FeatureState::off) return true;
  if (is == FeatureState::fixed || !set_feature(name_, feature, false)) return false;
  was_.push_back({.command = 0, .file = {}, .value = std::string(feature)});
  return feature_state(name_, feature) == FeatureState::off;
}

/// Writes a setting. False: this process may not. Also true if the kernel does not have the file.
bool KernelInterface::write_setting(const std::string& file, const std::string& value) {
  std::string was;
  if (!(std::ifstream(file) >> was) || was == value) return true;
  if (!(std::ofstream(file) << value << std::flush)) return false;
  was_.push_back({.command = 0, .file = file, .value = was});
  return true;
}

}  // namespace millrace
