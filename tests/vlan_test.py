#!/usr/bin/env python3
"""Tests ports that share a device, each in a VLAN of its own or without one: millrace is a router on a stick, whose one
interface is on the trunk of a switch.

    vlan_test.py MILLRACE [TEST...]
"""

import json
import os
import socket
import struct
import threading
import time
import types
import unittest

import packets
from asked import Asked
from live import NO_XDP, check_possible, has_xdp, main
from namespaces import CannotTry, Namespace, command, ip, set_sysctls
from network import ADDRESSES, FAMILIES, Servers
from network import configuration as without_vlans
from vlan_switch import Switch

OUTSIDE, INSIDE, FOREIGN = 100, 200, 300
PLAIN = {4: ("192.0.2.1", "192.0.2.254", 24), 6: ("2001:db8:2::1", "2001:db8:2::fe", 64)}  # a station, millrace, bits
ECHO = 7000


def configuration(device, keys="", plain=True, of_outside=""):
    """Returns three ports of one device: two in VLANs, one without a tag; or the first two."""
    text = without_vlans(device, device)
    for name, vlan in (("outside", OUTSIDE), ("inside", INSIDE)):
        text = text.replace(f'name = "{name}"', f'name = "{name}"\nvlan = {vlan}')
    text = text.replace(f"vlan = {OUTSIDE}", f"vlan = {OUTSIDE}\n{of_outside}")
    if plain:
        addresses = ", ".join(f'"{own}/{bits}"' for _, own, bits in PLAIN.values())
        text += f'[[port]]\nname = "plain"\ndevice = "{device}"\naddresses = [{addresses}]\n'
    return keys + "\n" + text


def foreign_in(counts):
    return counts["dropped"].get("foreign_vlan", 0)


class Stick:
    """A client, servers and a station without a VLAN behind a switch, whose trunk leads to millrace. `to_trunk`: "veth", or
    "tap", which millrace makes: `connect` connects it. `plain`: False if no frames without a tag come."""

    def __init__(self, to_trunk="veth", keeps_tags_beside=True, plain=True):
        self._vlans = {OUTSIDE: "port0", INSIDE: "port1"} | ({0: "port2"} if plain else {})
        self.switch, self.middle, self.client, self.servers, self.plain = self._all = [Namespace() for _ in range(5)]
        with self.switch:
            set_sysctls({"ipv6/conf/default/disable_ipv6": 1})  # the switch itself sends no frames
            for n, namespace in enumerate(self._all[2:]):
                ip(f"link add port{n} type veth peer name wire netns {namespace.path}")
                ip(f"link set port{n} up")
        if to_trunk == "veth":
            with self.switch:
                ip(f"link add trunk type veth peer name stick netns {self.middle.path}")
                if not keeps_tags_beside:
                    command("ethtool", "-K", "trunk", "txvlan", "off")
            with self.middle:
                ip("link set stick up")
            self.connect()
        for namespace in self._all[2:]:
            with namespace:
                ip("link set lo up")
                ip("link set wire up")
        for family, a in ADDRESSES.items():
            station, own, bits = PLAIN[family]
            with self.client:
                ip(f"address add {a['client']}/{a['bits']} dev wire nodad")
                for to in (a["services"], a["inside"], a["servers"][0], station):
                    ip(f"route add {to} via {a['outside']}")
            with self.servers:
                for server in a["servers"]:
                    ip(f"address add {server}/{a['bits']} dev wire nodad")
                for to in (a["client"], station):
                    ip(f"route add {to} via {a['inside']}")
            with self.plain:
                ip(f"address add {station}/{bits} dev wire nodad")
                for to in (a["client"], a["servers"][0]):
                    ip(f"route add {to} via {own}")

    def connect(self):
        """Connects the interface `trunk`, which is in the switch's namespace, with the stations."""
        with self.switch:
            ip("link set trunk up")
            self.connected = Switch("trunk", self._vlans)

    def server_of(self, _family, _address):
        return self.servers

    def close(self):
        self.connected.close()
        for namespace in self._all:
            namespace.close()


