#include "doctor_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>

namespace millrace::cli {
namespace {

namespace fs = std::filesystem;

class Examination {
 public:
  explicit Examination(const Machine& machine) : machine_(machine) {}

  std::vector<Finding> run() {
    huge_pages();
    transparent_pages();
    permissions();
    tap();
    network_cards();
    clock_source();
    frequency();
    isolation();
    nodes();
    return std::move(findings_);
  }

 private:
  /// Returns the first line of a file; nothing if the file is not there, or empty.
  std::optional<std::string> read(const fs::path& file) const {
    std::ifstream in(machine_.root / file);
    std::string line;
    if (!std::getline(in, line)) return std::nullopt;
    return line;
  }
  std::optional<std::uint64_t> number(const fs::path& file, int base = 10) const {
    const auto text = read(file);
    if (!text) return std::nullopt;
    const std::string_view digits = std::string_view(*text).starts_with("0x")
                                        ? std::string_view(*text).substr(2)
                                        : std::string_view(*text);
    std::uint64_t value = 0;
    const std::string copy(digits);
    const auto done = std::from_chars(copy.c_str(), copy.c_str() + copy.size(), value, base);
    return done.ec == std::errc{} ? std::optional(value) : std::nullopt;
  }
  std::vector<fs::path> entries(const fs::path& folder) const {
    std::vector<fs::path> all;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(machine_.root / folder, none))
      all.push_back(folder / entry.path().filename());
    std::ranges::sort(all);
    return all;
  }

  void good(std::string subject, std::string is) {
    findings_.push_back({Health::good, std::move(subject), std::move(is), "", ""});
  }
  void better(std::string subject, std::string is, std::string better, std::string command,
              Health health = Health::better) {
    findings_.push_back(
        {health, std::move(subject), std::move(is), std::move(better), std::move(command)});
  }

  void huge_pages() {
    const fs::path folder = "sys/kernel/mm/hugepages/hugepages-2048kB";
    const auto all = number(folder / "nr_hugepages");
    const auto free = number(folder / "free_hugepages");
    // 1 GiB: enough for the tables of two million connections, and for packets.
    constexpr std::uint64_t kEnough = 512;
    if (!all || !free)
      return better("huge pages", "none of 2 MiB in this kernel",
                    "tables and packets use transparent ones", "");
    const std::string is = fmt::format("{} of 2 MiB, {} free", *all, *free);
    if (*free >= kEnough) return good("huge pages", is);
    better("huge pages", is, "tables and packets on huge pages are fetched up to twice as fast",
           fmt::format("echo {} | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
                       std::max<std::uint64_t>(1024, *all + kEnough)));
  }

  void transparent_pages() {
    const auto enabled = read("sys/kernel/mm/transparent_hugepage/enabled");
    if (!enabled) return;
    if (!enabled->contains("[never]")) return good("transparent pages", *enabled);
    better("transparent pages", *enabled,
           "tables and packets use them where no huge pages are free",
           "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled");
  }

  void permissions() {
    constexpr std::uint64_t kNetAdmin = std::uint64_t{1} << 12;
    constexpr std::uint64_t kNetRaw = std::uint64_t{1} << 13;
    std::uint64_t has = 0;
    std::ifstream status(machine_.root / "proc/self/status");
    for (std::string line; std::getline(status, line);) {
      if (!line.starts_with("CapEff:")) continue;
      const std::string digits = line.substr(line.find_first_not_of(" \t", 7));
      std::from_chars(digits.c_str(), digits.c_str() + digits.size(), has, 16);
    }
    if (machine_.is_root && (has & kNetAdmin) != 0) return good("permissions", "root");
    if ((has & kNetRaw) != 0 && (has & kNetAdmin) != 0)
      return good("permissions", "CAP_NET_RAW and CAP_NET_ADMIN: all but af_xdp and network cards");
    const std::string missing = (has & kNetRaw) != 0     ? "CAP_NET_ADMIN"
                                : (has & kNetAdmin) != 0 ? "CAP_NET_RAW"
                                                         : "CAP_NET_RAW and CAP_NET_ADMIN";
    better("permissions", "without " + missing,
           "millrace run needs both CAP_NET_RAW and CAP_NET_ADMIN for af_packet and tap, root for "
           "af_xdp and network cards; replay and bench need nothing",
           "sudo millrace run ...", Health::missing);
  }

  void tap() {
    if (fs::exists(machine_.root / "dev/net/tun")) return good("tap", "/dev/net/tun");
    better("tap", "no /dev/net/tun", "tap ports need it", "sudo modprobe tun", Health::missing);
  }

