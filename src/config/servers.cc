#include "config/servers.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "host/host_for.h"
#include "toml/addresses.h"

namespace millrace {

namespace config {
namespace {

/// Reads the table's addresses.
class ServersReader {
 public:
  ServersReader(Problems& problems, const RawServers& raw, Config& config)
      : problems_(problems), raw_(raw), config_(config) {}

  void read() {
    if (raw_.other.given) read_one(raw_.other, "other", [this](const auto& is) { read_other(is); });
    if (raw_.address.given)
      read_one(raw_.address, "address", [this](const auto& is) { read_own(is); });
    for (const Text& address : raw_.addresses)
      read_one(address, "addresses", [&](const auto& is) { add_moving(address, is); });
  }
  const AnyKey& ends() const { return ends_; }

 private:
  void add(const Text& at, std::string_view key, const std::string& what) {
    problems_.add(at.line, std::string(raw_.table) + "." + std::string(key), what);
  }
  template <class Read>
  void read_one(const Text& text, std::string_view key, Read&& read) {
    if (const auto v4 = parse_address<AddressV4>(text.value)) return read(*v4);
    if (const auto v6 = parse_address<AddressV6>(text.value)) return read(*v6);
    const bool has_bits = AddressAndBits(text.value).bits.has_value();
    add(text, key,
        in_quotes(text.value) + (has_bits ? " has a prefix length: give the address "
                                            "alone"
                                          : " is no address: give one like 192.0.2.1"));
  }
  template <class A>
  auto& addresses() {
    return config_.live.family<A>();
  }
  /// Returns the own address in whose network the other one is; null: there is none.
  template <class A>
  auto beside(const A& other) -> const typename HostAddresses<A>::Own* {
    for (const auto& own : addresses<A>().own) {
      if (prefix_of(other, own.bits) == prefix_of(own.address, own.bits)) return &own;
    }
    return nullptr;
  }
  template <class A>
  const auto* own(const A& address) {
    const auto& all = addresses<A>().own;
    const auto is = std::ranges::find(all, address, [](const auto& one) { return one.address; });
    return is == all.end() ? nullptr : &*is;
  }
  template <class A>
  bool is_broadcast(const A& address) {
    const auto all = broadcasts_of(addresses<A>());
    const auto* const in = beside(address);
    const bool is_network =
        A::kBytes == 4 && in != nullptr && in->bits < 31 && prefix_of(address, in->bits) == address;
    return is_network || std::ranges::find(all, address) != all.end();
  }
  template <class A>
  void set_ends(const A& from, const A& to) {
    Key<A> ends;
    ends.source = from;
    ends.destination = to;
    ends.source_port = ends.destination_port = raw_.port;
    ends.protocol = kProtocolUdp;
    ends_ = ends;
  }

  template <class A>
  void read_other(const A& other) {
    const auto is_moving = [&](const Text& text) { return parse_address<A>(text.value) == other; };
    const auto* const in = beside(other);
    if (own(other) != nullptr)
      return add(raw_.other, "other",
                 to_string(other) + " is this server's own: give the other server's address");
    if (in == nullptr)
      return add(raw_.other, "other",
                 to_string(other) +
                     " is in no network of a port: give an address of the other server in one");
    if (is_broadcast(other))
      return add(raw_.other, "other",
                 to_string(other) + " is no server's but all stations': give the other server's");
    if (std::ranges::any_of(raw_.addresses, is_moving))
      return add(raw_.other, "other",
                 to_string(other) +
                     " is in pair.addresses, which move: give an address that the "
                     "other server always has");
    set_ends(in->address, other);
  }

  template <class A>
  void read_own(const A& address) {
    if (own(address) == nullptr)
      return add(raw_.address, "address",
                 to_string(address) + " is no port's: give one of this server's own addresses");
    set_ends(address, A{});
  }

  template <class A>
  void add_moving(const Text& text, const A& address) {
    auto& known = addresses<A>().virtual_addresses;
    if (own(address) != nullptr) {
      add(text, "addresses",
          to_string(address) +
              " is an address of a port: there give each server one of its own, and here those "
              "that " +
              (raw_.table == "pair" ? "move" : "all servers have"));
    } else if (raw_.table == "pair" && beside(address) == nullptr) {
      add(text, "addresses", to_string(address) + " is in no network of a port: give one that is");
    } else if (is_broadcast(address)) {
      add(text, "addresses",
          to_string(address) + " is no server's but all stations': give a server's");
    } else if (std::ranges::find(known, address) != known.end()) {
      add(text, "addresses", to_string(address) + " stands there twice: give it once");
    } else {
      known.push_back(address);
    }
  }