class Vlans(Asked):
    def serve(self, text, network=None):
        self.network_ = network or Stick()
        self.addCleanup(self.network_.close)
        self.serve_with(text, self.network_)

    @staticmethod
    def mac(namespace, interface):
        with namespace:
            [link] = json.loads(ip(f"-json link show {interface}"))
        return bytes.fromhex(link["address"].replace(":", ""))

    def hear_all(self, network):
        """Tries pings between every two stations, and of millrace itself."""
        for family, a in ADDRESSES.items():
            station, own, _ = PLAIN[family]
            first = a["servers"][0]
            for namespace, addresses in ((network.client, (station, first)), (network.plain, (own, a["client"], first))):
                for address in addresses:
                    self.assertEqual(self.ping_from(namespace, family, address), 3, address)

    def ping_from(self, namespace, family, address):
        return self.ping(types.SimpleNamespace(client=namespace), family, address)

    def check_ports(self, stats, plain=True, foreign=0):
        """Checks that the ports' counts add up to those of the packets. `foreign`: frames of no port's VLAN."""
        names = ["outside", "inside"] + ["plain"] * plain
        ports = stats["ports"]
        self.assertEqual([port["name"] for port in ports], names)
        self.assertEqual([port["vlan"] for port in ports], [OUTSIDE, INSIDE] + [None] * plain)
        p = stats["packets"]
        self.assertEqual(sum(port["in"] for port in ports) + foreign, p["in"])
        self.assertEqual(sum(port["out"] for port in ports), p["out"])
        self.assertEqual(foreign_in(p), foreign)
        self.assertGreater(min(port["in"] for port in ports), 0)
        self.assertGreater(min(port["out"] for port in ports), 0)

    def try_all(self, text, network=None):
        self.serve(text, network)
        if network is not None and not hasattr(network, "connected"):
            with network.middle:
                ip(f"link set mr0 name trunk netns {network.switch.path}")
            network.connect()
        self.exercise(self.network_)
        self.hear_all(self.network_)
        self.check_ports(self.stop())

    def test_one_worker(self):
        self.try_all(configuration("af_packet:stick").replace("workers = 2", "workers = 1"))

    def test_workers_share_tables(self):
        self.try_all(configuration("af_packet:stick"))

    def test_workers_hand_packets_over(self):
        self.try_all(configuration("af_packet:stick", 'sharing = "sharded"'))

    @unittest.skipUnless(has_xdp(), NO_XDP)
    def test_af_xdp(self):
        network = Stick(keeps_tags_beside=False)  # a program at XDP does not see tags beside the frame
        with network.middle:
            self.assertIn("rx-vlan-offload: on", command("ethtool", "-k", "stick"))
        self.serve(configuration("af_xdp:stick"), network)
        with network.middle:
            self.assertIn("rx-vlan-offload: off", command("ethtool", "-k", "stick"))
        self.exercise(network)
        self.hear_all(network)
        self.check_ports(self.stop())
        with network.middle:
            self.assertIn("rx-vlan-offload: on", command("ethtool", "-k", "stick"))

    @unittest.skipUnless(os.path.exists("/dev/net/tun"), "no /dev/net/tun here")
    def test_tap(self):
        self.try_all(configuration("tap:mr0"), Stick("tap"))

    def frame(self, tags):
        """Returns a ping to millrace's address in the first VLAN, with the tags given, as the client would send it."""
        a = ADDRESSES[4]
        source, to = socket.inet_aton(a["client"]), socket.inet_aton(a["outside"])
        icmp = struct.pack("!BBHHH", 8, 0, 0, 7, 7) + bytes(40)
        icmp = icmp[:2] + packets.checksum(icmp).to_bytes(2, "big") + icmp[4:]
        header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(icmp), 1, 0, 64, 1, 0, source, to)
        header = header[:10] + packets.checksum(header).to_bytes(2, "big") + header[12:]
        macs = self.mac(self.network_.middle, "stick") + self.mac(self.network_.client, "wire")
        return macs + bytes.fromhex(tags) + b"\x08\x00" + header + icmp

    def send(self, tags, times=10):
        """Sends such frames over the trunk. Returns True if millrace answered them, and the number of foreign ones."""
        before = self.ask("GET /stats")["packets"]
        frame = self.frame(tags)
        with self.network_.switch, socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
            raw.bind(("trunk", 0))
            for _ in range(times):
                raw.send(frame)

        def change(of):
            return of(self.ask("GET /stats")["packets"]) - of(before)

        self.wait_until(lambda: change(foreign_in) + change(lambda p: p["consumed"]) >= times)
        return change(lambda p: p["consumed"]) >= times, change(foreign_in)

    def check_frames_of_other_vlans(self, device, service_tag):
        """`service_tag`: what becomes of frames with a provider's tag that has the number of a port's VLAN."""
        self.serve(configuration(device, plain=False), Stick(keeps_tags_beside=False, plain=False))
        self.assertEqual(self.ping(self.network_, 4, ADDRESSES[4]["outside"]), 3)
        for tags in ("81000064", "8100e064", "8100006481000000"):  # also with a priority, in the tag or behind it
            self.assertEqual(self.send(tags), (True, 0), tags)
        foreign = ("", "81000000", "8100012c", "81000fff", "8100006481000064", "81000064810000c8", "8100006488a80001", "91000064",
                   "8100000081000064")
        for tags in foreign:
            self.assertEqual(self.send(tags), (False, 10), tags)
        self.assertEqual(self.send("88a80064"), service_tag)
        self.assertEqual(self.ping(self.network_, 4, ADDRESSES[4]["inside"]), 3)
        dropped = self.stop()["packets"]["dropped"]
        self.assertEqual(dropped["foreign_vlan"], 10 * len(foreign) + service_tag[1])

    def test_frames_of_other_vlans(self):
        # The kernel tells packet sockets of which type a tag is, but DPDK's driver does not read that.
        self.check_frames_of_other_vlans("af_packet:stick", service_tag=(True, 0))

    @unittest.skipUnless(has_xdp(), NO_XDP)
    def test_frames_of_other_vlans_by_xdp(self):
        self.check_frames_of_other_vlans("af_xdp:stick", service_tag=(False, 10))

    def test_a_port_without_vlan_takes_no_tags(self):
        without = configuration("af_packet:stick", plain=False).replace(f"vlan = {OUTSIDE}\n", "")
        self.serve(without, Stick(plain=False))
        for tags, is_answered in (("", True), ("81000000", True), ("81000064", False)):
            answered, foreign = self.send(tags)
            self.assertEqual(answered, is_answered, tags)
            if not is_answered:
                self.assertGreaterEqual(foreign, 10)  # more if the client's kernel sends some, too
        self.stop()

    def test_the_kernel_sees_frames_without_tags(self):
        self.serve(configuration("af_packet:stick", of_outside='kernel = "mr0"'))
        network = self.network_
        for family, a in ADDRESSES.items():
            self.assertEqual(self.ping(network, family, a["outside"]), 3)
            self.assertEqual(self.ping(network, family, a["outside"], size=3000), 3)
            with network.middle:
                listening = socket.create_server((a["outside"], ECHO), family=FAMILIES[family])
            with listening:
                listening.settimeout(10)
                with network.client:
                    client = socket.create_connection((a["outside"], ECHO), timeout=10)
                server, _ = listening.accept()
                with client, server:
                    for one, other in ((client, server), (server, client)):
                        other.settimeout(10)
                        sending = threading.Thread(target=one.sendall, args=(bytes(300_000),))
                        sending.start()
                        got = 0
                        while got < 300_000:
                            got += len(other.recv(65536))
                        sending.join()
            with network.middle:
                self.assertEqual(self.ping_from(network.middle, family, a["client"]), 3)
        with network.middle:
            self.assertIn("mtu 1500", ip("link show mr0"))
        for family in FAMILIES:
            self.transfer(network, family)
            self.datagrams(network, family)
        stats = self.stop()
        [of_kernel] = [port["kernel"] for port in stats["ports"] if port["kernel"]]
        self.assertGreater(of_kernel["given"], 100)
        self.assertGreater(of_kernel["taken"], 100)

    def test_trace(self):
        """A trace shows the frames of a port in a VLAN without a tag."""
        self.serve(configuration("af_packet:stick"))
        self.assertEqual(self.ping(self.network_, 4, ADDRESSES[4]["servers"][0]), 3)
        answer = self.answer("GET", "/trace", seconds=3)
        self.assertEqual(answer.status, 200)
        body = answer.read(28)
        self.assertEqual(self.ping(self.network_, 4, ADDRESSES[4]["servers"][0]), 3)
        self.send("8100012c", times=1)
        body += answer.read()
        seen, comments, at = [], [], 0
        while at < len(body):
            kind, size = struct.unpack_from("<II", body, at)
            if kind == 6:  # enhanced packet block
                interface, _, _, length, _ = struct.unpack_from("<IIIII", body, at + 8)
                data = body[at + 28 : at + 28 + length]
                comment = body[at + 28 + (length + 3) // 4 * 4 : at + size - 4]
                if data[23:24] == b"\x01" or data[12:14] == b"\x81\x00":
                    seen.append((interface, data[12:16].hex()[: 8 if data[12] == 0x81 else 4]))
                    comments.append(comment)
            at += size
        self.assertEqual(seen.count((0, "0800")), 6, "three requests came, and three answers left, by the first port")
        self.assertEqual(seen.count((1, "0800")), 6)
        self.assertEqual(seen.count((0, "8100012c")), 1, "a frame of no port stands under the device's first port")
        self.assertEqual(len(seen), 13)
        self.assertTrue(any(b"foreign_vlan" in comment for comment in comments))

    def test_another_process_takes_over(self):
        text = configuration("af_packet:stick")
        self.serve(text)
        for keys in ("", 'sharing = "sharded"', ""):
            with self.subTest(keys=keys):
                end = self.transferring(20)
                time.sleep(0.5)
                self.assertGreaterEqual(self.take_over(configuration("af_packet:stick", keys)), 20)
                time.sleep(0.5)
                self.assertEqual(end(), [])
        self.exercise(self.network_)
        self.stop()

    def test_another_process_has_other_vlans(self):
        """The neighbours of a VLAN are those of its port, however the ports are numbered."""
        text = configuration("af_packet:stick")
        self.serve(text)
        self.exercise(self.network_)
        head, outside, inside, rest = text.split("[[port]]", 3)
        inside, services = inside.split("[[service]]", 1)
        other = "[[port]]".join([head, inside, outside]) + "[[service]]" + services
        end = self.transferring(20)
        self.take_over(other)
        time.sleep(0.5)
        self.assertEqual(end(), [])
        stats = self.ask("GET /stats")
        self.assertEqual([port["name"] for port in stats["ports"]], ["inside", "outside"])
        self.assertEqual([port["silent"] for port in stats["ports"]], [[], []])
        self.exercise(self.network_)
        self.stop()

    def test_a_reload_does_not_change_vlans(self):
        text = configuration("af_packet:stick")
        self.serve(text)
        self.write("f.toml", text.replace(f"vlan = {INSIDE}", f"vlan = {FOREIGN}"))
        self.refused(422, ["port (inside) vlan"], "POST /reload")
        self.exercise(self.network_)
        self.stop()


def check_switch():
    check_possible()
    try:
        Stick().close()
    except OSError as error:
        raise CannotTry(f"a switch of BPF programs cannot be made here: {error}") from error


if __name__ == "__main__":
    main(check_switch)
