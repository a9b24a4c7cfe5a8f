"""Two millraces between customers and an internet, on one link each, with a link between the two:

    customers ─ switch ─┬─ one ─┬─ switch ─ internet
                        └─ two ─┘
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading

from asked import Connection
from live import Live, patience_with
from namespaces import Namespace, ip

GATEWAY, OUTSIDE = "10.0.0.254", "198.51.100.254"  # addresses that move
POOL, SERVICE, INTERNET = "198.51.100.100", "203.0.113.10", "198.51.100.1"
CUSTOMERS = tuple(f"10.0.0.{n}" for n in range(1, 9))
NAT = f"""function = "nat"
[[nat.pool]]
name = "homes"
addresses = ["{POOL}"]
block_size = 64
filtering = "endpoint-independent"
[[nat.rule]]
source = ["10.0.0.0/24"]
pool = "homes"
"""


class PairNetwork:
    def __init__(self):
        self.customers, self.internet, self.switch = Namespace(), Namespace(), Namespace()
        self.servers = {1: Namespace(), 2: Namespace()}
        with self.switch:
            for name in ("inside", "outside"):
                ip(f"link add {name} type bridge forward_delay 0")
                ip(f"link set {name} up")
            for name, end in (("inside", self.customers), ("outside", self.internet)):
                self.link(f"{name}0", name, "wire", end)
            for number, server in self.servers.items():
                for name in ("inside", "outside"):
                    self.link(f"{name}{number}", name, name, server)
        with self.servers[1]:
            ip(f"link add sync type veth peer name sync netns {self.servers[2].path}")
        for server in self.servers.values():
            with server:
                for name in ("inside", "outside", "sync"):
                    ip(f"link set {name} up")
        with self.customers:
            ip("link set wire up")
            for address in CUSTOMERS:
                ip(f"address add {address}/24 dev wire")
            ip(f"route add default via {GATEWAY}")
        with self.internet:
            ip("link set wire up")
            ip(f"address add {INTERNET}/24 dev wire")

    @staticmethod
    def link(name, switch, other, namespace):
        ip(f"link add {name} type veth peer name {other} netns {namespace.path}")
        ip(f"link set {name} master {switch} up")

    def close(self):
        for namespace in (self.customers, self.internet, self.switch, *self.servers.values()):
            namespace.close()


def ports(number, key, addresses, kernel):
    """Returns the ports of a server, and its part of the pair. `kernel`: with the kernel's interfaces of examples/pair.toml."""
    text = ""
    for name, address, beside in (("outside", f"198.51.100.{1 + number}", "mr-wan"), ("inside", f"10.0.0.{251 + number}", "mr-lan"),
                                  ("sync", f"10.9.0.{number}", "")):
        text += f'[[port]]\nname = "{name}"\ndevice = "af_packet:{name}"\naddresses = ["{address}/24"]\n'
        if kernel and beside:
            text += f'kernel = "{beside}"\n'
    return text + f"""[pair]
number = {number}
other = "10.9.0.{3 - number}"
key_file = "{key}"
addresses = [{", ".join(f'"{one}"' for one in addresses)}]
"""


