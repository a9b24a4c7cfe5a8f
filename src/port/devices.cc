#include "port/devices.h"

#include <rte_config.h>  // first of DPDK's

#include <algorithm>
#include <utility>

#include "core/silence.h"
#include "port/devices_impl.h"

namespace millrace {
namespace {

/// Gives a frame that is to be sent the data and length that it has now.
rte_mbuf* prepared(const Outgoing& frame) {
  rte_mbuf* const packet = mbuf(frame.handle);
  packet->data_off =
      static_cast<std::uint16_t>(frame.data - static_cast<std::byte*>(packet->buf_addr));
  packet->data_len = frame.length;
  packet->pkt_len = frame.length;
  packet->ol_flags = 0;
  return packet;
}

}  // namespace

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

Devices::Devices(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Devices::~Devices() {
  const Silence silence;
  for (const auto& device : impl_->devices) {
    // Taps are left to the end of the process, except with remote=: the driver would set a tap
    // down, and an interface that outlasts this process would lose its routes. The end of the
    // process does not undo a redirection (remote=), so such a tap is closed here. Memifs are left,
    // too: the driver ends the process if a peer connects while the driver closes.
    if (device.ethernet.empty()) continue;
    const DeviceName& name = device.name;
    if (name.kind == DeviceKind::memif) continue;
    if (name.kind == DeviceKind::tap && !name.arguments.contains("remote=")) continue;
    for (const Ethernet& ethernet : device.ethernet) {
      rte_eth_dev_stop(ethernet.id);
      rte_eth_dev_close(ethernet.id);
    }
  }
}

unsigned Devices::links() const { return impl_->map.links(); }
const DeviceName& Devices::name(unsigned link) const { return impl_->device_of(link).name; }
unsigned Devices::vlan(unsigned link) const { return impl_->map.vlan_of(link); }
Mac Devices::mac(unsigned link) const { return impl_->device_of(link).mac; }
unsigned Devices::mtu(unsigned link) const { return impl_->links[link].mtu; }
std::vector<std::string> Devices::warnings() const { return impl_->warnings; }
Pages Devices::pages() const { return impl_->memory.pages(); }
unsigned Devices::receive_queues() const { return static_cast<unsigned>(impl_->queues.size()); }

bool Devices::has_vlans(unsigned queue) const { return !impl_->queues[queue].in.empty(); }
unsigned Devices::first_link(unsigned queue) const { return impl_->queues[queue].link; }

LinkStatistics Devices::statistics(unsigned link) const {
  LinkStatistics sum;
  const Impl::Device& device = impl_->device_of(link);
  // DPDK's drivers for the kernel's interfaces do not follow the link state.
  if (device.kernel) sum.link_is_up = device.kernel->is_running();
  for (const Ethernet& ethernet : device.ethernet) {
    rte_eth_stats stats{};
    if (rte_eth_stats_get(ethernet.id, &stats) == 0) {
      sum.in += stats.ipackets;
      sum.out += stats.opackets;
      sum.missed += stats.imissed + stats.rx_nombuf;
    }
    rte_eth_link is{};
    if (!device.kernel && rte_eth_link_get_nowait(ethernet.id, &is) == 0)
      sum.link_is_up |= is.link_status == RTE_ETH_LINK_UP;
  }
  if (!impl_->map.has_vlans(device.number)) return sum;
  sum.in = sum.out = 0;
  for (const Impl::Source& source : impl_->queues) {
    if (source.device == device.number) sum.in += source.in[link].value();
  }
  for (const std::vector<Counter>& by_link : device.out) sum.out += by_link[link].value();
  return sum;
}

Result<void> Devices::start() {
  const Silence silence;
  for (auto& device : impl_->devices) {
    for (const Ethernet& ethernet : device.ethernet) {
      const std::string name = to_string(device.name);
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
  for (const Impl::Source& source : impl_->queues) {
    // A bounded number of bursts, as packets may come as fast as they are dropped.
    for (unsigned bursts = 0; bursts < Impl::kPacketsAQueue / Burst::kMax; ++bursts) {
      const unsigned got = source.receive(packets);
      if (got == 0) break;
      rte_pktmbuf_free_bulk(packets.data(), got);
    }
  }
}

InterfaceSettings Devices::to_restore() const {
  InterfaceSettings all;
  for (const auto& device : impl_->devices) {
    const DeviceName& name = device.name;
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
  Impl::Source& source = impl_->queues[queue];
  std::array<rte_mbuf*, Burst::kMax> packets;
  const unsigned got =
      source.receive(std::span(packets).first(std::min(most, Burst::kMax - burst.size)));
  if (got == 0) return 0;
  for (unsigned i = 0; i < got; ++i) rte_prefetch0(rte_pktmbuf_mtod(packets[i], void*));
  for (unsigned i = 0; i < got; ++i)
    place(burst, burst.size + i, std::bit_cast<Handle>(packets[i]));
  const unsigned end = burst.size + got;
  if (source.in.empty()) [[likely]] {
    std::fill(burst.link.begin() + burst.size, burst.link.begin() + end, source.link);
  } else {
    impl_->find_links(source, burst, end);
  }
  if (Impl::Device* const device = source.may_get_large; device != nullptr) {
    // MTU + Ethernet header (14) + two VLAN tags (8).
    const unsigned largest = device->mtu + 22;
    const auto is_large = [largest](const rte_mbuf* packet) { return packet->pkt_len > largest; };
    if (std::any_of(packets.begin(), packets.begin() + got, is_large)) device->refuse_large();
  }
  burst.size = end;
  return got;
}

/// Finds the links of the packets from `burst.size` up to before `end`, by the VLANs in their tags,
/// and takes off the tags of links' own VLANs.
void Devices::Impl::find_links(Source& source, Burst& burst, unsigned end) const {
  for (unsigned i = burst.size; i < end; ++i) {
    rte_mbuf* const packet = mbuf(burst.handle[i]);
    const unsigned vlan = vlan_of({burst.data[i], burst.length[i]});
    const std::uint8_t link = map.link_of(source.device, vlan);
    burst.link[i] = link;
    if (link == kNoLink) continue;
    source.in[link].add(1);
    packet->port = static_cast<std::uint16_t>(kOfLink + link);
    if (map.vlan_of(link) == 0) continue;
    take_tag(burst.data[i]);
    rte_pktmbuf_adj(packet, kVlanTagBytes);
    place(burst, i, burst.handle[i]);
  }
}

/// Sends the frames that leave by the device.
template <bool kHasVlans>
unsigned Devices::Impl::send(Device& device, unsigned worker,
                             std::span<const Outgoing> frames) const {
  SendQueue& to = device.send[worker];
  const unsigned only_link = map.first_link(device.number);
  std::array<rte_mbuf*, Burst::kMax> packets;
  unsigned lost = 0;
  std::size_t count = 0;
  for (const Outgoing& frame : frames) {
    if (kHasVlans ? map.device_of(frame.link) != device.number : frame.link != only_link) continue;
    rte_mbuf* const packet = prepared(frame);
    if constexpr (kHasVlans) {
      packet->port = static_cast<std::uint16_t>(kOfLink + frame.link);
      if (const unsigned vlan = map.vlan_of(frame.link); vlan != 0) {
        char* const begin = rte_pktmbuf_prepend(packet, kVlanTagBytes);
        if (begin == nullptr) {
          rte_pktmbuf_free(packet);
          ++lost;
          continue;
        }
        put_tag(reinterpret_cast<std::byte*>(begin), vlan);
      }
    }
    packets[count++] = packet;
    if (count < packets.size()) continue;
    lost += to.send(packets);
    count = 0;
  }
  return lost + to.send(std::span(packets).first(count));
}

unsigned Devices::transmit(unsigned worker, std::span<const Outgoing> frames) {
  unsigned lost = 0;
  for (Impl::Device& device : impl_->devices)
    lost += device.out.empty() ? impl_->send<false>(device, worker, frames)
                               : impl_->send<true>(device, worker, frames);
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

unsigned Devices::link_of(Handle handle) const {
  const unsigned port = mbuf(handle)->port;
  return port >= kHopped ? port & 0xff : impl_->link_of[port];
}

}  // namespace millrace
