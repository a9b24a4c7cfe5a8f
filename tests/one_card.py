"""Common parts of tests in which millrace and the kernel share one card."""

import json
import socket

from asked import Asked
from namespaces import command, ip
from network import ADDRESSES, FAMILIES, PORT, SERVER_PORT, OneLink

ECHO = 7000


OWN = [f"{a[key]}/{a['bits']}" for a in ADDRESSES.values() for key in ("outside", "inside")]


def configuration(device="af_packet:wire", kernel="mr0", own=OWN, service=None):
    addresses = ", ".join(f'"{address}"' for address in own)
    text = f"""workers = 2
[table]
capacity = 20000
[[port]]
name = "card"
device = "{device}"
kernel = "{kernel}"
addresses = [{addresses}]
"""
    for a in ADDRESSES.values():
        backends = ", ".join(f'{{ address = "{s}", port = {SERVER_PORT} }}' for s in a["servers"])
        text += f"""[[service]]
address = "{service or a["service"]}"
port = {PORT}
protocol = "tcp"
backends = [{backends}]
"""
        if service:
            break
    return text


ONE_CARD = configuration()


class OneCard(Asked):
    def serve(self, text=ONE_CARD):
        network = OneLink(direct=False)
        self.addCleanup(network.close)
        self.serve_with(text, network)
        self.echoing()

    def echoing(self):
        """Listens for TCP connections to the machine itself."""
        self.listening = {}
        for family, a in ADDRESSES.items():
            with self.network_.middle:
                listening = socket.create_server((a["outside"], ECHO), family=FAMILIES[family])
            self.addCleanup(listening.close)
            listening.settimeout(10)
            self.listening[family] = listening

    def session(self, family):
        """Opens a connection from the client to the machine itself; returns both ends."""
        with self.network_.client:
            client = socket.create_connection((ADDRESSES[family]["outside"], ECHO), timeout=10)
        server, _ = self.listening[family].accept()
        for end in (client, server):
            end.settimeout(20)
            self.addCleanup(end.close)
        return client, server

    def check_session(self, session, size=100_000):
        for one, other in (session, session[::-1]):
            one.sendall(bytes(size))
            got = 0
            while got < size:
                got += len(other.recv(65536))
            self.assertEqual(got, size)

    def interface(self):
        with self.network_.middle:
            [is_now] = json.loads(ip("-json address show mr0"))
        return is_now

    def addresses(self):
        return {one["local"] for one in self.interface()["addr_info"] if one["scope"] == "global"}

    def of_kernel(self):
        [port] = self.ask("GET /stats")["ports"]
        return port["kernel"]

    def check_everything(self):
        for family, a in ADDRESSES.items():
            for address in (a["outside"], a["inside"], a["service"]):
                self.assertEqual(self.ping(self.network_, family, address), 3)
            self.assertEqual(self.ping(self.network_, family, a["outside"], size=3000), 3, "pings in fragments must be answered")
            self.check_session(self.session(family))
            self.assertEqual({client.get(1000) for client in self.clients(20, family)}, set(a["servers"]))

    def settings(self):
        """Returns the values of two settings of the card, both of which millrace changes."""
        with self.network_.middle:
            return [command("sysctl", "-n", f"net.{name}").strip()
                    for name in ("ipv4.conf.wire.rp_filter", "ipv6.conf.wire.disable_ipv6")]
