"""A router made of Linux network namespaces, which tracks the connections that it forwards.

Needs root, and the commands ip, nft and conntrack (iproute2, nftables, conntrack). The namespaces have no
names, so that they vanish when this process ends, however it ends.
"""

import collections
import os
import shutil
import socket
import time

import packets
from captures import SECOND
from namespaces import CannotTry, Namespace, command, ip, set_sysctls

_COMMANDS = ("ip", "nft", "conntrack")

# Key of [ageing.timeout_s]: (Linux's default in seconds, a short timeout, sysctls without their prefix nf_conntrack_).
# tcp_timeout_unacknowledged of the kernel is for mid-stream connections without a reply, and for
# established ones with unacknowledged data. To millrace the latter are established (RFC 5382, REQ-5), so
# tcp_midstream has the two timeouts of tcp_established here. The kernel has one setting for udp and
# udp_unreplied.
TIMEOUTS_S = {
    "tcp_syn_sent": (120, 2, ["tcp_timeout_syn_sent"]),
    "tcp_syn_received": (60, 2, ["tcp_timeout_syn_recv"]),
    "tcp_established": (432000, 5, ["tcp_timeout_established", "tcp_timeout_max_retrans"]),
    "tcp_fin_wait": (120, 3, ["tcp_timeout_fin_wait"]),
    "tcp_close_wait": (60, 3, ["tcp_timeout_close_wait"]),
    "tcp_last_ack": (30, 2, ["tcp_timeout_last_ack"]),
    "tcp_time_wait": (120, 3, ["tcp_timeout_time_wait"]),
    "tcp_close": (10, 2, ["tcp_timeout_close"]),
    "tcp_midstream": (432000, 5, ["tcp_timeout_unacknowledged"]),
    "udp_unreplied": (30, 2, []),
    "udp": (30, 2, ["udp_timeout"]),
    "udp_stream": (120, 4, ["udp_timeout_stream"]),
    "icmp": (30, 2, ["icmp_timeout", "icmpv6_timeout"]),
}


_ROUTER_MAC, _SENDER_MAC = bytes.fromhex("020000000002"), bytes.fromhex("020000000001")
_ROUTER_SYSCTLS = {
    "ipv6/conf/default/addr_gen_mode": 1,  # no link-local addresses
    "ipv6/conf/default/accept_ra": 0,
    "ipv4/ip_forward": 1,
    "ipv4/conf/all/rp_filter": 0,
    "ipv4/conf/default/rp_filter": 0,
    "ipv4/conf/default/route_localnet": 1,  # forwards captured packets with 127.0.0.1, which no interface has here
    "ipv6/conf/all/forwarding": 1,
}
# The kernel tracks connections only if a rule uses their states.
_RULES = """table inet t {
  chain c { type filter hook forward priority 0; ct state invalid,new,established,related counter; }
}"""
_TRACKING_SYSCTLS = {"nf_conntrack_checksum": 0, "nf_conntrack_tcp_loose": 1}


def check_possible():
    if os.geteuid() != 0:
        raise CannotTry("a router of namespaces needs root")
    missing = [c for c in _COMMANDS if shutil.which(c) is None]
    if missing:
        raise CannotTry(f"commands are missing: {', '.join(missing)}")


def ethernet(family):
    """Returns the Ethernet header of a frame to the router."""
    return _ROUTER_MAC + _SENDER_MAC + (b"\x08\x00" if family == 4 else b"\x86\xdd")


def frame_of(family, l3, end, data):
    """Returns the IP packet from `l3` to `end` with another Ethernet header, a TTL with which the router forwards it, and
    zeros for the payload that was not captured."""
    ip = bytearray(data[l3:end].ljust(end - l3, b"\0"))
    if family == 4:
        ip[8] = 64
        ip[10:12] = bytes(2)
        ip[10:12] = packets.checksum(ip[:20]).to_bytes(2, "big")
    else:
        ip[7] = 64
    return ethernet(family) + ip


class Router:
    """Forwards packets from its link `in` to its link `out`, and tracks connections. It has no address that a
    capture could have, so that it takes in no packet; its next hop is always known, so that no packet waits."""

    def __init__(self, timeouts_s, liberal):
        try:
            self.sender, self.router = Namespace(), Namespace()
            self._connect()
            self._track(timeouts_s, liberal)
        except (OSError, RuntimeError) as error:
            raise CannotTry(error) from error

    def _track(self, timeouts_s, liberal):
        sysctls = {
            f"nf_conntrack_{sysctl}": timeouts_s[key]
            for key, (_, _, names) in TIMEOUTS_S.items()
            for sysctl in names
        }
        sysctls |= _TRACKING_SYSCTLS | {"nf_conntrack_tcp_be_liberal": int(liberal)}
        with self.router:
            command("nft", _RULES)
            set_sysctls({f"netfilter/{name}": value for name, value in sysctls.items()})

    def _connect(self):
        with self.sender:
            set_sysctls({"ipv6/conf/default/disable_ipv6": 1})
        with self.router:
            set_sysctls(_ROUTER_SYSCTLS)
            for link, peer in (("in", "wire"), ("out", "sink")):
                end = f"mtu 65535 netns {self.sender.path}"
                ip(f"link add name {link} mtu 65535 type veth peer name {peer} {end}")
            ip(f"link set in address {_ROUTER_MAC.hex(':')} up")
            ip("link set out up")
        with self.sender:
            ip("link set wire arp off up")
            ip("link set sink arp off up")
        with self.router:
            # Without any address there is no local routing table, and then IPv4 accepts no next hop.
            ip("address add 240.0.0.2/32 dev out")
            for hop in ("240.0.0.1", "fe80::1"):
                family = "-6" if ":" in hop else "-4"
                mac = _SENDER_MAC.hex(":")
                ip(f"{family} neigh add {hop} lladdr {mac} dev out nud permanent")
                ip(f"{family} route add default via {hop} dev out onlink")

    def send(self, frames, speed):
        """Sends `frames`, pairs (time in ns, frame), at their pace times `speed`. Returns the times at which they were sent."""
        sent = []
        with self.sender:
            wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        with wire:
            wire.bind(("wire", 0))
            start = time.monotonic_ns()
            for when, frame in frames:
                early = (when - frames[0][0]) / speed - (time.monotonic_ns() - start)
                if early > 0:
                    time.sleep(early / SECOND)
                sent.append(frames[0][0] + time.monotonic_ns() - start)
                wire.send(frame)
        self._offset = frames[0][0] - start
        return sent

    def now(self):
        """Returns the present time in ns, on the clock of `send`."""
        return time.monotonic_ns() + self._offset

    def forwarded(self):
        with self.router:
            words = command("nft", "list", "table", "inet", "t").split()
        return int(words[words.index("packets") + 1])

    def statistics(self):
        """Returns the counters of connection tracking, added up over all CPUs."""
        total = collections.Counter()
        with self.router:
            for word in command("conntrack", "-S").split():
                name, equals, value = word.partition("=")
                if equals and name != "cpu":
                    total[name] += int(value)
        return total

    def list(self):
        """Returns the connections as text, a line each."""
        with self.router:
            return "".join(
                command("conntrack", "-L", "-o", "extended", "-f", family)
                for family in ("ipv4", "ipv6")
            )
