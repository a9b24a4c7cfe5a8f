// Requests of a cluster's agent: which servers have the copies of which shards.
#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <chrono>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <variant>

#include "control/control.h"
#include "core/address.h"
#include "core/json.h"
#include "line/carried.h"
#include "worker/copies.h"

namespace millrace {
namespace {

/// Time for which a request waits until the workers follow, so that its answer is true.
constexpr std::chrono::milliseconds kMostToFollow{500};

std::string text_of(Member member) {
  return fmt::format("{:016x}", static_cast<std::uint64_t>(member));
}

std::string text_of_grants(Grants::Bits grants) {
  std::string text;
  for (; grants != 0; grants &= grants - 1)
    fmt::format_to(std::back_inserter(text), "{}{}", text.empty() ? "" : ",",
                   std::countr_zero(grants));
  return text;
}

/// A wrong order; the message says what would be right.
class WrongOrder : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// Returns a value as text; only its type if it may be large, or nested deeply.
std::string shown(const Json& json) {
  return json.is_primitive() ? json.dump().substr(0, 100) : json.type_name();
}

Member read_instance(const Json& json, bool may_be_none) {
  const auto* const text = json.get_ptr<const std::string*>();
  std::uint64_t number = 0;
  if (text != nullptr && text->empty() && may_be_none) return Member::none;
  const char* const end = text == nullptr ? nullptr : text->data() + text->size();
  const bool is_one = text != nullptr && text->size() == 16 &&
                      std::from_chars(text->data(), end, number, 16).ptr == end && number != 0 &&
                      process_of(Member{number}) == Member{number};
  if (!is_one)
    throw WrongOrder(shown(json) + " is no instance: give 16 hexadecimal digits, as GET /cluster");
  return Member{number};
}

/// Reads the body of `PUT /cluster`. Throws WrongOrder, and what the JSON library throws.
class OrdersReader {
 public:
  explicit OrdersReader(const Copies& copies) : copies_(copies) {}

  Placement read(const Json& orders) {
    placement_.hops = true;
    placement_.state = {.has_settled = true, .both_are_new = false, .is_sure = false};
    const Placement::OfShard nobodys{.master = Placement::kNowhere, .slave = Placement::kNowhere};
    placement_.shards.assign(copies_.shards(), nobodys);
    for (const Json& member : list(orders, "members")) read_member(member);
    for (const Json& shard : list(orders, "shards")) read_shard(shard);
    return std::move(placement_);
  }

 private:
  static const Json& part(const Json& of, const char* name) {
    if (!of.is_object()) throw WrongOrder(shown(of) + ": must be an object");
    const auto is = of.find(name);
    if (is == of.end()) throw WrongOrder(fmt::format("{} is missing", name));
    return *is;
  }
  static const Json& list(const Json& orders, const char* name) {
    const Json& is = part(orders, name);
    if (!is.is_array()) throw WrongOrder(fmt::format("{}: must be a list", name));
    return is;
  }
  static const std::string& text(const Json& of, const char* name) {
    const Json& is = part(of, name);
    if (!is.is_string()) throw WrongOrder(fmt::format("{} {}: must be a text", name, shown(is)));
    return is.get_ref<const std::string&>();
  }

  void read_member(const Json& json) {
    const Member member = read_instance(part(json, "instance"), false);
    if (member == copies_.self()) return;
    if (places_.contains(member)) throw WrongOrder(text_of(member) + " stands there twice");
    if (placement_.peers.size() == Placement::kMostPeers)
      throw WrongOrder("there are too many members: give " +
                       std::to_string(Placement::kMostPeers + 1) + " at most");
    const std::string& address = text(json, "address");
    std::optional<AnyKey> ends;
    if (const auto v4 = parse_address<AddressV4>(address)) ends = copies_.ends_to(*v4);
    if (const auto v6 = parse_address<AddressV6>(address)) ends = copies_.ends_to(*v6);
    if (!ends)
      throw WrongOrder(shown(part(json, "address")) +
                       " is no address of the family of cluster.address");
    places_[member] = static_cast<std::uint8_t>(placement_.peers.size());
    placement_.peers.push_back(
        {.member = member,
         .server = static_cast<unsigned>(read_number(json, "server", UINT32_MAX)),
         .ends = *ends});
  }

  void read_shard(const Json& json) {
    const std::uint64_t number = read_number(json, "shard");
    if (number >= placement_.shards.size())
      throw WrongOrder(fmt::format("there is no shard {}: this server has {} (spread.entries)",
                                   number, placement_.shards.size()));
    Placement::OfShard& of = placement_.shards[number];
    if (of.assignment.epoch != 0)
      throw WrongOrder(fmt::format("shard {} stands there twice", number));
    const Member master = read_instance(part(json, "master"), true);
    const Member slave = read_instance(part(json, "slave"), true);
    of.master = place_of(master);
    of.slave = place_of(slave);
    const bool is_master = master == copies_.self();
    const bool is_slave = slave == copies_.self();
    of.assignment = {.epoch = read_number(json, "epoch"),
                     .role = is_master  ? CopyRole::master
                             : is_slave ? CopyRole::slave
                                        : CopyRole::none,
                     .other = is_master  ? slave
                              : is_slave ? master
                                         : Member::none,
                     .is_settled = read_flag(json, "settled")};
    of.grants = read_grants(text(json, "grants"));
    if (of.assignment.epoch == 0)
      throw WrongOrder(fmt::format("shard {} has epoch 0: the first is 1", number));
    if (master == Member::none && slave != Member::none)
      throw WrongOrder(
          fmt::format("shard {} has a slave, and no master: give it a master", number));
    if (master == slave && master != Member::none)
      throw WrongOrder(fmt::format("shard {} has both copies at one server", number));
  }

