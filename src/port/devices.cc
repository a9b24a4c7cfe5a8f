#include "port/devices.h"

#include <rte_config.h>  // first of DPDK's

#include <fmt/format.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <csignal>
#include <cstring>
#include <deque>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

#include "core/silence.h"
#include "port/device_arguments.h"
#include "port/fanout.h"
#include "port/memif_socket.h"
#include "port/receive_queue.h"
#include "port/receive_side_scaling.h"
#include "port/send_queue.h"

namespace millrace {
namespace {

constexpr unsigned kDescriptors = 1024;
// Larger where packets come through the kernel: a worker may lose the processor to the senders for
// milliseconds at a time.
constexpr unsigned kDescriptorsOfKernel = 4096;
constexpr unsigned kPacketsAQueue = 8192;  // packets in rings, in bursts, and handed over
constexpr unsigned kCache = 256;
constexpr const char* kHeap = "millrace-packets";

bool is_pci(const DeviceSettings& one) { return one.device.kind == DeviceKind::pci; }
using SteadyClock = std::chrono::steady_clock;
constexpr SteadyClock::rep kNever = std::numeric_limits<SteadyClock::rep>::max();

rte_mbuf* mbuf(Handle handle) { return std::bit_cast<rte_mbuf*>(handle); }

std::unexpected<Error> refused(const std::string& device, const std::string& what, int error) {
  return std::unexpected(Error{device + ": " + what + ": " + rte_strerror(error)});
}

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

/// One of DPDK's devices: one queue, or all queues, of a millrace device.
struct Ethernet {
  std::uint16_t id = 0;
  std::uint16_t receive_queues = 1;
  std::uint16_t send_queues = 1;
};

}  // namespace

struct Devices::Impl {
  struct Device {
    Device(const DeviceSettings& given, std::size_t place)
        : settings(given), number(static_cast<unsigned>(place)) {}

    DeviceSettings settings;
    unsigned number;
    std::optional<KernelInterface> kernel;
    Mac mac;
    unsigned mtu = 1500;
    std::vector<Ethernet> ethernet;
    std::vector<SendQueue> send;  ///< one for each worker
    std::deque<std::mutex> locks;
    std::deque<Passage> passages;  ///< a memif's: one for each receive queue and each of `send`
    /// Time to try `refuse_large` again; `kNever`: done, or a worker is trying.
    std::atomic<SteadyClock::rep> refuses_next = 0;

    void refuse_large();
  };
  struct Source {
    ReceiveQueue queue;
    Device* may_get_large = nullptr;  ///< the device if its packets may exceed the MTU; else null
  };

  unsigned workers = 1;
  std::deque<Device> devices;
  MemifSockets memif_sockets;
  std::vector<Source> queues;
  std::array<std::uint8_t, RTE_MAX_ETHPORTS> device_of{};
  std::vector<std::string> warnings;
  ReceiveSideScaling scaling;
  Memory memory;
  rte_mempool* pool = nullptr;

