#!/usr/bin/env python3
"""Tests customers behind GRE tunnels in `millrace run` with NAT, between network namespaces.

    gre_test.py MILLRACE [TEST...]
"""

import socket

import customers
from customers import INSIDE, SERVER, A, datagram
from gre import Home, Tunnels, header
from live import main
from namespaces import ip
from network import payload

FAR = ["172.17.0.1", "172.17.0.2", "172.18.0.9"]
KEY = 7
STRANGER = "172.19.0.1"


class Gre(customers.Customers):
    names = [*FAR[:2], "c17"]
    numbers = [2, 3, 16_385]
    several = "172.17.0.0/18"
    another = "172.17.0.9"
    near = A["outside"]
    narrow, narrow_home = {}, 1500

    @staticmethod
    def configuration(**options):
        extra = options.pop("extra", "") + f"""[[route]]
prefix = "172.16.0.0/14"
via = "{A['client']}"
"""
        return customers.configuration(f"""addresses = ["{A['outside']}/24"]
mtu = 1500
tunnel = "gre"
customers = ["172.17.0.0/18", {{ name = "c17", address = "{FAR[2]}", key = {KEY} }}]""", extra=extra, **options)

    def serve_homes(self, home_mtu=1476, **options):
        # The links to millrace take what a home sends that knows nothing of the tunnel.
        network = self.network(mtu=1600)
        with network.servers:
            ip("link set wire mtu 1500")
        with network.client:
            for far in (*FAR, STRANGER):
                ip(f"address add {far}/32 dev lo")
        homes = [Home(INSIDE, home_mtu) for _ in range(3)]
        self.homes = [home.namespace for home in homes]
        keys = (None, None, KEY)
        ends = dict(zip(zip(FAR, keys), homes))
        ends[STRANGER, None] = Home(INSIDE)
        self.tunnels = Tunnels(network.client, A["outside"], ends)
        self.addCleanup(self.tunnels.close)
        self.serve_with(self.configuration(**options), network)

    def check_sizes(self):
        self.assertLessEqual(max(map(len, self.tunnels.received)), 1500)

    def test_customers_change(self):
        """Customers may be added behind others in a run. A process that takes over leaves sessions behind whose customers'
        numbers have changed."""
        self.serve_homes()
        listening = self.server()
        client, accepted, _ = self.connect(2, listening)
        text = self.configuration()
        more = text.replace('["172.17.0.0/18", ', '["172.16.64.0/18", "172.17.0.0/18", ')
        self.write("f.toml", more)
        self.refused(422, ["port.customers"], "POST /reload")
        more_behind = text.replace(f"key = {KEY} }}]", f'key = {KEY} }}, "{STRANGER}"]')
        self.reload(more_behind)
        self.connect(2, listening)
        self.assertEqual(self.take_over(text), 2)
        self.transfer(client, accepted, 10_000)
        self.assertEqual(self.take_over(more, left_behind=2), 0)

    def test_what_is_dropped(self):
        """Strangers, fragments and what is no GRE with IPv4 are dropped by reason; so is what NAT does not translate."""
        self.serve_homes()
        udp = self.server(socket.SOCK_DGRAM)
        good = datagram(INSIDE, SERVER)
        self.tunnels.send(FAR[0], header() + good)
        self.assertEqual(udp.recv(100), b"x")
        for far, data, reason in (
            (STRANGER, header() + good, "no_customer"),
            (FAR[2], header() + good, "no_customer"),  # without his key
            (FAR[2], header(8) + good, "no_customer"),
            (FAR[0], header(KEY) + good, "no_customer"),
            (FAR[0], b"\x40\0\x08\0" + good, "bad_tunnel"),
            (FAR[0], b"\0\1\x08\0" + good, "bad_tunnel"),
            (FAR[0], b"\0\0\x86\xdd" + good, "bad_tunnel"),
            (FAR[0], b"\0\0\x08\0" + b"x" * 19, "bad_tunnel"),
            (FAR[0], header() + datagram("192.168.0.5", SERVER), "untranslated"),
            (FAR[0], header() + datagram("127.0.0.1", SERVER), "martian_source"),
            (FAR[0], header() + datagram(INSIDE, "10.0.0.192"), "no_mapping"),
        ):
            before = self.dropped().get(reason, 0)
            self.tunnels.send(far, data)
            self.wait_until(lambda: self.dropped().get(reason, 0) == before + 1)
        before = self.dropped().get("tunnel_fragment", 0)
        self.tunnels.send(FAR[0], header() + datagram(INSIDE, SERVER, data=payload(3000)))
        self.wait_until(lambda: self.dropped().get("tunnel_fragment", 0) == before + 2)
        self.tunnels.send(FAR[0], header() + good)
        self.assertEqual(udp.recv(100), b"x")
        udp.settimeout(0.2)
        self.assertRaises(TimeoutError, udp.recv, 100)


if __name__ == "__main__":
    main()
