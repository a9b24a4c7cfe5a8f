#!/usr/bin/env python3
"""Compares `millrace run` with Linux as a router: the frames that each takes in, forwards, and answers by ICMP errors, with
the same links, addresses and routes. If the outcomes for a frame differ, a rule below must explain the difference.

    kernel_forwarding_test.py MILLRACE [TEST...]
"""

import collections
import re
import select
import socket
from collections.abc import Callable
from typing import NamedTuple

import router_frames
from asked import Asked
from live import NO_XDP, has_xdp, main
from namespaces import Namespace, ip, set_sysctls
from router_frames import ICMP, ICMPV6, NAMES, OUR_MACS, SERVICE_PORT, THEIR_MACS

LINKS = ("outside", "inside")
ROUTER_SYSCTLS = {
    "ipv4/ip_forward": 1,
    "ipv4/conf/all/rp_filter": 0,
    "ipv4/conf/default/rp_filter": 0,
    "ipv4/conf/all/send_redirects": 0,
    "ipv4/conf/default/send_redirects": 0,
    "ipv4/icmp_ratelimit": 0,
    "ipv4/icmp_msgs_per_sec": 100000,
    "ipv4/icmp_msgs_burst": 100000,
    "ipv6/conf/all/forwarding": 1,
    "ipv6/conf/default/accept_dad": 0,
    "ipv6/icmp/ratelimit": 0,
}
NEIGHBOURS = {"outside": ("gateway",), "inside": ("near",)}
# Names of ICMP errors, by family, type and code.
ERRORS = {4: {(3, 0): "no route", (3, 1): "no host", (3, 3): "no port", (3, 13): "prohibited", (11, 0): "hop limit"},
          6: {(1, 0): "no route", (1, 2): "scope", (1, 3): "no host", (1, 4): "no port", (1, 6): "reject", (3, 0): "hop limit"}}


class Ends:
    """The stations on both links, which receive all frames that the router sends."""

    def __init__(self, router):
        self.namespace = Namespace()
        with self.namespace:
            set_sysctls({"ipv6/conf/default/disable_ipv6": 1})
        with router:
            for link in LINKS:
                ip(f"link add {link} address {OUR_MACS[link].hex(':')} type veth peer name {link} netns {self.namespace.path}")
        self.sockets = {}
        with self.namespace:
            for link in LINKS:
                ip(f"link set {link} address {THEIR_MACS[link].hex(':')} arp off up")
                self.sockets[link] = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
                self.sockets[link].setsockopt(socket.SOL_SOCKET, 33, 1 << 24)  # SO_RCVBUFFORCE
                self.sockets[link].bind((link, 0))

    def close(self):
        for one in self.sockets.values():
            one.close()
        self.namespace.close()

    def outcomes(self, frames):
        """Sends the frames, and returns what became of each, by its mark."""
        heard = collections.defaultdict(set)
        for at in range(0, len(frames), 20):
            for frame in frames[at : at + 20]:
                self.sockets[frame.link].send(frame.data)
            self.hear(heard, 0.02)
        self.hear(heard, 0.5)
        return {frame.mark: " and ".join(sorted(heard[frame.mark])) or "dropped" for frame in frames}

    def hear(self, heard, quiet):
        while ready := select.select(self.sockets.values(), [], [], quiet)[0]:
            for link, one in self.sockets.items():
                if one in ready:
                    self.note(heard, link, one.recv(65536))

    @staticmethod
    def note(heard, link, data):
        at = data.find(b"mark")
        if at < 0 or data[6:12] != OUR_MACS[link]:
            return
        heard[data[at : at + 9]].add(said(link, data[14:]))


def said(link, packet):
    family = packet[0] >> 4
    header, protocol = (20, packet[9]) if family == 4 else (40, packet[6])
    if protocol == (ICMP if family == 4 else ICMPV6):
        kind = tuple(packet[header : header + 2])
        if kind in ((0, 0), (129, 0)):
            return "answered"
        if kind not in ((8, 0), (128, 0)):
            return ERRORS[family].get(kind, str(kind))
    return f"sent {link}"


