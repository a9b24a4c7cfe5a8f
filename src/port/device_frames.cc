// The part of `Devices` that handles frames (DPDK's mbufs), regardless of their device.
#include <rte_config.h>  // first of DPDK's

#include <rte_lcore.h>
#include <rte_mbuf.h>

#include <bit>

#include "port/devices.h"

namespace millrace {
namespace {

rte_mbuf* mbuf(Handle handle) { return std::bit_cast<rte_mbuf*>(handle); }

/// Cuts a frame to `length` bytes from `data` on.
void cut(Handle handle, const std::byte* data, std::uint16_t length) {
  rte_mbuf* const packet = mbuf(handle);
  packet->data_off =
      static_cast<std::uint16_t>(data - static_cast<const std::byte*>(packet->buf_addr));
  Devices::set_length(handle, length);
}

}  // namespace

void Devices::join() { static_cast<void>(rte_thread_register()); }
void Devices::leave() { rte_thread_unregister(); }

void Devices::place(Burst& burst, unsigned at, Handle handle) {
  const rte_mbuf* packet = mbuf(handle);
  burst.data[at] = rte_pktmbuf_mtod(packet, std::byte*);
  burst.length[at] = packet->data_len;
  burst.wire_length[at] = packet->pkt_len;
  burst.handle[at] = handle;
}

static_assert(RTE_MAX_ETHPORTS <= Devices::kHopped);

void Devices::mark_of_kernel(Handle handle, unsigned link) {
  mbuf(handle)->port = static_cast<std::uint16_t>(kOfKernel + link);
}
bool Devices::has_kernel_mark(Handle handle) { return mbuf(handle)->port >= kOfKernel; }

void Devices::mark_of_customer(const Burst& burst, unsigned at) {
  rte_mbuf* const packet = mbuf(burst.handle[at]);
  packet->port = static_cast<std::uint16_t>(kOfCustomer + burst.link[at]);
  packet->hash.usr = burst.customer[at];
  cut(burst.handle[at], burst.data[at], burst.length[at]);
}
void Devices::mark_as_again(const Outgoing& packet) {
  mbuf(packet.handle)->port = static_cast<std::uint16_t>(kAgain + packet.link);
  cut(packet.handle, packet.data, packet.length);
}
bool Devices::comes_again(Handle handle) {
  const unsigned port = mbuf(handle)->port;
  return port >= kAgain && port < kOfCustomer;
}
void Devices::mark_as_hopped(Handle handle, unsigned link, Zone customer) {
  mbuf(handle)->port = static_cast<std::uint16_t>(kHopped + link);
  mbuf(handle)->hash.usr = customer;
}
bool Devices::has_hopped(Handle handle) {
  const unsigned port = mbuf(handle)->port;
  return port >= kHopped && port < kAgain;
}
Zone Devices::customer_of(Handle handle) {
  const rte_mbuf* const packet = mbuf(handle);
  const bool is_of_customer = packet->port >= kOfCustomer && packet->port < kOfLink;
  return is_of_customer || has_hopped(handle) ? packet->hash.usr : 0;
}

void Devices::free(std::span<const Handle> handles) {
  for (const Handle handle : handles) rte_pktmbuf_free(mbuf(handle));
}

void Devices::share(Handle handle, unsigned more) {
  rte_mbuf_refcnt_update(mbuf(handle), static_cast<std::int16_t>(more));
}

std::span<std::byte> Devices::bytes(Handle handle) {
  const rte_mbuf* packet = mbuf(handle);
  return {rte_pktmbuf_mtod(packet, std::byte*), packet->data_len};
}

void Devices::set_length(Handle handle, std::uint16_t length) {
  mbuf(handle)->data_len = length;
  mbuf(handle)->pkt_len = length;
}

}  // namespace millrace
