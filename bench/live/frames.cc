// Sends frames of many UDP connections, which take turns, from memory through a device that should
// lose no frame:
//
//   frames EAL_OPTION... -- CONNECTIONS PACKETS_A_SECOND SECONDS
//
// DPDK's first port sends the frames, the second receives them. Prints a JSON object: frames sent,
// received and lost, the slowest frame's time, and the longest time without a received frame.
#include <fmt/format.h>
#include <rte_config.h>  // must be DPDK's first header
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_udp.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr std::uint16_t kBurst = 32;
constexpr std::uint16_t kDescriptors = 8192;
constexpr std::uint32_t kClients = 0x64400000;  // 100.64.0.0/10
constexpr std::uint32_t kService = 0xcb00710a;  // 203.0.113.10, as in beside.py

struct __attribute__((packed, aligned(2))) Frame {
  rte_ether_hdr ether{.dst_addr = {{2, 0, 0, 0, 0, 2}}, .src_addr = {{2, 0, 0, 0, 0, 1}}};
  rte_ipv4_hdr ip{};
  rte_udp_hdr udp{};
  std::uint64_t sent_at = 0;
  std::array<std::byte, 10> rest{};
};
static_assert(sizeof(Frame) == 60);

[[noreturn]] void fail(std::string_view what) {
  fmt::print(stderr, "frames: {}: {}\n", what, rte_strerror(rte_errno));
  std::exit(1);
}

Frame blank() {
  Frame frame;
  frame.ether.ether_type = rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4);
  frame.ip.version_ihl = 0x45;
  frame.ip.total_length = rte_cpu_to_be_16(sizeof(Frame) - sizeof(rte_ether_hdr));
  frame.ip.time_to_live = 64;
  frame.ip.next_proto_id = IPPROTO_UDP;
  frame.ip.dst_addr = rte_cpu_to_be_32(kService);
  frame.udp.src_port = rte_cpu_to_be_16(4000);
  frame.udp.dst_port = rte_cpu_to_be_16(80);
  frame.udp.dgram_len =
      rte_cpu_to_be_16(sizeof(Frame) - sizeof(rte_ether_hdr) - sizeof(rte_ipv4_hdr));
  return frame;
}

void start(std::uint16_t port, rte_mempool* pool) {
  const rte_eth_conf conf{};
  std::uint16_t receive = kDescriptors;
  std::uint16_t send = kDescriptors;
  if (rte_eth_dev_configure(port, 1, 1, &conf) != 0) fail("a port cannot be set up");
  rte_eth_dev_adjust_nb_rx_tx_desc(port, &receive, &send);
  if (rte_eth_rx_queue_setup(port, 0, receive, 0, nullptr, pool) != 0 ||
      rte_eth_tx_queue_setup(port, 0, send, 0, nullptr) != 0 || rte_eth_dev_start(port) != 0)
    fail("a port does not start");
}

class Frames {
 public:
  Frames(rte_mempool* pool, std::uint32_t connections) : pool_(pool), connections_(connections) {}

  void run(double rate, double seconds) {
    while (!is_up(0) || !is_up(1)) rte_delay_ms(1);
    looked_at_ = rte_rdtsc();
    const std::uint64_t start = rte_rdtsc();
    const auto hz = static_cast<double>(rte_get_tsc_hz());
    const auto end = start + static_cast<std::uint64_t>(seconds * hz);
    for (std::uint64_t now = start; now < end; now = rte_rdtsc()) {
      const auto due = static_cast<std::uint64_t>(static_cast<double>(now - start) / hz * rate);
      if (sent_ < due) send(now);
      receive();
      if (now >= looked_at_ + rte_get_tsc_hz() / 1000) {
        looked_at_ = now;
        connect(0, now);
        connect(1, now);
      }
    }
    const std::uint64_t last = rte_rdtsc() + rte_get_tsc_hz() / 2;
    while (rte_rdtsc() < last && came_ < sent_) receive();
    const auto ms = [hz](std::uint64_t ticks) { return static_cast<double>(ticks) / hz * 1e3; };
    fmt::print(
        "{{\"sent\": {}, \"came\": {}, \"lost\": {}, \"slowest_ms\": {:.1f}, "
        "\"longest_silence_ms\": {:.1f}}}\n",
        sent_, came_, sent_ - came_, ms(slowest_), ms(longest_silence_));
  }

