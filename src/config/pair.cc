#include "config/pair.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <string_view>

#include "host/host_for.h"
#include "toml/addresses.h"

namespace millrace {

namespace config {
namespace {

/// Returns the host's own address in whose network on a link the other one is.
template <class A>
std::optional<A> own_beside(const HostAddresses<A>& addresses, const A& other) {
  for (const auto& own : addresses.own) {
    if (own.address != other && prefix_of(other, own.bits) == prefix_of(own.address, own.bits))
      return own.address;
  }
  return std::nullopt;
}

template <class A>
bool read_other(Problems& problems, const RawPair& raw, const Config::Live& live,
                PairSettingsOfFile& pair) {
  const auto other = parse_address<A>(raw.other.value);
  if (!other) return false;
  const auto& addresses = live.family<A>();
  const auto own = own_beside(addresses, *other);
  const bool is_own =
      std::ranges::any_of(addresses.own, [&](const auto& one) { return one.address == *other; });
  if (own && !is_own) {
    Key<A> ends;
    ends.source = *own;
    ends.destination = *other;
    ends.source_port = ends.destination_port = raw.port;
    ends.protocol = kProtocolUdp;
    pair.ends = ends;
  } else {
    problems.add(raw.other.line, "pair.other",
                 to_string(*other) +
                     (is_own ? " is this server's own: give the other server's address"
                             : " is in no network of a port: give an address of the other server "
                               "in one"));
  }
  return true;
}

template <class A>
bool add_address(Problems& problems, const Text& text, Config::Live& live) {
  const auto address = parse_address<A>(text.value);
  if (!address) return false;
  auto& addresses = live.family<A>();
  const auto is_it = [&](const auto& own) { return own.address == *address; };
  if (std::ranges::any_of(addresses.own, is_it)) {
    problems.add(text.line, "pair.addresses",
                 to_string(*address) +
                     " is an address of a port: there give each server one of its own, and here "
                     "those that move");
  } else if (!own_beside(addresses, *address)) {
    problems.add(text.line, "pair.addresses",
                 to_string(*address) + " is in no network of a port: give one that is");
  } else {
    addresses.virtual_addresses.push_back(*address);
  }
  return true;
}

void check_what_goes_with_it(Problems& problems, const RawPair& raw, const Config& config) {
  const auto refuse_if = [&](bool is_so, std::string_view what) {
    if (is_so) problems.add(raw.line, "pair", what);
  };
  refuse_if(config.spread.level,
            "does not go with spread.level or workers = \"auto\", which move connections between "
            "workers: leave them out");
  refuse_if(config.sharing && *config.sharing != "sharded",
            "needs sharing = \"sharded\": each connection is one worker's, who tells the other "
            "server of it");
}

}  // namespace

Keys<RawPair> pair_keys() {
  return {
      {"number", integer(&RawPair::number, 1, 2, "(each server another)"), true},
      {"other", text(&RawPair::other), true},
      {"port", integer(&RawPair::port, 1, 65535)},
      {"key_file", text(&RawPair::key_file), true},
      {"addresses", texts(&RawPair::addresses)},
  };
}

void read_pair(Problems& problems, const RawPair& raw, Config& config) {
  if (raw.line == 0) return;
  PairSettingsOfFile pair{
      .number = raw.number, .ends = {}, .port = raw.port, .key_file = raw.key_file.value};
  check_what_goes_with_it(problems, raw, config);
  if (raw.other.given && !read_other<AddressV4>(problems, raw, config.live, pair) &&
      !read_other<AddressV6>(problems, raw, config.live, pair))
    problems.add(raw.other.line, "pair.other",
                 in_quotes(raw.other.value) + " is no address: give one like 192.0.2.2");
  for (const Text& address : raw.addresses) {
    if (!add_address<AddressV4>(problems, address, config.live) &&
        !add_address<AddressV6>(problems, address, config.live))
      problems.add(address.line, "pair.addresses",
                   in_quotes(address.value) + " is no address: give one like 192.0.2.1");
  }
  config.pair = std::move(pair);
}

}  // namespace config

Result<PairKey> read_pair_key(const std::string& path) {
  const auto error = [&](const std::string& what, Error::Kind kind) {
    return std::unexpected(Error{"pair.key_file " + path + ": " + what, kind});
  };
  constexpr std::string_view kHow = "; make one with: openssl rand -hex 32";
  std::ifstream file(path);
  struct stat of{};
  if (!file || ::stat(path.c_str(), &of) != 0)
    return error("cannot be read: give a file with 64 hexadecimal digits" + std::string(kHow),
                 Error::Kind::unreadable);
  if ((of.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return error("others may read it: chmod 600 it", Error::Kind::usage);
  std::string text;
  file >> text;
  PairKey key{};
  const bool is_key = text.size() == 2 * key.size() &&
                      std::ranges::all_of(text, [](unsigned char c) { return std::isxdigit(c); });
  if (!is_key) return error("has no 64 hexadecimal digits" + std::string(kHow), Error::Kind::usage);
  for (std::size_t n = 0; n < key.size(); ++n)
    key[n] = static_cast<std::byte>(std::stoul(text.substr(2 * n, 2), nullptr, 16));
  return key;
}

}  // namespace millrace