  /// Returns the path in /sys of the interface with the IPv4 default route: the path contains the
  /// PCI address of the interface's network card, which the machine itself needs. Empty: there is
  /// no IPv4 default route.
  std::string own_way() const {
    std::ifstream routes(machine_.root / "proc/net/route");
    for (std::string line; std::getline(routes, line);) {
      const std::size_t end = line.find('\t');
      if (end == std::string::npos || !line.substr(end + 1).starts_with("00000000\t")) continue;
      std::error_code none;
      return fs::read_symlink(machine_.root / "sys/class/net" / line.substr(0, end), none).string();
    }
    return {};
  }

  /// Reports the PCI network cards, and how DPDK takes those that the machine does not need.
  void network_cards() {
    const std::string own = own_way();
    unsigned cards = 0;
    unsigned bound = 0;
    unsigned needed = 0;
    std::string names;
    for (const fs::path& device : entries("sys/bus/pci/devices")) {
      const auto type = number(device / "class", 16);
      if (!type || *type >> 16 != 0x02) continue;
      std::error_code none;
      const auto driver =
          fs::read_symlink(machine_.root / device / "driver", none).filename().string();
      const std::string address = device.filename().string();
      const bool is_needed = own.contains("/" + address + "/");
      ++cards;
      needed += is_needed ? 1 : 0;
      bound += driver == "vfio-pci" || driver == "igb_uio" || driver == "uio_pci_generic" ? 1 : 0;
      names += fmt::format("{}{} ({}{})", names.empty() ? "" : ", ", address,
                           driver.empty() ? "no driver" : driver,
                           is_needed ? ", has the default route" : "");
    }
    if (cards == 0)
      return good("network cards", "no PCI ones: af_packet, af_xdp and tap need none");
    if (bound > 0 || needed == cards) return good("network cards", names);
    const bool iommu = !entries("sys/kernel/iommu_groups").empty();
    const std::string load =
        iommu ? "vfio-pci" : "vfio enable_unsafe_noiommu_mode=1 && sudo modprobe vfio-pci";
    better("network cards", names,
           "DPDK's own drivers are much faster, for cards that the system does not need itself",
           "sudo apt install dpdk && sudo modprobe " + load +
               " && sudo dpdk-devbind.py -b vfio-pci ADDRESS");
  }

  void clock_source() {
    const fs::path folder = "sys/devices/system/clocksource/clocksource0";
    const auto now = read(folder / "current_clocksource");
    if (!now) return;
    if (*now == "tsc" || *now == "kvm-clock" || *now == "hyperv_clocksource_tsc_page" ||
        *now == "arch_sys_counter")
      return good("clock source", *now + ": read without a system call");
    const auto there = read(folder / "available_clocksource").value_or("");
    const bool has_tsc = there.contains("tsc");
    better(
        "clock source", *now,
        "each burst reads the clock, which takes a system call with this source",
        has_tsc
            ? "echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource"
            : "");
  }

  void frequency() {
    const auto governor = read("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    if (!governor) return good("frequency", "unknown to this system (usually a virtual machine)");
    if (*governor == "performance") return good("frequency", "governor performance");
    better("frequency", "governor " + *governor,
           "the processor's frequency rises only after packets have waited",
           "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor");
  }

  void isolation() {
    const auto online = read("sys/devices/system/cpu/online").value_or("0");
    const auto isolated = read("sys/devices/system/cpu/isolated").value_or("");
    if (!isolated.empty())
      return good("isolation", fmt::format("processors {} of {}", isolated, online));
    if (online == "0" || online == "0-1")
      return good("isolation", "processors " + online + ": too few to set some aside");
    better("isolation", "none of processors " + online,
           "packets wait while other programs interrupt a worker",
           "boot with isolcpus=managed_irq,1-N nohz_full=1-N, and run under taskset -c 1-N");
  }

  void nodes() {
    unsigned count = 0;
    for (const fs::path& node : entries("sys/devices/system/node"))
      count += node.filename().string().starts_with("node") ? 1 : 0;
    if (count <= 1) return good("memory nodes", "one");
    better(
        "memory nodes", fmt::format("{}", count),
        "workers should run where the card and its memory are",
        "run under numactl -N NODE -m NODE; cat /sys/bus/pci/devices/ADDRESS/numa_node says which");
  }

  const Machine& machine_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> examine(const Machine& machine) { return Examination(machine).run(); }

}  // namespace millrace::cli