class Linux:
    """Linux as a router with millrace's addresses; the virtual ones are on its loopback device."""

    def __init__(self, rpf=0, default=True):
        self.namespace = Namespace()
        with self.namespace:
            set_sysctls(ROUTER_SYSCTLS | {"ipv4/conf/default/rp_filter": rpf})
        self.ends = Ends(self.namespace)
        with self.namespace:
            ip("link set lo up")
            for link in LINKS:
                ip(f"link set {link} up")
            for n in NAMES.values():
                ip(f"address add {n['virtual']} dev lo")
                for link in LINKS:
                    ip(f"address add {n[link]}/{n['bits']} dev {link}" + (" nodad" if ":" in n[link] else " broadcast +"))
                    for name in NEIGHBOURS[link]:
                        ip(f"neigh add {n[name]} lladdr {THEIR_MACS[link].hex(':')} dev {link} nud permanent")
                prefix = "default" if default else n["behind"]
                ip(f"{'-6' if ':' in n['host'] else '-4'} route add {prefix} via {n['gateway']}")

    def close(self):
        self.ends.close()
        self.namespace.close()


def configuration(device, rpf="off", default=True):
    text = "[table]\ncapacity = 1000\n"
    for link in LINKS:
        own = ", ".join(f'"{n[link]}/{n["bits"]}"' for n in NAMES.values())
        near = ", ".join(f'{{ address = "{n[name]}", mac = "{THEIR_MACS[link].hex(":")}" }}' for n in NAMES.values() for name in NEIGHBOURS[link])
        text += f'[[port]]\nname = "{link}"\ndevice = "{device}:{link}"\naddresses = [{own}]\nneighbours = [{near}]\nrpf = "{rpf}"\n'
    for n in NAMES.values():
        text += f'[[route]]\nprefix = "{"::/0" if ":" in n["near"] else "0.0.0.0/0"}"\nvia = "{n["gateway"]}"\n' if default else ""
        text += "" if default else f'[[route]]\nprefix = "{n["behind"]}"\nvia = "{n["gateway"]}"\n'
        text += f'[[service]]\naddress = "{n["virtual"]}"\nport = {SERVICE_PORT}\nprotocol = "udp"\nbackends = [{{ address = "{n["near"]}" }}]\n'
    return text


class Difference(NamedTuple):
    """A rule that explains a difference if `of` returns True for the frame's name, the kernel's outcome and millrace's."""

    why: str
    of: Callable[[str, str, str], bool]


def says(pattern):
    return re.compile(pattern).search


KNOWN = [
    Difference("a packet to a router's own address in a broadcast or multicast frame: dropped (RFC 1122, 3.3.6); Linux drops it only by a setting",
               lambda name, kernel, ours: says(r"^ping to (inside|virtual) in a frame to (all|a group)$")(name) and ours == "dropped"),
    Difference("a network's broadcast address as a source: refused (RFC 1812, 5.3.7); Linux takes it where rp_filter is off",
               lambda name, kernel, ours: says(r"^(10\.0\.0\.255|198\.51\.100\.255) ")(name) and ours == "dropped"),
    Difference("a router's own address as a source: refused; Linux refuses it in IPv4 only",
               lambda name, kernel, ours: says(r"^(2001:db8::2|fd00::fe|2001:db8:1::10) ")(name) and ours == "dropped"),
    Difference("the unspecified address as a source: refused also on the way back to the same link, or to the router (RFC 4291, 2.5.2)",
               lambda name, kernel, ours: says(r"^:: ")(name) and ours == "dropped"),
    Difference("the unspecified address as a destination: no host has it (RFC 4291, 2.5.2)",
               lambda name, kernel, ours: says(r"^(to|pings) ::,")(name) and ours == "dropped"),
    Difference("packets from or to link-local addresses are not forwarded, even to the same link, and cause no ICMP error (RFC 4291, 2.5.6)",
               lambda name, kernel, ours: says(r"(^|to |pings )fe[8-b].::")(name) and ours == "dropped" and kernel != "dropped"),
    Difference("a ping to a multicast group is not answered", lambda name, kernel, ours: says(r"^pings ff02::1,")(name) and ours == "dropped"),
    Difference("a packet to the subnet-router anycast address (RFC 4291, 2.6.1) is not answered: a host may have this address, and is looked for",
               lambda name, kernel, ours: says(r"^(to|pings) fd00::,")(name) and ours == "dropped"),
]


