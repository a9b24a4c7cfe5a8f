#include "port/device_name.h"

#include <algorithm>
#include <array>
#include <regex>

namespace millrace {
namespace {

struct KnownKind {
  std::string_view name;
  DeviceKind kind;
  std::string_view target;  ///< word for what follows the colon; empty: nothing follows
};
constexpr std::array kKinds{
    KnownKind{"af_packet", DeviceKind::af_packet, "INTERFACE"},
    KnownKind{"af_xdp", DeviceKind::af_xdp, "INTERFACE"},
    KnownKind{"tap", DeviceKind::tap, "NAME"},
    KnownKind{"memif", DeviceKind::memif, "SOCKET"},
    KnownKind{"pcap", DeviceKind::pcap, "FILE"},
    KnownKind{"null", DeviceKind::null, ""},
    KnownKind{"ring", DeviceKind::ring, ""},
};

std::string known() {
  std::string all;
  for (const KnownKind& one : kKinds) {
    all.append(one.name);
    if (!one.target.empty()) all.append(":").append(one.target);
    all += ", ";
  }
  return all + "or a PCI address such as 0000:3b:00.0";
}

Error wrong(std::string_view text, std::string_view why) {
  return {"\"" + std::string(text) + "\" " + std::string(why) + ": give " + known(),
          Error::Kind::usage};
}

bool is_pci(std::string_view text) {
  static const std::regex address("([0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\\.[0-7]");
  return std::regex_match(text.begin(), text.end(), address);
}

/// Returns why the kernel or DPDK would refuse the interface's name, or read it as another name;
/// empty if the name is good.
std::string_view wrong_interface(const DeviceName& name) {
  constexpr std::size_t kMost = 15;
  const auto is_wrong = [](unsigned char c) {
    return c <= ' ' || c == 0x7f || std::string_view("/:%=[]\"'").contains(static_cast<char>(c));
  };
  if (name.target.size() > kMost) return "has more than the 15 bytes of an interface's name";
  if (name.target == "." || name.target == ".." || std::ranges::any_of(name.target, is_wrong))
    return "names no possible interface";
  if (("," + name.arguments).contains(",iface=")) return "names its interface twice";
  return {};
}

/// Returns why DPDK and this program would understand the memif's name differently; empty if they
/// agree.
std::string_view wrong_memif(const DeviceName& name) {
  const std::string arguments = "," + name.arguments + ",";
  if (arguments.contains(",socket=")) return "names its socket twice";
  if (arguments.contains(",role=") && !arguments.contains(",role=client,") &&
      !arguments.contains(",role=server,"))
    return "has a role that is neither client nor server";
  return {};
}

}  // namespace

Result<DeviceName> parse_device(std::string_view text) {
  const auto comma = text.find(',');
  const std::string_view device = text.substr(0, comma);
  DeviceName name;
  if (comma != text.npos) name.arguments = text.substr(comma + 1);
  if (is_pci(device)) {
    name.kind = DeviceKind::pci;
    name.target = device.size() == 7 ? "0000:" + std::string(device) : std::string(device);
    return name;
  }
  const auto colon = device.find(':');
  const KnownKind* const kind =
      std::ranges::find(kKinds, device.substr(0, colon), &KnownKind::name);
  if (kind == kKinds.end()) return std::unexpected(wrong(text, "is no device"));
  if (colon != device.npos) name.target = device.substr(colon + 1);
  if (kind->target.empty() != (colon == device.npos) || kind->target.empty() != name.target.empty())
    return std::unexpected(wrong(
        text, kind->target.empty() ? "has a name, which this kind does not take" : "lacks a name"));
  name.kind = kind->kind;
  std::string_view why;
  if (is_of_kernel(name.kind)) why = wrong_interface(name);
  if (name.kind == DeviceKind::memif) why = wrong_memif(name);
  if (!why.empty()) return std::unexpected(wrong(text, why));
  return name;
}

std::string to_string(const DeviceName& name) {
  std::string text;
  if (name.kind != DeviceKind::pci)
    text = std::ranges::find(kKinds, name.kind, &KnownKind::kind)->name;
  if (!name.target.empty()) text += (text.empty() ? "" : ":") + name.target;
  if (!name.arguments.empty()) text += "," + name.arguments;
  return text;
}

}  // namespace millrace
