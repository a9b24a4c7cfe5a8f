// Virtual services and their backends, as configured: plain values. The type gives the address
// family, the same for a service and its backends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/destination_table.h"
#include "core/of_family.h"
#include "core/protocol.h"
#include "core/verdict.h"
#include "millrace/key.h"

namespace millrace {

template <class A>
struct BackendSpec {
  A address;
  std::uint16_t port = 0;    ///< 0: the packet's port stays as it is
  std::uint32_t weight = 1;  ///< relative to the service's other backends; 0: no new connections
  bool is_healthy = true;    ///< false: no new connections, whatever its weight

  static constexpr std::uint32_t kMaxWeight = 65535;

  friend bool operator==(const BackendSpec&, const BackendSpec&) = default;
};

/// The way in which packets go to a backend.
enum class Forward : std::uint8_t {
  /// The backend's address replaces the packet's destination. Replies must return through millrace,
  /// except those of a service that is a prefix.
  nat,
  dsr,  ///< direct server return: packets go unchanged to the backend as next hop; the backend has
        ///< the service's address, and answers clients itself
};
constexpr std::string_view to_string(Forward forward) {
  return forward == Forward::nat ? "nat" : "dsr";
}

/// The treatment of packets that need a backend while no backend of their service takes
/// connections.
enum class NoBackend : std::uint8_t {
  refuse,  ///< dropped; a live run sends the sender a RST or an ICMP error
  drop,    ///< dropped
  pass,    ///< routed, as if there were no such service
};

/// Returns the verdict on a packet that needs a backend while none takes connections.
constexpr Verdict without_backend(NoBackend how) {
  return how == NoBackend::refuse ? Verdict::refused
         : how == NoBackend::drop ? Verdict::no_backend
                                  : Verdict::passed;
}

/// The treatment of TCP connections to an unhealthy backend, if the connections have been answered.
enum class OnUnhealthy : std::uint8_t {
  keep,  ///< the connections go on
  /// The connections end. If replies pass through millrace, each side gets a RST, if the sequence
  /// number that it expects next is known.
  reset,
};

/// The check by which `millctl health` finds out whether a backend of a service can serve.
struct HealthCheck {
  enum class Kind : std::uint8_t {
    tcp,   ///< the backend accepts a connection
    http,  ///< the backend answers a GET with a status of 200 to 399
    icmp,  ///< the backend answers an echo request
  };
  Kind kind = Kind::tcp;
  std::string path = "/";  ///< path of the GET
  std::string host;        ///< host of the GET; empty: the backend's address and port
  std::uint16_t port = 0;  ///< 0: the backend's port; if it has none, the service's
  std::uint32_t interval_ms = 1000;
  std::uint32_t timeout_ms = 500;
  std::uint32_t rise = 2;  ///< answers in a row that make the backend healthy
  std::uint32_t fall = 3;  ///< failures in a row that make the backend unhealthy

  friend bool operator==(const HealthCheck&, const HealthCheck&) = default;
};

template <class A>
struct ServiceSpec {
  A address;                             ///< all bits behind the prefix are 0
  unsigned prefix_bits = 8 * A::kBytes;  ///< all bits: one virtual address
  std::uint16_t port = 0;                ///< 0: any port
  std::uint8_t protocol = 0;             ///< 0: any protocol
  Forward forward = Forward::nat;
  std::string scheduler = "maglev";   ///< a name from `schedulers()`
  std::uint32_t max_connections = 0;  ///< limit of proved connections of all workers; 0: no limit
  std::optional<HealthCheck> health;
  NoBackend no_backend = NoBackend::refuse;
  OnUnhealthy on_unhealthy = OnUnhealthy::keep;
  /// True: connections of protocols without a closing packet (all but TCP and SCTP), answered ones
  /// too, go to another backend when their backend is unhealthy or no longer listed.
  bool move_udp = true;
  /// True: packets from a backend's address and port that belong to no connection are routed.
  bool direct = false;
  std::vector<BackendSpec<A>> backends;

  /// Returns the destination of the service's packets, which no other service has.
  Destination<A> destination() const { return {address, prefix_bits, port, protocol}; }
  bool is_prefix() const { return prefix_bits != 8 * A::kBytes; }
  /// True if replies are rewritten, too, where connections are tracked. A prefix is one-way: its
  /// replies would need the address that the client called, which is not stored.
  bool two_way() const { return forward == Forward::nat && !is_prefix(); }

  friend bool operator==(const ServiceSpec&, const ServiceSpec&) = default;
};

/// Returns the service's name: "203.0.113.10:443/tcp", "0.0.0.0/0".
template <class A>
std::string to_string(const ServiceSpec<A>& service);

struct Services {
  std::vector<ServiceSpec<AddressV4>> v4;
  std::vector<ServiceSpec<AddressV6>> v6;

  template <class A>
  auto& family() {
    return of_family<A>(v4, v6);
  }
  template <class A>
  const auto& family() const {
    return of_family<A>(v4, v6);
  }
};

/// Returns the services of a run without a configuration: one for all IPv4 packets, with the
/// backends 10.0.0.1 to 10.0.0.10, and one for all IPv6 packets, with fd00::1 to fd00::a.
Services default_services();

}  // namespace millrace