  Result<void> probe(Device& device);
  Result<void> probe_one(Device& device, const DriverArguments& arguments);
  Result<void> make_pool(bool has_pci);
  Result<void> configure(Device& device);
  Result<void> configure_one(Device& device, Ethernet& ethernet);
  void give_queues(Device& device);
};

/// Makes the other end of a veth pair send no packets above the MTU. Called only when such a packet
/// has come, since the XDP program that does this lowers the packet rate by a fourth. Any worker's
/// thread; one thread at a time tries. After a failure the next try is at least a second later:
/// another XDP program that is attached there may have gone by then.
void Devices::Impl::Device::refuse_large() {
  SteadyClock::rep next = refuses_next.load(std::memory_order_relaxed);
  if (next == kNever) return;
  if (SteadyClock::now().time_since_epoch().count() < next) return;
  if (!refuses_next.compare_exchange_strong(next, kNever)) return;
  if (kernel->refuse_large_packets()) return;
  refuses_next = (SteadyClock::now() + std::chrono::seconds(1)).time_since_epoch().count();
}

/// Makes the DPDK devices that one millrace device consists of.
Result<void> Devices::Impl::probe(Device& device) {
  const DeviceName& name = device.settings.device;
  if (is_kernel_interface(name.kind)) {
    auto kernel = KernelInterface::take(name.target);
    if (!kernel) return std::unexpected(kernel.error());
    device.kernel.emplace(std::move(*kernel));
    if (std::string warning = device.kernel->fence(); !warning.empty())
      warnings.push_back(std::move(warning));
    device.mtu = device.kernel->mtu();
  }
  if (auto ok = memif_sockets.take(name); !ok) return ok;
  if (device.settings.mtu != 0) device.mtu = device.settings.mtu;
  DeviceNeeds needs{.number = device.number,
                    .mtu = device.mtu,
                    .workers = workers,
                    .queues = device.kernel ? device.kernel->queues() : 1};
  if (name.kind == DeviceKind::tap) needs.mac = KernelInterface::mac_of(name.target);
  for (const auto& arguments : arguments_for(name, needs)) {
    if (auto ok = probe_one(device, arguments); !ok) return ok;
  }
  if (name.kind == DeviceKind::af_packet && joins_fragments(name.target))
    warnings.push_back(name.target + std::string(kJoinsFragments));
  return {};
}

Result<void> Devices::Impl::probe_one(Device& device, const DriverArguments& arguments) {
  const std::string name = to_string(device.settings.device);
  if (arguments.bus == "vdev") {
    const int error =
        rte_eal_hotplug_add("vdev", arguments.name.c_str(), arguments.arguments.c_str());
    if (error < 0) return refused(name, "DPDK's driver refuses it", -error);
  }
  Ethernet ethernet;
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
  device_of[ethernet.id] = static_cast<std::uint8_t>(device.number);
  return {};
}

/// Makes the packet memory, on the largest pages available. A PCI device must be able to reach the
/// memory, so with such a device the memory comes from EAL.
Result<void> Devices::Impl::make_pool(bool has_pci) {
  unsigned count = kPacketsAQueue;
  unsigned mtu = 0;
  for (const Device& device : devices) {
    for (const Ethernet& ethernet : device.ethernet)
      count += ethernet.receive_queues * kPacketsAQueue;
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
  const std::string name = to_string(device.settings.device);
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
      is_of_kernel(device.settings.device.kind) ? kDescriptorsOfKernel : kDescriptors;
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
  const bool is_memif = device.settings.device.kind == DeviceKind::memif;
  for (const Ethernet& ethernet : device.ethernet) {
    Device* may_get_large =
        device.settings.device.kind == DeviceKind::af_packet ? &device : nullptr;
    for (std::uint16_t q = 0; q < ethernet.receive_queues; ++q)
      queues.push_back(
          {{ethernet.id, q, is_memif ? &device.passages.emplace_back() : nullptr}, may_get_large});
    for (std::uint16_t q = 0; q < ethernet.send_queues; ++q) all.emplace_back(ethernet.id, q);
  }
  for (std::size_t q = 0; q < all.size() && all.size() < workers; ++q)
    all[q].share(device.locks.emplace_back());
  for (unsigned n = 0; n < workers; ++n) {
    device.send.push_back(all[n % all.size()]);
    if (is_memif) device.send.back().go_through(device.passages.emplace_back());
  }
}

Devices::Devices(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Devices::~Devices() {
  const Silence silence;
  for (const auto& device : impl_->devices) {
    // Taps are left to the end of the process, except with remote=: the driver would set a tap
    // down, and an interface that outlasts this process would lose its routes. The end of the
    // process does not undo a redirection (remote=), so such a tap is closed here. Memifs are left,
    // too: the driver ends the process if a peer connects while the driver closes.
    if (device.ethernet.empty()) continue;
    const DeviceName& name = device.settings.device;
    if (name.kind == DeviceKind::memif) continue;
    if (name.kind == DeviceKind::tap && !name.arguments.contains("remote=")) continue;
    for (const Ethernet& ethernet : device.ethernet) {
      rte_eth_dev_stop(ethernet.id);
      rte_eth_dev_close(ethernet.id);
    }
  }
}

Result<void> Devices::prepare(std::span<const DeviceSettings> settings,
                              const std::vector<std::string>& eal_options) {
  EalOptions eal{.pci_devices = {}, .more = eal_options, .telemetry = true};
  for (const DeviceSettings& one : settings) {
    if (is_pci(one)) eal.pci_devices.push_back(one.device.target);
  }
  for (const DeviceSettings& one : settings) {
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

Result<std::unique_ptr<Devices>> Devices::open(std::span<const DeviceSettings> settings,
                                               unsigned workers,
                                               const std::vector<std::string>& eal_options) {
  if (auto ok = prepare(settings, eal_options); !ok) return std::unexpected(ok.error());
  std::unique_ptr<Devices> devices(new Devices(std::make_unique<Impl>()));
  Impl& impl = *devices->impl_;
  impl.workers = workers;
  for (const DeviceSettings& one : settings) impl.devices.emplace_back(one, impl.devices.size());
  const Silence silence;
  for (auto& device : impl.devices) {
    if (auto ok = impl.probe(device); !ok) return std::unexpected(ok.error());
  }
  if (auto ok = impl.make_pool(std::ranges::any_of(settings, is_pci)); !ok)
    return std::unexpected(ok.error());
  for (auto& device : impl.devices) {
    if (auto ok = impl.configure(device); !ok) return std::unexpected(ok.error());
  }
  return devices;
}

std::size_t Devices::count() const { return impl_->devices.size(); }
const DeviceName& Devices::name(std::size_t device) const {
  return impl_->devices[device].settings.device;
}
Mac Devices::mac(std::size_t device) const { return impl_->devices[device].mac; }
unsigned Devices::mtu(std::size_t device) const { return impl_->devices[device].mtu; }
std::vector<std::string> Devices::warnings() const { return impl_->warnings; }
Pages Devices::pages() const { return impl_->memory.pages(); }
unsigned Devices::receive_queues() const { return static_cast<unsigned>(impl_->queues.size()); }

DeviceStatistics Devices::statistics(std::size_t device) const {
  DeviceStatistics sum;
  const Impl::Device& one = impl_->devices[device];
  // DPDK's drivers for the kernel's interfaces do not follow the link state.
  if (one.kernel) sum.link_is_up = one.kernel->is_running();
  for (const Ethernet& ethernet : one.ethernet) {
    rte_eth_stats stats{};
    if (rte_eth_stats_get(ethernet.id, &stats) == 0) {
      sum.in += stats.ipackets;
      sum.out += stats.opackets;
      sum.missed += stats.imissed + stats.rx_nombuf;
    }
    rte_eth_link link{};
    if (!one.kernel && rte_eth_link_get_nowait(ethernet.id, &link) == 0)
      sum.link_is_up |= link.link_status == RTE_ETH_LINK_UP;
  }
  return sum;
}

Result<void> Devices::start() {
  const Silence silence;
  for (auto& device : impl_->devices) {
    for (const Ethernet& ethernet : device.ethernet) {
      const std::string name = to_string(device.settings.device);
      if (const int error = rte_eth_dev_start(ethernet.id); error != 0)
        return refused(name, "does not start", -error);
      // The host needs the solicited-node multicast groups. Errors do not matter: some devices
      // cannot do this, or need not.
      static_cast<void>(rte_eth_allmulticast_enable(ethernet.id));
    }
  }
  return impl_->memif_sockets.show();
}

void Devices::discard() {
  std::array<rte_mbuf*, Burst::kMax> packets;
  for (const auto& [source, may_get_large] : impl_->queues) {
    // A bounded number of bursts, as packets may come as fast as they are dropped.
    for (unsigned bursts = 0; bursts < kPacketsAQueue / Burst::kMax; ++bursts) {
      const unsigned got = source.receive(packets);
      if (got == 0) break;
      rte_pktmbuf_free_bulk(packets.data(), got);
    }
  }
}

InterfaceSettings Devices::to_restore() const {
  InterfaceSettings all;
  for (const auto& device : impl_->devices) {
    const DeviceName& name = device.settings.device;
    if (!is_of_kernel(name.kind)) continue;
    auto& its = all[name.target];
    if (device.kernel) its = device.kernel->to_restore();
  }
  return all;
}

void Devices::restore(InterfaceSettings settings) {
  for (auto& device : impl_->devices) {
    if (!device.kernel) continue;
    if (auto its = settings.extract(device.kernel->name()); !its.empty())
      device.kernel->restore(std::move(its.mapped()));
  }
  for (const auto& [name, its] : settings) KernelInterface::set(name, its);
}

void Devices::restore_none() {
  for (auto& device : impl_->devices) {
    if (device.kernel) device.kernel->restore_none();
  }
}

unsigned Devices::receive(unsigned queue, Burst& burst, unsigned most) {
  const auto& [source, may_get_large] = impl_->queues[queue];
  std::array<rte_mbuf*, Burst::kMax> packets;
  const unsigned got =
      source.receive(std::span(packets).first(std::min(most, Burst::kMax - burst.size)));
  for (unsigned i = 0; i < got; ++i) rte_prefetch0(rte_pktmbuf_mtod(packets[i], void*));
  for (unsigned i = 0; i < got; ++i)
    place(burst, burst.size + i, std::bit_cast<Handle>(packets[i]));
  if (may_get_large != nullptr) {
    // MTU + Ethernet header (14) + two VLAN tags (8).
    const unsigned largest = may_get_large->mtu + 22;
    const auto is_large = [largest](const rte_mbuf* packet) { return packet->pkt_len > largest; };
    if (std::any_of(packets.begin(), packets.begin() + got, is_large))
      may_get_large->refuse_large();
  }
  burst.size += got;
  return got;
}

unsigned Devices::transmit(unsigned worker, std::span<const Outgoing> frames) {
  std::array<rte_mbuf*, Burst::kMax> packets;
  unsigned lost = 0;
  for (unsigned link = 0; link < impl_->devices.size(); ++link) {
    SendQueue& to = impl_->devices[link].send[worker];
    std::size_t count = 0;
    for (const Outgoing& frame : frames) {
      if (frame.link != link) continue;
      rte_mbuf* packet = mbuf(frame.handle);
      packet->data_off =
          static_cast<std::uint16_t>(frame.data - static_cast<std::byte*>(packet->buf_addr));
      packet->data_len = frame.length;
      packet->pkt_len = frame.length;
      packet->ol_flags = 0;
      packets[count++] = packet;
      if (count < packets.size()) continue;
      lost += to.send(packets);
      count = 0;
    }
    lost += to.send(std::span(packets).first(count));
  }
  return lost;
}

bool Devices::has_waiting(unsigned worker) const {
  return std::ranges::any_of(impl_->devices, [worker](const Impl::Device& device) {
    return device.send[worker].has_waiting();
  });
}

unsigned Devices::drain(unsigned worker) {
  unsigned lost = 0;
  for (auto& device : impl_->devices) lost += device.send[worker].drain();
  return lost;
}

Outgoing Devices::make(unsigned bytes) {
  rte_mbuf* packet = rte_pktmbuf_alloc(impl_->pool);
  if (packet == nullptr) return {};
  if (bytes > rte_pktmbuf_tailroom(packet)) {
    rte_pktmbuf_free(packet);
    return {};
  }
  return {.handle = std::bit_cast<Handle>(packet), .data = rte_pktmbuf_mtod(packet, std::byte*)};
}

unsigned Devices::device_of(Handle handle) const { return impl_->device_of[mbuf(handle)->port]; }

}  // namespace millrace
