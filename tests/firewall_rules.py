"""Firewall rules for kernel_firewall_test.py, each as millrace's configuration and as nftables have it, and conversations that
tell rules apart.
"""

from typing import NamedTuple

import firewall_packets as make
from firewall_datagrams import GRE, both, raw
from firewall_icmp import ping, query
from firewall_tcp import CLIENT_PORT

MARKER_PORT = 7
# Networks of hosts: the link behind which a network is, its number, and the first host's number. A half of the network 6 is
# named on its own.
NETS = {"outside": ("outside", 1, 1), "blocked": ("outside", 4, 1), "partner": ("outside", 5, 1),
        "inside": ("inside", 2, 1), "servers": ("inside", 6, 1), "secret": ("inside", 6, 0x8001)}
PREFIXES = {"blocked": ("10.4.0.0/16", "2001:db8:4::/64"), "partner": ("10.5.0.0/16", "2001:db8:5::/64"),
            "servers": ("10.6.0.0/16", "2001:db8:6::/64"), "secret": ("10.6.128.0/17", "2001:db8:6::8000/113")}


def host(net, number, family):
    _, network, first = NETS[net]
    number += first
    return f"10.{network}.{number >> 8}.{number & 255}" if family == 4 else f"2001:db8:{network}::{number:x}"


def link_of(net):
    return NETS[net][0]


class Rule(NamedTuple):
    name: str
    action: str
    ours: str  # lines of [[firewall.rule]]
    nft: tuple  # the same as nftables have it: a line each


def rule(name, action, ours, *nft):
    return Rule(name, action, ours, nft)


def both_families(which, key):
    """Returns matches of nftables for a prefix of each family."""
    v4, v6 = PREFIXES[which]
    return f"ip {key} {v4}", f"ip6 {key} {v6}"


def prefixes(which):
    return "[" + ", ".join(f'"{prefix}"' for prefix in PREFIXES[which]) + "]"


MARKERS = rule("markers", "accept", f'protocol = "udp"\ndestination_ports = "{MARKER_PORT}"', f"udp dport {MARKER_PORT}")
# The rules under which connections are followed.
FOLLOWED = [
    MARKERS,
    rule("closed", "drop", 'protocol = ["tcp", "udp", "sctp"]\ndestination_ports = "81"', "meta l4proto { 6, 17, 132 } th dport 81"),
    rule("rejected", "reject", 'protocol = ["tcp", "udp"]\ndestination_ports = "82"', "meta l4proto { 6, 17 } th dport 82"),
    rule("open", "accept", 'protocol = ["tcp", "udp", "sctp"]\ndestination_ports = "80"', "meta l4proto { 6, 17, 132 } th dport 80"),
    rule("queries", "accept", 'icmp = ["echo-request", "timestamp-request", "extended-echo-request", "15", "17", "139"]',
         "icmp type { echo-request, timestamp-request, 42, 15, 17, 139 }", "icmpv6 type { echo-request, 160, 13, 15, 17, 139 }"),
    # millrace's rules know no ports of UDP-Lite (136).
    rule("by number", "accept", 'protocol = ["47", "50", "51", "59", "136", "253"]', "meta l4proto { 47, 50, 51, 59, 136, 253 }"),
]
# Rules by zones, prefixes, sets and ports, in which the order counts.
SORTED = [
    MARKERS,
    rule("mail of blocked hosts", "accept", 'source = "@blocked"\nprotocol = "tcp"\ndestination_ports = "25"',
         "ip saddr @blocked4 tcp dport 25", "ip6 saddr @blocked6 tcp dport 25"),
    rule("blocked", "drop", 'source = "@blocked"', "ip saddr @blocked4", "ip6 saddr @blocked6"),
    rule("partner's ports", "accept", f'from = "outside"\nto = "inside"\nsource = {prefixes("partner")}\nprotocol = ["tcp", "udp"]\n'
         f'source_ports = ["{CLIENT_PORT}-{CLIENT_PORT + 100}"]\ndestination_ports = ["1000-1999", "3000"]',
         *(f'iifname "outside" oifname "inside" {match} meta l4proto {{ 6, 17 }} th sport {CLIENT_PORT}-{CLIENT_PORT + 100} '
           "th dport { 1000-1999, 3000 }" for match in both_families("partner", "saddr"))),
    rule("partner's rest", "reject", f'from = "outside"\nsource = {prefixes("partner")}',
         *(f'iifname "outside" {match}' for match in both_families("partner", "saddr"))),
    rule("secret", "drop", f'destination = {prefixes("secret")}', *both_families("secret", "daddr")),
    rule("servers", "accept", f'from = "outside"\nto = "inside"\ndestination = {prefixes("servers")}\nprotocol = ["tcp", "47"]',
         *(f'iifname "outside" oifname "inside" {match} meta l4proto {{ 6, 47 }}' for match in both_families("servers", "daddr"))),
    rule("pings", "accept", f'to = "inside"\nicmp = "echo-request"\ndestination = {prefixes("servers")}',
         *(f'oifname "inside" {match} {kind} type echo-request'
           for match, kind in zip(both_families("servers", "daddr"), ("icmp", "icmpv6"), strict=True))),
    rule("out", "accept", 'from = "inside"\nto = "outside"\nprotocol = ["tcp", "udp", "icmp", "icmpv6"]',
         'iifname "inside" oifname "outside" meta l4proto { 6, 17, 1, 58 }'),
    rule("within outside", "accept", 'from = "outside"\nto = "outside"\nprotocol = "udp"', 'iifname "outside" oifname "outside" meta l4proto 17'),
]