 private:
  static bool is_up(std::uint16_t port) {
    rte_eth_link link{};
    return rte_eth_link_get_nowait(port, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
  }

  /// Reconnects a memif after its other end has gone: a port connects when it is started. Waits 5
  /// ms before an attempt, because the driver's own thread is still busy with the disconnection.
  void connect(std::uint16_t port, std::uint64_t now) {
    if (is_up(port)) {
      tried_at_[port] = now;
    } else if (now >= tried_at_[port] + rte_get_tsc_hz() / 200) {
      if (is_started_[port]) rte_eth_dev_stop(port);
      is_started_[port] = rte_eth_dev_start(port) == 0;
      // Even if the other end listens, the link takes a while to come up.
      tried_at_[port] = is_started_[port] ? now + rte_get_tsc_hz() : 0;
    }
  }

  void send(std::uint64_t now) {
    if (!is_started_[0]) return;
    std::array<rte_mbuf*, kBurst> packets;
    if (rte_pktmbuf_alloc_bulk(pool_, packets.data(), kBurst) != 0) return;
    for (std::uint16_t i = 0; i < kBurst; ++i) {
      blank_.sent_at = now;
      const auto client = static_cast<std::uint32_t>((sent_ + i) % connections_);
      blank_.ip.src_addr = rte_cpu_to_be_32(kClients + client);
      blank_.ip.hdr_checksum = 0;
      blank_.ip.hdr_checksum = rte_ipv4_cksum(&blank_.ip);
      std::memcpy(rte_pktmbuf_append(packets[i], sizeof(Frame)), &blank_, sizeof(Frame));
    }
    const std::uint16_t taken = rte_eth_tx_burst(0, 0, packets.data(), kBurst);
    sent_ += taken;
    if (taken < kBurst) rte_pktmbuf_free_bulk(packets.data() + taken, kBurst - taken);
  }

  void receive() {
    if (!is_started_[1]) return;
    std::array<rte_mbuf*, kBurst> packets;
    const std::uint16_t got = rte_eth_rx_burst(1, 0, packets.data(), kBurst);
    if (got == 0) return;
    const std::uint64_t now = rte_rdtsc();
    if (came_ != 0) longest_silence_ = std::max(longest_silence_, now - came_at_);
    came_at_ = now;
    for (std::uint16_t i = 0; i < got; ++i) {
      Frame frame;
      if (packets[i]->data_len != sizeof(Frame)) continue;  // for example an ARP packet
      std::memcpy(&frame, rte_pktmbuf_mtod(packets[i], void*), sizeof(Frame));
      if (frame.ip.next_proto_id != IPPROTO_UDP) continue;
      slowest_ = std::max(slowest_, now - frame.sent_at);
      ++came_;
    }
    rte_pktmbuf_free_bulk(packets.data(), got);
  }

  rte_mempool* pool_;
  std::uint32_t connections_;
  Frame blank_ = blank();
  std::array<bool, 2> is_started_{true, true};
  std::array<std::uint64_t, 2> tried_at_{};
  std::uint64_t sent_ = 0;
  std::uint64_t came_ = 0;
  std::uint64_t came_at_ = 0;
  std::uint64_t looked_at_ = 0;
  std::uint64_t slowest_ = 0;
  std::uint64_t longest_silence_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const int eal = rte_eal_init(argc, argv);
  if (eal < 0) fail("DPDK does not start");
  const std::vector<std::string> words(argv + eal + 1, argv + argc);
  if (words.size() != 3 || rte_eth_dev_count_avail() != 2) {
    fmt::print(stderr,
               "frames EAL_OPTION... -- CONNECTIONS PACKETS_A_SECOND SECONDS, with two ports\n");
    return 2;
  }
  rte_mempool* const pool = rte_pktmbuf_pool_create("frames", (1U << 16) - 1, 256, 0,
                                                    RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
  if (pool == nullptr) fail("no memory for frames");
  start(0, pool);
  start(1, pool);
  Frames(pool, static_cast<std::uint32_t>(std::stoul(words[0])))
      .run(std::stod(words[1]), std::stod(words[2]));
  return 0;
}
