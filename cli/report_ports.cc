#include "report_ports.h"

#include <fmt/format.h>

#include <cstddef>
#include <iterator>
#include <utility>

#include "command_line/output.h"
#include "core/grouped.h"
#include "port/kernel_interface.h"

namespace millrace::cli {
namespace {

Json kernel_of(const KernelSide* kernel, unsigned port) {
  if (kernel == nullptr || kernel->tap(port) == nullptr) return nullptr;
  const KernelSideStatistics is = kernel->statistics(port);
  return {{"interface", kernel->tap(port)->name()},
          {"given", is.given},
          {"taken", is.taken},
          {"full", is.full},
          {"too_long", is.too_long},
          {"gone", is.is_gone},
          {"foreign", kernel->tap(port)->foreign_addresses()}};
}

std::string text_of(const Mac& mac) { return fmt::format("{:02x}", fmt::join(mac.bytes, ":")); }

Json silent_of(const RunReport& report, std::size_t port) {
  Json list = Json::array();
  for (const auto& [link, address] : report.silent) {
    if (link == port) list.push_back(to_string(address));
  }
  return list;
}

Json rivals_of(const RunReport& report, std::size_t port) {
  Json list = Json::array();
  for (const auto& [link, address, mac, neighbour] : report.rivals) {
    if (link != port) continue;
    list.push_back({{"address", to_string(address)},
                    {"mac", text_of(mac)},
                    {"neighbour", neighbour ? Json(to_string(*neighbour)) : Json(nullptr)}});
  }
  return list;
}

/// Returns the addresses that the kernel has on an interface which millrace uses as a device.
std::vector<std::string> foreign_of(const DeviceName& device) {
  if (!is_kernel_interface(device.kind)) return {};
  return KernelInterface::addresses_of(device.target);
}

}  // namespace

Json ports_of(const RunReport& report) {
  Json list = Json::array();
  if (report.live == nullptr) return list;
  const Devices& devices = report.live->devices();
  for (unsigned port = 0; port < devices.links(); ++port) {
    const LinkStatistics is = devices.statistics(port);
    const unsigned vlan = devices.vlan(port);
    list.push_back({{"name", report.ports[port]},
                    {"device", to_string(devices.name(port))},
                    {"vlan", vlan == 0 ? Json(nullptr) : Json(vlan)},
                    {"link_is_up", is.link_is_up},
                    {"in", is.in},
                    {"out", is.out},
                    {"missed", is.missed},
                    {"foreign", foreign_of(devices.name(port))},
                    {"silent", silent_of(report, port)},
                    {"rivals", rivals_of(report, port)},
                    {"kernel", kernel_of(report.live->kernel(), port)}});
  }
  return list;
}

std::string lines_of_ports(const RunReport& report) {
  std::string lines;
  if (report.live == nullptr) return lines;
  const auto line = [&lines]<class... Args>(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(lines), format, std::forward<Args>(args)...);
    lines += '\n';
  };
  const Devices& devices = report.live->devices();
  for (unsigned port = 0; port < devices.links(); ++port) {
    const LinkStatistics is = devices.statistics(port);
    const unsigned vlan = devices.vlan(port);
    line("{:<14}{:>14} in, {} out, {} missed, link {}: {}{}", port == 0 ? "ports" : "",
         grouped(is.in), grouped(is.out), grouped(is.missed), is.link_is_up ? "up" : "down",
         to_string(devices.name(port)), vlan == 0 ? "" : fmt::format(", VLAN {}", vlan));
    for (const auto& [link, address] : report.silent) {
      if (link == port) line("{:<14}{:>14} does not answer", "", to_string(address));
    }
    for (const auto& [link, address, mac, neighbour] : report.rivals) {
      if (link == port)
        line("{:<14}{:>14} answers for {}, too", "",
             neighbour ? to_string(*neighbour) : text_of(mac), to_string(address));
    }
    for (const std::string& address : foreign_of(devices.name(port)))
      line("{:<14}{:>14} is the kernel's on that device, so the next start is refused", "",
           address);
    const KernelSide* const kernel = report.live->kernel();
    if (kernel == nullptr || kernel->tap(port) == nullptr) continue;
    const KernelSideStatistics of = kernel->statistics(port);
    line(
        "{:<14}{:>14} frames given to the kernel by {}, {} taken from it, {} for the kernel "
        "dropped for lack of room",
        "", grouped(of.given), kernel->tap(port)->name(), grouped(of.taken), grouped(of.full));
    for (const std::string& address : kernel->tap(port)->foreign_addresses())
      line("{:<14}{:>14} on {} is not among the port's addresses: nothing reaches it", "", address,
           kernel->tap(port)->name());
    if (of.is_gone)
      line("{:<14}{:>14} was deleted: the next start or take-over makes it again", "",
           kernel->tap(port)->name());
    if (of.too_long != 0)
      line("{:<14}{:>14} frames of the kernel were longer than the port's MTU, and dropped", "",
           grouped(of.too_long));
  }
  return lines;
}

}  // namespace millrace::cli