class Forwarding(Asked):
    def begin(self, text):
        """Starts millrace between two stations, and returns the stations."""
        middle = Namespace()
        self.addCleanup(middle.close)
        ends = Ends(middle)
        self.addCleanup(ends.close)
        with middle:
            for link in LINKS:
                ip(f"link set {link} up")
        self.start(Middle(middle), text)
        return ends

    def compare(self, frames, kernel, ends):
        """Checks that each frame has the same outcome, or that a rule explains the difference. Returns the rules that were needed."""
        left, ours, used = frames, {}, set()
        for _ in range(3):  # a busy machine loses frames
            ours |= ends.outcomes(left)
            left = [frame for frame in frames if ours[frame.mark] != kernel[frame.mark]]
            rules = {frame: [rule.why for rule in KNOWN if rule.of(frame.name, kernel[frame.mark], ours[frame.mark])] for frame in left}
            used |= {why for all_of_one in rules.values() for why in all_of_one}
            left = [frame for frame in left if not rules[frame]]
            if not left:
                break
        for frame in left:
            with self.subTest(frame=frame.name):
                self.assertEqual(ours[frame.mark], kernel[frame.mark])
        return used

    def kernel(self, frames, **options):
        router = Linux(**options)
        self.addCleanup(router.close)
        with router.namespace:
            self.wait_until(lambda: all("state UP" in ip(f"link show {link}") for link in LINKS))
        return router.ends.outcomes(frames)

    def each_device(self):
        for device in ("af_packet", "af_xdp"):
            with self.subTest(device=device):
                if device == "af_xdp" and not has_xdp():
                    self.skipTest(NO_XDP)
                yield device

    def test_the_table(self):
        frames = router_frames.whole()
        kernel = self.kernel(frames)
        for device in self.each_device():
            ends = self.begin(configuration(device))
            used = self.compare(frames, kernel, ends)
            self.assertEqual(used, {rule.why for rule in KNOWN}, "each rule must explain a difference: remove a rule that does not")
            dropped = self.stop()["packets"]["dropped"]
            for reason in ("other_station", "foreign_vlan", "encapsulated", "link_broadcast", "martian_source", "unroutable", "not_ours",
                           "malformed", "truncated"):
                self.assertGreater(dropped.get(reason, 0), 0, reason)

    def test_reverse_path(self):
        """Linux has no rp_filter for IPv6, so its outcomes for IPv4 are expected for both families. A reload changes `rpf`."""
        frames = router_frames.for_rpf()
        kernel = {}
        for rpf, number in (("strict", 1), ("loose", 2), ("off", 0)):
            said = self.kernel(frames, rpf=number, default=False)
            by_name = {frame.name: said[frame.mark] for frame in frames}
            kernel[rpf] = {frame.mark: by_name[frame.name.replace("IPv6", "IPv4")] for frame in frames}
        self.assertEqual(len({tuple(outcomes.values()) for outcomes in kernel.values()}), 3, "the frames must tell strict, loose and off apart")
        for device in self.each_device():
            ends = self.begin(configuration(device, "off", default=False))
            for rpf in ("strict", "loose", "off"):
                with self.subTest(rpf=rpf):
                    self.write("f.toml", configuration(device, rpf, default=False))
                    self.assertEqual(self.answer("POST", "/reload").status, 200)
                    self.compare(frames, kernel[rpf], ends)
            self.assertGreater(self.stop()["packets"]["dropped"]["reverse_path"], 0)


class Middle(NamedTuple):
    """The part of a network that `Live.start` needs."""

    middle: Namespace


if __name__ == "__main__":
    main()
