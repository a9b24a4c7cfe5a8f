"""Services of the load balancer, as configurations name them, for check_balance.py."""

import ipaddress

PROTOCOLS = {6: "tcp", 17: "udp", 1: "icmp", 58: "icmp", 132: "sctp", 136: "udplite", 47: "gre"}
_PROTOCOL_NUMBERS = {name: number for number, name in PROTOCOLS.items()} | {"icmp": 1, "icmpv6": 58, "dccp": 33, "esp": 50, "ah": 51}


class Service:
    """A virtual address, or a prefix, and its backends: (address, port or None)."""

    def __init__(self, table):
        network = ipaddress.ip_network(table["address"], strict=False)
        self.low = network.network_address.packed
        self.high = network.broadcast_address.packed
        self.one_address = network.num_addresses == 1
        self.port = table.get("port")
        protocol = table.get("protocol")
        self.protocol = _PROTOCOL_NUMBERS.get(protocol, protocol)
        self.backends = {(packed(b["address"]), b.get("port")) for b in table["backends"]}

    def takes(self, address, port, protocol):
        return (
            len(address) == len(self.low)
            and self.low <= address <= self.high
            and self.port in (None, port)
            and self.protocol in (None, protocol)
        )


def packed(address):
    return ipaddress.ip_address(address).packed


def services_of(config):
    """Returns the services of a TOML configuration."""
    import tomllib

    with open(config, "rb") as file:
        return [Service(table) for table in tomllib.load(file)["service"]]


def default_services():
    """Returns the services of `millrace replay` without a configuration: all traffic to ten backends of each family."""
    v4 = [{"address": f"10.0.0.{i}"} for i in range(1, 11)]
    v6 = [{"address": f"fd00::{i:x}"} for i in range(1, 11)]
    return [
        Service({"address": "0.0.0.0/0", "backends": v4}),
        Service({"address": "::/0", "backends": v6}),
    ]
