#include "function/balance/service.h"

#include "core/address.h"
#include "core/prefix.h"

namespace millrace {
namespace {

template <class A>
ServiceSpec<A> everything(A first_backend) {
  constexpr unsigned kBackends = 10;
  ServiceSpec<A> service;
  service.prefix_bits = 0;
  for (unsigned i = 0; i < kBackends; ++i) {
    service.backends.push_back({.address = first_backend});
    ++first_backend.bytes.back();
  }
  return service;
}

}  // namespace

template <class A>
std::string to_string(const ServiceSpec<A>& service) {
  std::string text = service.is_prefix()
                         ? to_string(Prefix<A>{service.address, service.prefix_bits})
                         : with_port(service.address, service.port);
  if (service.is_prefix() && service.port != 0)
    text.append(" port ").append(std::to_string(service.port));
  if (service.protocol != 0) text.append("/").append(protocol_name(service.protocol));
  return text;
}

template std::string to_string(const ServiceSpec<AddressV4>&);
template std::string to_string(const ServiceSpec<AddressV6>&);

Services default_services() {
  Services services;
  services.v4.push_back(everything(AddressV4{{10, 0, 0, 1}}));
  services.v6.push_back(everything(AddressV6{{0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}}));
  return services;
}

}  // namespace millrace
