// The part of `Devices` that opens the devices.
#include <rte_config.h>  // first of DPDK's

#include <fmt/format.h>
#include <rte_malloc.h>
#include <rte_version.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <set>
#include <utility>

#include "core/silence.h"
#include "port/devices_impl.h"
#include "port/packet_sockets.h"

namespace millrace {
namespace {

constexpr unsigned kDescriptors = 1024;
// Larger where packets come through the kernel: a worker may lose the processor to the senders for
// milliseconds at a time.
constexpr unsigned kDescriptorsOfKernel = 4096;
constexpr unsigned kCache = 256;
constexpr const char* kHeap = "millrace-packets";

bool is_pci(const LinkSettings& one) { return one.device.kind == DeviceKind::pci; }

/// Blocks real-time signals for this thread and the threads that it starts. By these signals DPDK's
/// tap driver learns, and counts, that packets have come. If two threads count at once, one packet
/// may be missed until the next comes. EAL's own thread, which exists already, remains to take the
/// signals.
void leave_signals_to_eal() {
  sigset_t signals;
  sigemptyset(&signals);
  for (int number = SIGRTMIN; number <= SIGRTMAX; ++number) sigaddset(&signals, number);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

/// Returns the error of a device whose driver is not installed: DPDK knows no bus for its name. On
/// Debian each driver has a package, whose name ends with DPDK's ABI version.
Error no_driver(const std::string& device, std::string driver) {
  std::ranges::replace(driver, '_', '-');
  return {fmt::format("{}: DPDK's driver for it is not installed: install librte-net-{}{} (Debian)",
                      device, driver, RTE_VER_YEAR + 1),
          Error::Kind::unreadable};
}

}  // namespace

/// Takes what one millrace device needs of the kernel.
Result<DeviceNeeds> Devices::Impl::take(Device& device) {
  const DeviceName& name = device.name;
  if (is_kernel_interface(name.kind)) {
    auto kernel = KernelInterface::take(name.target);
    if (!kernel) return std::unexpected(kernel.error());
    device.kernel.emplace(std::move(*kernel));
    const auto warn = [this](std::string warning) {
      if (!warning.empty()) warnings.push_back(std::move(warning));
    };
    warn(device.kernel->fence());
    // XDP sockets get a frame alone; packet sockets get a tag that was taken off beside it.
    if (name.kind == DeviceKind::af_xdp) warn(device.kernel->keep_tags());
    if (map.has_vlans(device.number)) warn(device.kernel->receive_all_vlans());
  }
  if (auto ok = memif_sockets.take(name); !ok) return std::unexpected(ok.error());
  for (unsigned link = 0; link < links.size(); ++link) {
    if (map.device_of(link) != device.number) continue;
    unsigned& mtu = links[link].mtu;
    if (mtu == 0) mtu = device.kernel ? device.kernel->mtu() : 1500;
    device.mtu = std::max(device.mtu, mtu);
  }
  DeviceNeeds needs{.number = device.number,
                    .mtu = device.mtu,
                    .workers = workers,
                    .queues = device.kernel ? device.kernel->queues() : 1};
  if (name.kind == DeviceKind::tap) needs.mac = KernelInterface::mac_of(name.target);
  return needs;
}

/// Makes the DPDK devices that one millrace device consists of.
Result<void> Devices::Impl::probe(Device& device, const DeviceNeeds& needs) {
  const DeviceName& name = device.name;
  for (const auto& arguments : arguments_for(name, needs)) {
    if (auto ok = probe_one(device, arguments); !ok) return ok;
  }
  if (name.kind == DeviceKind::af_packet && joins_fragments(name.target))
    warnings.push_back(name.target + std::string(kJoinsFragments));
  return {};
}

Result<void> Devices::Impl::probe_one(Device& device, const DriverArguments& arguments) {
  const std::string name = to_string(device.name);
  if (arguments.bus == "vdev") {
    std::optional<OpeningPacketSockets> opening;
    if (arguments.packets) opening.emplace(*arguments.packets);
    const int error =
        rte_eal_hotplug_add("vdev", arguments.name.c_str(), arguments.arguments.c_str());
    if (error == -EFAULT) return std::unexpected(no_driver(name, arguments.driver));
    if (error < 0) return refused(name, "DPDK's driver refuses it", -error);
  }
  Ethernet ethernet{.is_for_control = arguments.packets == PacketsOf::control};
  if (rte_eth_dev_get_port_by_name(arguments.name.c_str(), &ethernet.id) != 0)
    return std::unexpected(Error{name +
                                     ": DPDK has no driver for it: bind it to vfio-pci "
                                     "(dpdk-devbind.py -b vfio-pci " +
                                     arguments.name + ")",
                                 Error::Kind::unreadable});
  rte_eth_dev_info info{};
  if (const int error = rte_eth_dev_info_get(ethernet.id, &info); error != 0)
    return refused(name, "DPDK's driver does not describe the device", -error);
  const unsigned wanted = arguments.queues == 0 ? workers : arguments.queues;
  ethernet.receive_queues =
      static_cast<std::uint16_t>(std::clamp(wanted, 1U, unsigned{info.max_rx_queues}));
  ethernet.send_queues =
      static_cast<std::uint16_t>(std::clamp(workers, 1U, unsigned{info.max_tx_queues}));
  device.ethernet.push_back(ethernet);
  link_of[ethernet.id] = static_cast<std::uint8_t>(map.first_link(device.number));
  return {};
}

/// Makes the packet memory, on the largest pages available. A PCI device must be able to reach the
/// memory, so with such a device the memory comes from EAL.
Result<void> Devices::Impl::make_pool(bool has_pci) {
  unsigned count = kPacketsAQueue;
  unsigned mtu = 0;
  for (const Device& device : devices) {
    for (const Ethernet& ethernet : device.ethernet)
      count += ethernet.is_for_control ? 0 : ethernet.receive_queues * kPacketsAQueue;
    mtu = std::max(mtu, device.mtu);
  }
  count = std::max(count, workers * kPacketsAQueue);
  const unsigned frame = std::bit_ceil(mtu + 64);
  const auto room = static_cast<std::uint16_t>(std::min(frame, 0xff00U) + RTE_PKTMBUF_HEADROOM);
  int socket = SOCKET_ID_ANY;
  if (!has_pci) {
    const std::size_t each =
        rte_mempool_calc_obj_size(static_cast<std::uint32_t>(sizeof(rte_mbuf)) + room, 0, nullptr);
    auto mapped = Memory::map((each + 64) * count + (std::size_t{8} << 20), Pages::huge);
    if (!mapped) return std::unexpected(mapped.error());
    memory = std::move(*mapped);
    const std::size_t page =
        memory.bytes() % (std::size_t{2} << 20) == 0 ? std::size_t{2} << 20 : 4096;
    if (rte_malloc_heap_create(kHeap) != 0 ||
        rte_malloc_heap_memory_add(kHeap, memory.data(), memory.bytes(), nullptr,
                                   static_cast<unsigned>(memory.bytes() / page), page) != 0)
      return refused("packet memory", "DPDK does not accept the memory", rte_errno);
    socket = rte_malloc_heap_get_socket(kHeap);
  }
  pool = rte_pktmbuf_pool_create("millrace-packets", count, kCache, 0, room, socket);
  if (pool == nullptr)
    return refused("packet memory", std::to_string(count) + " packets are too many", rte_errno);
  return {};
}

Result<void> Devices::Impl::configure(Device& device) {
  for (Ethernet& ethernet : device.ethernet) {
    if (auto ok = configure_one(device, ethernet); !ok) return ok;
  }
  give_queues(device);
  return {};
}

Result<void> Devices::Impl::configure_one(Device& device, Ethernet& ethernet) {
  const std::string name = to_string(device.name);
  rte_eth_conf conf{};
  rte_eth_dev_info info{};
  if (rte_eth_dev_info_get(ethernet.id, &info) == 0)
    scaling.add_to(conf, info, ethernet.receive_queues);
  if (const int error =
          rte_eth_dev_configure(ethernet.id, ethernet.receive_queues, ethernet.send_queues, &conf);
      error != 0)
    return refused(name, "cannot be set up", -error);
  // The MTU of a kernel's interface is the user's to set. Most virtual devices have no MTU to set:
  // errors do not matter.
  if (!device.kernel)
    static_cast<void>(rte_eth_dev_set_mtu(ethernet.id, static_cast<std::uint16_t>(device.mtu)));
  std::uint16_t receive_descriptors =
      is_of_kernel(device.name.kind) ? kDescriptorsOfKernel : kDescriptors;
  std::uint16_t send_descriptors = kDescriptors;
  static_cast<void>(
      rte_eth_dev_adjust_nb_rx_tx_desc(ethernet.id, &receive_descriptors, &send_descriptors));
  const int at = rte_eth_dev_socket_id(ethernet.id);
  const auto socket = static_cast<unsigned>(at < 0 ? 0 : at);
  for (std::uint16_t q = 0; q < ethernet.receive_queues; ++q) {
    const int error =
        rte_eth_rx_queue_setup(ethernet.id, q, receive_descriptors, socket, nullptr, pool);
    if (error != 0) return refused(name, "a receive queue cannot be set up", -error);
  }
  for (std::uint16_t q = 0; q < ethernet.send_queues; ++q) {
    const int error = rte_eth_tx_queue_setup(ethernet.id, q, send_descriptors, socket, nullptr);
    if (error != 0) return refused(name, "a send queue cannot be set up", -error);
  }
  rte_ether_addr mac{};
  if (rte_eth_macaddr_get(ethernet.id, &mac) == 0)
    std::memcpy(device.mac.bytes.data(), mac.addr_bytes, device.mac.bytes.size());
  if (device.kernel) device.mac = device.kernel->mac();
  return {};
}

/// Gives each worker a send queue: its own if there are enough queues, else a shared one under a
/// lock.
void Devices::Impl::give_queues(Device& device) {
  std::vector<SendQueue> all;
  constexpr std::size_t kLine = 64 / sizeof(Counter);  // so that workers' counters share no line
  const std::size_t counted = map.has_vlans(device.number) ? links.size() + kLine : 0;
  const bool is_memif = device.name.kind == DeviceKind::memif;
  for (const Ethernet& ethernet : device.ethernet) {
    if (ethernet.is_for_control) {
      queues.back().control.emplace(ethernet.id, std::uint16_t{0}, nullptr);
      continue;
    }
    Device* may_get_large = device.name.kind == DeviceKind::af_packet ? &device : nullptr;
    for (std::uint16_t q = 0; q < ethernet.receive_queues; ++q)
      queues.push_back(
          {.queue = {ethernet.id, q, is_memif ? &device.passages.emplace_back() : nullptr},
           .may_get_large = may_get_large,
           .device = device.number,
           .link = static_cast<std::uint8_t>(map.first_link(device.number)),
           .in = std::vector<Counter>(counted)});
    for (std::uint16_t q = 0; q < ethernet.send_queues; ++q) all.emplace_back(ethernet.id, q);
  }
  for (std::size_t q = 0; q < all.size() && all.size() < workers; ++q)
    all[q].share(device.locks.emplace_back());
  for (unsigned n = 0; n < workers; ++n) {
    device.send.push_back(all[n % all.size()]);
    if (is_memif) device.send.back().go_through(device.passages.emplace_back());
  }
  if (counted == 0) return;
  for (SendQueue& queue : device.send) {
    queue.count(device.out.emplace_back(counted));
  }
}

Result<void> Devices::prepare(std::span<const LinkSettings> settings,
                              const std::vector<std::string>& eal_options) {
  EalOptions eal{.pci_devices = {}, .more = eal_options, .telemetry = true};
  std::set<std::string> cards;
  for (const LinkSettings& one : settings) {
    if (is_pci(one)) cards.insert(one.device.target);
  }
  eal.pci_devices.assign(cards.begin(), cards.end());
  for (const LinkSettings& one : settings) {
    if (one.device.kind == DeviceKind::tap) {
      if (auto ok = KernelInterface::check_tap(one.device.target); !ok) return ok;
    }
    if (auto ok = MemifSockets::check(one.device); !ok) return ok;
    if (!is_kernel_interface(one.device.kind)) continue;
    const auto there = KernelInterface::take(one.device.target);
    if (!there) return std::unexpected(there.error());
    if (one.mtu > there->mtu()) {
      return std::unexpected(
          Error{fmt::format("{0} has MTU {1}: ip link set {0} mtu {2}, or lower port.mtu",
                            there->name(), there->mtu(), one.mtu)});
    }
  }
  if (auto ok = start_dpdk_eal(eal); !ok) return ok;
  leave_signals_to_eal();
  return {};
}

Result<std::unique_ptr<Devices>> Devices::open(std::span<const LinkSettings> settings,
                                               unsigned workers,
                                               const std::vector<std::string>& eal_options) {
  if (auto ok = prepare(settings, eal_options); !ok) return std::unexpected(ok.error());
  std::unique_ptr<Devices> devices(new Devices(std::make_unique<Impl>()));
  Impl& impl = *devices->impl_;
  impl.workers = workers;
  impl.map = LinkMap(settings);
  impl.links.assign(settings.begin(), settings.end());
  for (unsigned n = 0; n < impl.map.devices(); ++n)
    impl.devices.emplace_back(settings[impl.map.first_link(n)].device, n);
  const Silence silence;
  std::vector<DeviceNeeds> needs;
  std::size_t count = 0;
  for (auto& device : impl.devices) {
    auto of = impl.take(device);
    if (!of) return std::unexpected(of.error());
    count += arguments_for(device.name, *of).size();
    needs.push_back(*of);
  }
  for (auto& device : impl.devices) {
    DeviceNeeds& of = needs[device.number];
    of.has_control = count <= RTE_MAX_ETHPORTS;
    if (auto ok = impl.probe(device, of); !ok) return std::unexpected(ok.error());
  }
  if (auto ok = impl.make_pool(std::ranges::any_of(settings, is_pci)); !ok)
    return std::unexpected(ok.error());
  for (auto& device : impl.devices) {
    if (auto ok = impl.configure(device); !ok) return std::unexpected(ok.error());
  }
  return devices;
}

}  // namespace millrace