def millrace_rules(rules, default, pickup):
    blocked = prefixes("blocked")
    text = f'[firewall]\ndefault = "{default}"\npickup = "{pickup}"\n[firewall.sets]\nblocked = {blocked}\n'
    for one in rules:
        text += f'[[firewall.rule]]\nname = "{one.name}"\naction = "{one.action}"\n{one.ours}\n'
    return text


def nft_lines(match, action):
    if action != "reject":
        return [f"{match} {action}"]
    return [f"{match} meta l4proto tcp reject with tcp reset", f"{match} reject with icmpx admin-prohibited"]


def nft_rules(rules, default):
    lines = [line for one in rules for match in one.nft for line in nft_lines(match, one.action)] + nft_lines("", default)
    sets = "".join(f"set blocked{family} {{ type ipv{family}_addr; flags interval; elements = {{ {prefix} }} }}\n"
                   for family, prefix in zip((4, 6), PREFIXES["blocked"], strict=True))
    return (f"table inet t {{\n{sets}chain c {{ type filter hook forward priority filter; policy drop;\n"
            "ct state established,related accept\nct state invalid drop\n" + "\n".join(lines) + "\n}\n}\n")


def matrix():
    """Yields conversations of one request and one reply between networks: name, steps, and the two networks."""
    def exchange(build, ports):
        return [both("request", True, lambda s, t: build(s, t, ports)), both("reply", False, lambda s, t: build(s, t, ports[::-1]))]

    def connect(port, client_port=CLIENT_PORT):
        return [both("SYN", True, lambda s, t: make.tcp(s, t, (client_port, port), "S", 100)),
                both("SYN and ACK", False, lambda s, t: make.tcp(s, t, (port, client_port), "SA", 500, 101))]

    kinds = {f"TCP to {port}": connect(port) for port in (22, 25, 999, 1000, 1999, 2000, 3000)}
    kinds |= {f"TCP from {port} to 1500": connect(1500, port) for port in (CLIENT_PORT - 1, CLIENT_PORT + 100, CLIENT_PORT + 101)}
    kinds |= {f"UDP to {port}": exchange(make.udp, (CLIENT_PORT, port)) for port in (53, 1000)}
    kinds |= {"ping": [ping(), ping(False)], "timestamp": [query("request", True, 13), query("reply", False, 14)],
              "GRE": [raw("packet", True, GRE, b"\0\0\x08\0inner"), raw("reply", False, GRE, b"\0\0\x08\0other")]}
    pairs = [("outside", "inside"), ("outside", "servers"), ("outside", "secret"), ("blocked", "inside"), ("blocked", "servers"),
             ("partner", "inside"), ("partner", "servers"), ("partner", "secret"), ("inside", "outside"), ("inside", "partner"),
             ("inside", "blocked"), ("servers", "outside"), ("outside", "partner"), ("partner", "outside"), ("inside", "servers"),
             ("servers", "secret")]
    for client, server in pairs:
        for kind, steps in kinds.items():
            yield f"rules: {kind} from {client} to {server}", steps, (client, server)


def refusals():
    """Yields conversations that a default of `reject` answers, or must not answer: from outside to inside."""
    def flags(text, seq=100, ack=0, data=b"", **more):
        return both(text, True, lambda s, t: make.tcp(s, t, (CLIENT_PORT, 2222), text, seq, ack, data, **more))

    for text, more in (("S", {}), ("S", {"data": b"early"}), ("A", {"ack": 700}), ("PA", {"ack": 700, "data": b"late"}), ("FA", {"ack": 700}),
                       ("R", {}), ("RA", {"ack": 700}), ("SA", {"ack": 700}), ("F", {}), ("-", {}), ("SF", {}), ("S", {"is_bad": True})):
        name = f"rules: a refused {text} {' '.join(more)}".strip()
        yield name, [flags(text.strip("-"), **more)], ("outside", "inside")
    corrupt = both("datagram", True, lambda s, t: make.udp(s, t, (CLIENT_PORT, 9), summing="bad"))
    yield "rules: a refused datagram with a wrong checksum", [corrupt], ("outside", "inside")
    yield "rules: a refused reply to a ping", [ping(False)], ("outside", "inside")
    yield "rules: a refused query for the time", [query("request", True, 13)], ("outside", "inside")
    yield "rules: a refused unknown protocol", [raw("packet", True, 253, b"hello")], ("outside", "inside")


def land():
    """Yields packets whose source is their destination."""
    yield "land: TCP, the same port", [("> SYN", True, lambda hosts: make.tcp(hosts.server, hosts.server, (80, 80), "S"))]
    yield "land: TCP, another port", [("> SYN", True, lambda hosts: make.tcp(hosts.server, hosts.server, (CLIENT_PORT, 80), "S"))]
    yield "land: UDP, the same port", [("> datagram", True, lambda hosts: make.udp(hosts.server, hosts.server, (80, 80)))]
    yield "land: ICMP echo", [("> echo", True, lambda hosts: make.icmp(hosts.server, hosts.server, 8 if hosts.family == 4 else 128, rest=7))]
    yield "land: an unknown protocol", [("> packet", True, lambda hosts: make.datagram(hosts.server, hosts.server, make.UNKNOWN, b"hello"))]