  static std::uint64_t read_number(const Json& json, const char* name,
                                   std::uint64_t most = std::uint64_t{1} << 62) {
    const Json& number = part(json, name);
    if (!number.is_number_unsigned() || number.get<std::uint64_t>() > most)
      throw WrongOrder(
          fmt::format("{} {}: must be a whole number up to {}", name, shown(number), most));
    return number.get<std::uint64_t>();
  }

  static bool read_flag(const Json& json, const char* name) {
    const Json& is = part(json, name);
    if (!is.is_boolean())
      throw WrongOrder(fmt::format("{} {}: must be true or false", name, shown(is)));
    return is.get<bool>();
  }

  /// Reads numbers and ranges, such as 0-11,15.
  static Grants::Bits read_grants(const std::string& text) {
    const auto wrong = [&] {
      return WrongOrder(
          fmt::format("grants {}: must be numbers and ranges below {}, such as 0-11,15",
                      shown(Json(text)), Grants::kOfShard));
    };
    Grants::Bits all = 0;
    const char* at = text.data();
    const char* const end = at + text.size();
    const auto read_number = [&] {
      unsigned number = 0;
      const auto [behind, error] = std::from_chars(at, end, number);
      if (error != std::errc{} || number >= Grants::kOfShard) throw wrong();
      at = behind;
      return number;
    };
    while (at != end) {
      const unsigned first = read_number();
      const bool is_range = at != end && *at == '-';
      if (is_range) ++at;
      const unsigned last = is_range ? read_number() : first;
      const bool goes_on = at != end;
      if (last < first || (goes_on && (*at != ',' || at + 1 == end))) throw wrong();
      if (goes_on) ++at;
      all |= Grants::range(first, last);
    }
    return all;
  }

  std::uint8_t place_of(Member member) const {
    if (member == copies_.self()) return Placement::kHere;
    const auto found = places_.find(member);
    return found == places_.end() ? Placement::kNowhere : found->second;
  }

  const Copies& copies_;
  Placement placement_;
  std::map<Member, std::uint8_t> places_;
};

std::unexpected<Refusal> no_cluster() {
  return std::unexpected(Refusal{Refusal::Kind::absent,
                                 "this millrace is in no cluster: the configuration has no "
                                 "[cluster]"});
}

}  // namespace

CommandResult<Json> Control::cluster_status() {
  const Copies* const copies = live_->copies();
  if (copies == nullptr || !copies->is_cluster()) return no_cluster();
  const auto placement = copies->placement();
  const auto [address, port] = std::visit(
      [](const auto& ends) { return std::pair(to_string(ends.source), ends.source_port); },
      copies->ends());
  Json json{{"server", copies->number()},
            {"instance", text_of(copies->self())},
            {"address", address},
            {"port", port},
            {"shards", copies->shards()},
            {"agreement", fmt::format("{:08x}", copies->agreement())},
            {"version", kCarriedVersion},
            {"wanted", copies->wanted()},
            {"followed", copies->is_followed()}};
  Json& members = json["members"] = Json::array();
  for (const Peer& peer : placement->peers) {
    const auto to =
        std::visit([](const auto& ends) { return to_string(ends.destination); }, peer.ends);
    const Copies::Heard heard = copies->heard_of(peer);
    members.push_back({{"server", peer.server},
                       {"instance", text_of(peer.member)},
                       {"address", to},
                       {"heard", copies->has_heard(peer)},
                       {"agrees", peer.state->agrees.load()},
                       {"disagreement", heard.disagreement},
                       {"same_layout", nullptr}});
    if (heard.has_same_layout) members.back()["same_layout"] = *heard.has_same_layout;
  }
  Json& reports = json["reports"] = Json::array();
  for (unsigned shard = 0; shard < placement->shards.size(); ++shard) {
    const Assignment& is = placement->shards[shard].assignment;
    if (is.role == CopyRole::none) continue;
    reports.push_back({{"shard", shard},
                       {"epoch", is.epoch},
                       {"role", to_string(is.role)},
                       {"in_sync", copies->is_in_sync(shard)},
                       {"packets", copies->packets_of(shard)},
                       {"wanted", copies->wanted()},
                       {"lacks_ports", copies->lacks_ports(shard)},
                       {"lacks_connections", copies->lacks_connections(shard)},
                       {"withdrawn", text_of_grants(copies->handed_back(shard))}});
  }
  Json& counters = json["counters"] = Json::object();
  for (const CopiesCounterKind& kind : kCopiesCounterKinds)
    counters[kind.name] = copies->count(kind.counter);
  return json;
}

CommandResult<Json> Control::follow(const std::string& orders) {
  Copies* const copies = live_->copies();
  if (copies == nullptr || !copies->is_cluster()) return no_cluster();
  const auto wrong = [](const std::string& what) {
    return std::unexpected(Refusal{Refusal::Kind::wrong, "wrong orders: " + what});
  };
  try {
    if (!copies->follow(OrdersReader(*copies).read(Json::parse(orders))))
      return std::unexpected(Refusal{
          Refusal::Kind::not_now,
          "the epoch of a shard goes back, or this server has another part in it than before"});
  } catch (const WrongOrder& error) {
    return wrong(error.what());
  } catch (const Json::exception& error) {
    return wrong(error.what());
  }
  const auto until = std::chrono::steady_clock::now() + kMostToFollow;
  while (!copies->is_followed() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return cluster_status();
}

}  // namespace millrace
