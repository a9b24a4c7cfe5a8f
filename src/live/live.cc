#include "live/live.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "host/datagram.h"
#include "host/ethernet.h"
#include "line/line.h"

namespace millrace {
namespace {

HostConfig host_config(const Config& config, const Devices& devices) {
  HostConfig host{.links = {},
                  .v4 = config.live.v4,
                  .v6 = config.live.v6,
                  .customers = config.live.customers,
                  .tells_unreachable = config.live.tells_unreachable};
  config.function->tell(host.v4, host.v6);
  host.is_active = !config.servers;
  for (unsigned link = 0; link < devices.links(); ++link) {
    host.links.push_back({.mac = devices.mac(link),
                          .mtu = devices.mtu(link),
                          .has_neighbours = has_neighbours(devices.name(link).kind),
                          .reverse_path = config.live.ports[link].reverse_path,
                          .mss = config.live.ports[link].mss,
                          .has_kernel = !config.live.ports[link].kernel.empty(),
                          .has_customer_vlans = config.live.ports[link].has_customer_vlans});
  }
  for (const CustomerGroup& group : config.live.customers->groups()) {
    unsigned& overhead = host.links[group.link].tunnel_overhead;
    const Customers::Access access{
        .link = group.link, .vlan = group.vlans.first, .end = {}, .key = group.key};
    overhead = std::max(overhead, Tunnels::overhead(access));
  }
  return host;
}

std::vector<LinkSettings> link_settings(const Config& config) {
  std::vector<LinkSettings> settings;
  for (const Config::Port& port : config.live.ports)
    settings.push_back({.device = port.device,
                        .mtu = port.mtu,
                        .vlan = port.vlan,
                        .takes_other_vlans = port.has_customer_vlans});
  return settings;
}

/// Returns the host's own addresses on that port's link, of both families.
std::vector<TapAddress> tap_addresses(const Config& config, unsigned port) {
  std::vector<TapAddress> all;
  const auto append = [&](const auto& addresses) {
    for (const auto& own : addresses.own) {
      if (own.link == port) all.push_back({own.address, own.bits});
    }
  };
  append(config.live.v4);
  append(config.live.v6);
  return all;
}

/// Opens the kernel interfaces; null if no port has one.
Result<std::unique_ptr<KernelSide>> open_kernel(const Config& config, Devices& devices) {
  std::vector<std::optional<TapSettings>> taps(config.live.ports.size());
  for (unsigned n = 0; n < taps.size(); ++n) {
    const std::string& name = config.live.ports[n].kernel;
    if (name.empty()) continue;
    taps[n] = {.name = name,
               .mac = devices.mac(n),
               .mtu = devices.mtu(n),
               .addresses = tap_addresses(config, n)};
  }
  const auto has_one = [](const auto& tap) { return tap.has_value(); };
  if (std::ranges::none_of(taps, has_one)) return std::unique_ptr<KernelSide>();
  return KernelSide::open(devices, config.workers, taps);
}

}  // namespace

std::set<std::string> interfaces_of(const Config& config) {
  std::set<std::string> names;
  for (const Config::Port& port : config.live.ports) {
    if (is_of_kernel(port.device.kind)) names.insert(port.device.target);
    if (!port.kernel.empty()) names.insert(port.kernel);
  }
  return names;
}

Result<void> check_live(const Config& config) {
  std::string wrong;
  const auto refuse_if = [&wrong](bool is_so, std::string_view what) {
    if (is_so) wrong.append(wrong.empty() ? "" : "\n").append(what);
  };
  refuse_if(config.live.ports.empty(),
            "the configuration has no port: give [[port]] with name, device and addresses");
  const std::string missing(config.function->facts().missing);
  refuse_if(!missing.empty(), "the configuration has " + missing);
  refuse_if(config.spread.level && shares_tables(sharing_of(config)),
            std::string(config.uses_few_workers ? "workers = \"auto\"" : "spread.level = true") +
                " moves connections between tables, and sharing = \"" + sharing_of(config) +
                "\" has one for all workers: give sharing = \"sharded\", or leave sharing out");
  if (wrong.empty()) return {};
  return std::unexpected(Error{wrong, Error::Kind::usage});
}

std::shared_ptr<Owners> make_owners(const Config& config, const Secret& secret) {
  std::unique_ptr<Spread> spread;
  if (!shares_tables(sharing_of(config)))
    spread = spread_named(config.spread.scheme)->create(secret);
  return std::make_shared<Owners>(
      std::move(spread), Indirection(config.spread.entries, config.workers), config.workers);
}

Copies::Settings copies_settings(const Config& config, const ServersKey& key,
                                 const Secret& spread) {
  return {.number = config.servers->number,
          .key = key,
          .ends = config.servers->ends,
          .is_cluster = config.servers->is_cluster,
          .defer_ms = static_cast<std::int32_t>(config.servers->defer_ms),
          .spread = spread};
}

Result<void> Live::prepare(const Config& config, const std::vector<std::string>& eal_options) {
  return Devices::prepare(link_settings(config), eal_options);
}

namespace {

/// Checks that any packet can hop to another server of a cluster. Errors: usage.
Result<void> prepare_hops(const Config& config, const Devices& devices, Copies* copies) {
  if (copies == nullptr || !copies->is_cluster()) return {};
  const auto& ends = config.servers->ends;
  const bool is_v4 = std::holds_alternative<KeyV4>(ends);
  const auto link_of = [](const auto& own, const auto& key) {
    return std::ranges::find(own, key.source, [](const auto& one) { return one.address; })->link;
  };
  const unsigned link = is_v4 ? link_of(config.live.v4.own, std::get<KeyV4>(ends))
                              : link_of(config.live.v6.own, std::get<KeyV6>(ends));
  unsigned largest = 0;
  for (unsigned other = 0; other < devices.links(); ++other) {
    if (other != link) largest = std::max(largest, devices.mtu(other));
  }
  const std::size_t head = is_v4 ? kDatagramHead<KeyV4> : kDatagramHead<KeyV6>;
  const std::size_t more = head + WorkersCopies::kHopBytes;
  const std::size_t needed = more + kEthernetHeader + largest;
  copies->set_most_hop(std::max<std::size_t>(devices.mtu(link), more) - more);
  const std::string port = "port " + config.live.ports[link].name;
  if (largest == 0)
    return std::unexpected(Error{"cluster.address is on the only " + port +
                                     ": packets that go to other servers are larger than those "
                                     "that come; give the servers' network a port of its own",
                                 Error::Kind::usage});
  if (devices.mtu(link) >= needed) return {};
  return std::unexpected(Error{
      "cluster.address is on " + port + ", whose MTU is " + std::to_string(devices.mtu(link)) +
          ": packets of other ports go to other servers "
          "there in datagrams of " +
          std::to_string(needed) + " bytes: give " + port + " mtu = " + std::to_string(needed) +
          " or more, or the other ports a smaller one",
      Error::Kind::usage});
}

}  // namespace

Result<std::unique_ptr<Live>> Live::open(const Config& config, const LiveOptions& options) {
  if (auto ok = check_live(config); !ok) return std::unexpected(ok.error());
  const std::vector<LinkSettings> settings = link_settings(config);
  auto devices = Devices::open(settings, config.workers, options.eal_options);
  if (!devices) return std::unexpected(devices.error());
  std::unique_ptr<Live> live(new Live);
  live->devices_ = std::move(*devices);
  if (auto ok = prepare_hops(config, *live->devices_, options.copies); !ok)
    return std::unexpected(ok.error());

  auto kernel = open_kernel(config, *live->devices_);
  if (!kernel) return std::unexpected(kernel.error());
  live->kernel_ = std::move(*kernel);

  auto hub = LiveHub::create(*live->devices_, live->kernel_.get(), config.workers, options.owners);
  if (!hub) return std::unexpected(hub.error());
  live->hub_ = std::move(*hub);

  live->copies_ = options.copies;
  live->sleeps_ = config.live.idle == Config::Idle::sleep ||
                  (config.live.idle == Config::Idle::by_device && comes_by_kernel(config.live));
  HostConfig host = host_config(config, *live->devices_);
  for (unsigned n = 0; n < config.workers; ++n) {
    host.announces = n == 0;
    host.seed = n + 1;
    live->ports_.push_back(std::make_unique<LivePort>(
        *live->hub_, n, host,
        LivePort::Options{.sleeps = live->sleeps_,
                          .guards_host = config.function->facts().guards_host,
                          .stop = options.stop,
                          .copies = options.copies}));
  }
  return live;
}

void Live::set_workers(Workers& workers) {
  std::vector<Line*> lines;
  for (unsigned n = 0; n < workers.count(); ++n) lines.push_back(&workers.line(n));
  for (const auto& port : ports_) port->set_lines(lines);
}

void Live::end_move(Workers& workers) {
  owners().moves().end(
      [&workers](unsigned shard, unsigned from, unsigned to, std::span<const std::byte> parcel) {
        workers.line(to).unpack(shard, workers.line(from), parcel);
      });
}

Result<void> Live::start() {
  if (auto ok = devices_->start(); !ok || kernel_ == nullptr) return ok;
  return kernel_->start();
}

Result<void> Live::update_kernel(const Config& config) {
  for (unsigned n = 0; n < config.live.ports.size(); ++n) {
    if (config.live.ports[n].kernel.empty()) continue;
    if (auto ok = kernel_->set_addresses(n, tap_addresses(config, n)); !ok) return ok;
  }
  return {};
}

std::shared_ptr<const HostPlan> Live::host_plan(const Config& config) const {
  return std::make_shared<const HostPlan>(host_config(config, *devices_));
}

std::vector<Port*> Live::ports() const {
  std::vector<Port*> all;
  for (const auto& port : ports_) all.push_back(port.get());
  return all;
}

Live::Totals Live::totals() const {
  Totals sum;
  for (const auto& port : ports_) {
    const HostCounters& host = port->host().counters();
    sum.generated += host.generated.value();
    sum.released += host.released.value();
    sum.unresolved += host.unresolved.value();
    sum.not_sent += port->counters().not_sent.value();
    sum.handed_over += port->exchange().counters().handed_over.value();
    sum.not_handed += port->exchange().counters().not_handed.value();
  }
  return sum;
}

}  // namespace millrace
