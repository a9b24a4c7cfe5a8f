#include "bench/overload_port.h"

#include <cstring>
#include <numeric>

#include "core/protocol.h"
#include "parse/bytes.h"
#include "shard/indirection.h"

namespace millrace::bench {
namespace {

constexpr std::uint8_t kBackends = 8;
constexpr std::uint16_t kPort = 80;
// Packets of a client and its backend in Act::overload: of an established client, and of one that
// begins then.
constexpr unsigned kPacketsEstablished = 4;
constexpr unsigned kPacketsNew = 5;
constexpr unsigned kLater = 256;  // moments from a sent packet to its connection's next one

// Addresses as in src/traffic. The first server's address is the service's; the next ones are the
// backends'.
constexpr std::uint32_t kVirtual = 0xc613'0001;
constexpr std::uint32_t kFirstClient = 0xc612'0001;

constexpr AddressV4 address(std::uint32_t number) {
  AddressV4 address;
  for (unsigned i = 0; i < 4; ++i) {
    address.bytes[i] = static_cast<std::uint8_t>(number >> (24 - 8 * i));
  }
  return address;
}

Endpoint client(std::uint64_t number) {
  constexpr std::uint64_t kHosts = 65'000;
  return {Endpoint::Side::client, static_cast<std::uint32_t>(number % kHosts),
          static_cast<std::uint16_t>(1024 + number / kHosts)};
}

KeyV4 key_of(std::uint64_t number) {
  const Endpoint from = client(number);
  return {.source = address(kFirstClient + from.host),
          .destination = address(kVirtual),
          .source_port = from.port,
          .destination_port = kPort,
          .protocol = kProtocolTcp};
}

std::uint32_t first_sequence(std::uint64_t number, bool of_backend) {
  return static_cast<std::uint32_t>((2 * number + of_backend + 1) * 0x9e3779b97f4a7c15 >> 32);
}

}  // namespace

ServiceSpec<AddressV4> played_service() {
  ServiceSpec<AddressV4> service{
      .address = address(kVirtual), .port = kPort, .protocol = kProtocolTcp};
  for (std::uint32_t n = 1; n <= kBackends; ++n)
    service.backends.push_back({address(kVirtual + n)});
  return service;
}

std::vector<std::vector<std::uint32_t>> clients_by_worker(const Crowd& crowd,
                                                          const millrace::Spread& spread,
                                                          unsigned workers) {
  std::vector<std::vector<std::uint32_t>> clients(workers);
  if (workers == 1) {
    clients.front().resize(crowd.all());
    std::iota(clients.front().begin(), clients.front().end(), 0);
    return clients;
  }
  const Indirection indirection(Indirection::kMost, workers);
  for (std::uint32_t number = 0; number < crowd.all(); ++number) {
    const KeyV4 key = key_of(number);
    std::uint32_t hash = 0;
    spread.hash({}, {&key, 1}, {&hash, 1});
    clients[indirection.worker_of(indirection.shard_of(hash))].push_back(number);
  }
  return clients;
}

void Judgement::add(const Judgement& more) {
  for (std::uint64_t Judgement::* count :
       {&Judgement::packets, &Judgement::misdirected, &Judgement::established_due,
        &Judgement::established_good, &Judgement::genuine_due, &Judgement::genuine_good,
        &Judgement::others, &Judgement::without_entry, &Judgement::clients, &Judgement::served}) {
    this->*count += more.*count;
  }
  const bool is_earlier =
      more.first_refused && (!first_refused || *more.first_refused < *first_refused);
  if (is_earlier) first_refused = more.first_refused;
}

OverloadPort::OverloadPort(const CycleClock& clock, const Crowd& crowd,
                           std::vector<std::uint32_t> clients, const Pace& pace,
                           const WorkerCounters& counters)
    : clock_(&clock),
      crowd_(crowd),
      clients_(std::move(clients)),
      established_(static_cast<std::uint64_t>(
          std::ranges::lower_bound(clients_, crowd.established) - clients_.begin())),
      pace_(pace),
      counters_(&counters),
      backend_(clients_.size()),
      wrong_(clients_.size()),
      has_entry_(clients_.size()) {}

bool OverloadPort::receive(Burst& burst) {
  const std::uint64_t start = clock_->begin();
  frames_in_flight_ = (frames_in_flight_ + 1) % frames_.size();
  asked_ += pace_.burst;
  burst.now = Tick{static_cast<std::uint32_t>(1 + asked_ / pace_.packets_per_ms)};
  bool more = true;
  while (burst.size < pace_.burst && more) more = next(burst);
  own_ns_ += clock_->ns_since(start);
  return more || !due_.empty() || in_flight_ > 0;
}

void OverloadPort::send(const Burst& burst, std::uint64_t forward) {
  const std::uint64_t start = clock_->begin();
  for (unsigned i = 0; i < burst.size; ++i) judge(burst, i, (forward >> i & 1) != 0);
  if (!first_refused_ && counters_->refused.value() > 0)
    first_refused_ = first_without_entry(burst);
  own_ns_ += clock_->ns_since(start);
}

/// Adds the next packet to the burst. Adds none if the next packet is of a refused client, or if
/// moments must be skipped until a packet is due. Returns false if there is nothing to add or skip.
bool OverloadPort::next(Burst& burst) {
  if (!due_.empty() && due_.front().at <= moment_) {
    const Due due = due_.front();
    due_.pop_front();
    add(burst, due.client, due.step);
    return true;
  }
  const bool opens = act_ == Act::opening;
  const std::uint64_t all = opens ? 0 : kPacketsEstablished * established_;
  const std::uint64_t begin = opens ? established_ : clients_.size() - established_;
  if (begun_ < begin && begun_ * all <= sent_established_ * begin) {
    add(burst, (opens ? 0 : established_) + begun_++, Step::syn);
    return true;
  }
  if (sent_established_ < all) {
    const std::uint64_t at = sent_established_++;
    const std::uint64_t n = at % established_;
    // Neither a client that was refused when it began nor its backend sends any more.
    if (backend_[n] != 0) add(burst, n, at / established_ % 2 == 0 ? Step::question : Step::answer);
    return true;
  }
  if (due_.empty()) return false;
  moment_ = due_.front().at;  // skips moments until the next packet is due
  return true;
}

void OverloadPort::add(Burst& burst, std::uint64_t n, Step step) {
  const std::uint64_t number = clients_[n];
  const bool replies = is_from_backend(step);
  const Endpoint server{Endpoint::Side::server, replies ? backend_[n] : 0U, kPort};
  Frame frame{.from = replies ? server : client(number), .to = replies ? client(number) : server};
  frame.flags = step == Step::syn       ? Frame::kSyn
                : step == Step::syn_ack ? Frame::kSyn | Frame::kAck
                                        : Frame::kAck;
  frame.sequence = first_sequence(number, replies) + (step > Step::syn_ack ? 1 : 0);
  frame.payload = step == Step::question || step == Step::answer ? 1 : 0;
  frame.acknowledgement = step == Step::syn ? 0 : first_sequence(number, !replies) + 1;
  FrameBytes& bytes = frames_[frames_in_flight_][burst.size];
  const auto length = static_cast<std::uint16_t>(builder_.build(frame));
  std::memcpy(bytes.data(), builder_.data(), length);
  burst.data[burst.size] = bytes.data();
  burst.length[burst.size] = length;
  burst.wire_length[burst.size] = length;
  burst.handle[burst.size] = n << 3 | static_cast<std::uint64_t>(step);
  ++burst.size;
  ++moment_;
  ++packets_;
  ++in_flight_;
}

void OverloadPort::judge(const Burst& burst, unsigned i, bool forwarded) {
  constexpr unsigned kSource = 26;
  constexpr unsigned kDestination = 30;
  const std::uint64_t n = burst.handle[i] >> 3;
  const auto step = static_cast<Step>(burst.handle[i] & 7);
  const bool replies = is_from_backend(step);
  const std::uint32_t got = detail::u32(burst.data[i] + (replies ? kSource : kDestination));
  if (step == Step::syn && backend_[n] == 0 && forwarded)
    backend_[n] = static_cast<std::uint8_t>(got - kVirtual);
  --in_flight_;
  const bool right = forwarded && got == (replies ? kVirtual : kVirtual + backend_[n]);
  misdirected_ += forwarded && !right;
  const bool opens = act_ == Act::opening;
  const bool is_established = !opens && n < established_;
  good_established_ += is_established && right;
  good_genuine_ += !opens && is_genuine(n) && right;
  wrong_[n] = wrong_[n] || !right;
  has_entry_[n] = has_entry_[n] || burst.verdict[i] == Verdict::tracked;
  if (right && is_genuine(n) && !is_established && step != Step::answer)
    due_.push_back({moment_ + kLater, n, static_cast<Step>(static_cast<int>(step) + 1)});
}

std::optional<std::uint64_t> OverloadPort::first_without_entry(const Burst& burst) const {
  for (unsigned i = 0; i < burst.size; ++i) {
    const bool begins = static_cast<Step>(burst.handle[i] & 7) == Step::syn;
    if (begins && burst.verdict[i] != Verdict::tracked) return clients_[burst.handle[i] >> 3];
  }
  return std::nullopt;
}

Judgement OverloadPort::judgement() const {
  Judgement sum{.packets = packets_,
                .misdirected = misdirected_,
                .established_due = kPacketsEstablished * established_,
                .established_good = good_established_,
                .genuine_good = good_genuine_,
                .others = clients_.size() - established_,
                .first_refused = first_refused_};
  for (std::uint64_t n = established_; n < clients_.size(); ++n) {
    sum.without_entry += !has_entry_[n];
    sum.clients += is_genuine(n);
    sum.served += is_genuine(n) && backend_[n] != 0 && !wrong_[n];
  }
  sum.genuine_due = sum.established_due + kPacketsNew * sum.clients;
  return sum;
}

std::uint64_t OverloadPort::entries_below(std::uint64_t number) const {
  const auto end = std::ranges::lower_bound(clients_, number) - clients_.begin();
  return static_cast<std::uint64_t>(std::count(has_entry_.begin(), has_entry_.begin() + end, true));
}

}  // namespace millrace::bench