class PairCase(Live):
    WORKERS = 1

    def setUp(self):
        super().setUp()
        self.network_ = PairNetwork()
        self.addCleanup(self.network_.close)
        self.key = self.write("key", "ab" * 32)
        os.chmod(self.key, 0o600)
        self.processes, self.texts = {}, {}
        self.addCleanup(self.stop_both)

    def serve(self, number, text=NAT, *arguments, addresses=(GATEWAY,), kernel=False):
        """Starts a server; it is on standby."""
        text = f"workers = {self.WORKERS}\n" + text + ports(number, self.key, addresses, kernel)
        path = self.write(f"{number}.toml", text)
        with self.network_.servers[number]:
            process = subprocess.Popen(
                [self.program, "run", "--config", path, "--control", self.path(f"c{number}"),
                 "--stats", self.path(f"s{number}.json"), *arguments],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.processes[number] = process
        said = []
        with patience_with(process):
            for line in process.stderr:
                if "running with" in line:
                    return said
                said.append(line)
        self.fail(f"server {number} did not start: " + "".join(said))

    def serve_both(self, text=NAT):
        for number in (1, 2):
            self.serve(number, text)
        self.wait_until(lambda: self.are_in_sync() and self.pair(1)["gives"] and self.pair(2)["gives"])

    def kill(self, number):
        process = self.processes.pop(number)
        process.send_signal(signal.SIGKILL)
        process.communicate()

    def end(self, number):
        """Ends a server; returns its statistics, after checking that its packets add up."""
        process = self.processes.pop(number)
        process.send_signal(signal.SIGTERM)
        with patience_with(process):
            _, error = process.communicate()
        self.assertEqual((process.returncode, error), (0, ""))
        self.stats = self.path(f"s{number}.json")
        return self.counted()

    def stop_both(self):
        for number in list(self.processes):
            self.kill(number)

    def ask_server(self, number, what):
        method, path = what.split()
        with contextlib.closing(Connection(self.path(f"c{number}"))) as connection:
            connection.request(method, path, headers={"Connection": "close"})
            answer = connection.getresponse()
            body = answer.read().decode()
        self.assertEqual(answer.status, 200, body)
        if answer.getheader("Content-Type") == "application/x-ndjson":
            return [json.loads(line) for line in body.splitlines()]
        return json.loads(body)

    def pair(self, number):
        return self.ask_server(number, "GET /pair")

    def activate(self, number):
        """Does what VRRP does: one server leaves the addresses to the other."""
        if 3 - number in self.processes:
            self.ask_server(3 - number, "POST /pair/standby")
        self.ask_server(number, "POST /pair/active")

    def are_in_sync(self):
        one, two = self.pair(1), self.pair(2)
        return one["in_sync"] and two["in_sync"] and {one["role"], two["role"]} == {"master", "slave"}

    def connections(self, number):
        return {(c["source"], c["source_port"], c["destination"], c["protocol"]): c["state"]
                for c in self.ask_server(number, "GET /connections")}

    def both_have_the_same(self):
        self.wait_until(lambda: self.connections(1) == self.connections(2))

    def to(self, number):
        """Sends what customers and the internet send to that server, whatever the servers say."""
        with self.network_.servers[number]:
            macs = {name: json.loads(ip(f"-json link show dev {name}"))[0]["address"] for name in ("inside", "outside")}
        with self.network_.customers:
            ip(f"neighbour replace {GATEWAY} lladdr {macs['inside']} dev wire nud permanent")
        with self.network_.internet:
            ip(f"neighbour replace {POOL} lladdr {macs['outside']} dev wire nud permanent")

    def echo(self, port=7):
        """Starts a server in the internet that answers each piece with its customer's address and port in front."""
        listening = self.socket_in(self.network_.internet, socket.AF_INET, socket.SOCK_STREAM)
        listening.settimeout(None)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((INTERNET, port))
        listening.listen(1000)

        def serve(accepted, sender):
            with accepted:
                while True:
                    try:
                        data = accepted.recv(65536)
                    except OSError:
                        return
                    if not data:
                        return
                    accepted.sendall(f"{sender[0]}:{sender[1]} ".encode() + data)

        def accept():
            while True:
                try:
                    accepted, sender = listening.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(accepted, sender), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()

    def connect(self, customer=0, port=7, to=INTERNET):
        made = self.socket_in(self.network_.customers, socket.AF_INET, socket.SOCK_STREAM)
        made.bind((CUSTOMERS[customer], 0))
        made.connect((to, port))
        return made

    @staticmethod
    def exchange(client, data=b"hello"):
        """Sends data; returns the public address and port that the internet sees."""
        client.sendall(data)
        got = b""
        while not got.endswith(data):
            more = client.recv(65536)
            if not more:
                raise ConnectionError("the connection has ended")
            got += more
        return got.partition(b" ")[0].decode()