  Problems& problems_;
  const RawServers& raw_;
  Config& config_;
  AnyKey ends_;
};

void check_what_goes_with_it(Problems& problems, const RawServers& raw, const Config& config) {
  const auto refuse_if = [&](bool is_so, std::string_view what) {
    if (is_so) problems.add(raw.line, raw.table, what);
  };
  refuse_if(raw.has_both,
            "the file has [pair] and [cluster]: give one of them, [pair] for two servers without a "
            "store");
  refuse_if(config.spread.level,
            "does not go with spread.level or workers = \"auto\", which move connections between "
            "workers: leave them out");
  refuse_if(config.sharing && *config.sharing != "sharded",
            "needs sharing = \"sharded\": each connection has one worker, which tells the other "
            "server of it");
  if (raw.key_file.given && !raw.key_file.value.starts_with('/'))
    problems.add(raw.key_file.line, std::string(raw.table) + ".key_file",
                 in_quotes(raw.key_file.value) + " is relative: give the whole path, from / on");
}

}  // namespace

Keys<RawServers> pair_keys() {
  return {
      {"number", integer(&RawServers::number, 1, 2, "(each server another)"), true},
      {"other", text(&RawServers::other), true},
      {"port", integer(&RawServers::port, 1, 65535)},
      {"key_file", text(&RawServers::key_file), true},
      {"addresses", texts(&RawServers::addresses)},
      {"defer_ms", integer(&RawServers::defer_ms, 0, 1000, "ms")},
  };
}

Keys<RawServers> cluster_keys() {
  return {
      {"server", integer(&RawServers::number, 1, 255, "(each server another)"), true},
      {"address", text(&RawServers::address), true},
      {"port", integer(&RawServers::port, 1, 65535)},
      {"key_file", text(&RawServers::key_file), true},
      {"addresses", texts(&RawServers::addresses)},
      {"defer_ms", integer(&RawServers::defer_ms, 0, 1000, "ms")},
  };
}

void read_servers(Problems& problems, const RawServers& raw, Config& config) {
  if (raw.table.empty()) return;
  check_what_goes_with_it(problems, raw, config);
  ServersReader reader(problems, raw, config);
  reader.read();
  config.servers = OtherServers{.is_cluster = raw.table == "cluster",
                                .number = raw.number,
                                .ends = reader.ends(),
                                .key_file = raw.key_file.value,
                                .defer_ms = raw.defer_ms};
}

}  // namespace config

std::string agreement(const Config& config) {
  std::string all = config.function->agreement() + " " + config.spread.scheme;
  if (!config.servers || !config.servers->is_cluster) return all;
  for (const Config::Port& port : config.live.ports) all.append(1, ' ').append(port.name);
  return all;
}

Result<ServersKey> read_servers_key(const OtherServers& servers) {
  const std::string& path = servers.key_file;
  const auto error = [&](const std::string& what, Error::Kind kind) {
    const std::string table = servers.is_cluster ? "cluster" : "pair";
    return std::unexpected(Error{table + ".key_file " + path + ": " + what, kind});
  };
  const std::string how =
      servers.is_cluster
          ? ", as millctl cluster init makes it (cluster.key): all servers need the same"
          : "; make one with: openssl rand -hex 32";
  std::error_code failed;
  if (std::filesystem::is_directory(path, failed))
    return error("is a directory: give a file with 64 hexadecimal digits" + how,
                 Error::Kind::usage);
  if (std::filesystem::exists(path, failed) && !std::filesystem::is_regular_file(path, failed))
    return error("is no regular file: give one with 64 hexadecimal digits" + how,
                 Error::Kind::usage);
  errno = 0;
  std::ifstream file(path);
  struct stat of{};
  if (!file && errno == EACCES)
    return error("may not be read by this user: run millrace as the file's owner",
                 Error::Kind::unreadable);
  if (!file || ::stat(path.c_str(), &of) != 0)
    return error("cannot be read: give a file with 64 hexadecimal digits" + how,
                 Error::Kind::unreadable);
  if (of.st_uid != 0 && of.st_uid != ::geteuid())
    return error("belongs to another user: chown it to root", Error::Kind::usage);
  if ((of.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return error("others may read it: chmod 600 it", Error::Kind::usage);
  std::string text;
  std::string more;
  file >> text >> more;
  ServersKey key{};
  const bool is_key = more.empty() && text.size() == 2 * key.size() &&
                      std::ranges::all_of(text, [](unsigned char c) { return std::isxdigit(c); });
  if (!is_key) return error("is not 64 hexadecimal digits" + how, Error::Kind::usage);
  for (std::size_t n = 0; n < key.size(); ++n)
    key[n] = static_cast<std::byte>(std::stoul(text.substr(2 * n, 2), nullptr, 16));
  return key;
}

}  // namespace millrace
