#include "parse/parse.h"

#include "core/protocol.h"
#include "parse/fragment.h"
#include "parse/ip.h"
#include "parse/link.h"
#include "parse/quote.h"
#include "parse/signal.h"

namespace millrace {
namespace {

/// Files the reversed key of the packet that an ICMP error quotes in the lane of quoted packets, if
/// the quoted packet can be read.
template <class K>
void file_error(Burst& burst, unsigned i) {
  const auto quote = read_quote<K>(burst.data[i], burst.headers[i]);
  if (!quote) return;
  auto& lane = burst.quoted<K>();
  lane.packet[lane.size] = static_cast<std::uint8_t>(i);
  lane.key[lane.size++] = reversed(quote->key);
  burst.signal[i] = Signal::packet;
}

/// Notes a fragment, and files the key that an ICMP error quotes. Returns the packet's verdict,
/// given that of `parse_ip`: `tracked` if the packet has a key.
template <class K>
Verdict note_odd(Burst& burst, unsigned i, Verdict verdict) {
  if (burst.headers[i].family == 0) return verdict;
  if (verdict == Verdict::icmp_error) file_error<K>(burst, i);
  if (!read_fragment<typename K::Address>(burst.data[i], burst.headers[i])) return verdict;
  burst.fragments |= std::uint64_t{1} << i;
  const bool is_first = burst.headers[i].protocol != kProtocolFragment;
  return verdict == Verdict::fragment && is_first ? Verdict::tracked : verdict;
}

template <class Ip>
Verdict file(Burst& burst, unsigned i, detail::Packet packet, unsigned l3) {
  auto& lane = burst.lane<typename Ip::Key>();
  Verdict verdict = detail::parse_ip<Ip>(packet, l3, burst.headers[i], lane.key[lane.size]);
  if (verdict != Verdict::tracked) [[unlikely]]
    verdict = note_odd<typename Ip::Key>(burst, i, verdict);
  if (verdict == Verdict::tracked) [[likely]] {
    lane.packet[lane.size++] = static_cast<std::uint8_t>(i);
    burst.signal[i] = read_signal(packet.data, burst.headers[i]);
  }
  return verdict;
}

Verdict parse_one(Burst& burst, unsigned i, detail::LinkHeader link) {
  const detail::Packet packet{burst.data[i], burst.length[i]};
  burst.headers[i] = {};
  detail::Next next;
  const Verdict verdict = detail::find_ip(packet, link, next);
  if (verdict != Verdict::tracked) [[unlikely]]
    return verdict;
  return next.type == detail::kIpv4 ? file<detail::Ipv4>(burst, i, packet, next.at)
                                    : file<detail::Ipv6>(burst, i, packet, next.at);
}

}  // namespace

void parse(Burst& burst, LinkType link) {
  burst.clear_parsed();
  const detail::LinkHeader header = detail::link_header(link);
  for (unsigned i = 0; i < burst.size; ++i) burst.verdict[i] = parse_one(burst, i, header);
}

}  // namespace millrace
