"""Several millraces between customers and an internet, on one link each, with a link between them:

    customers ─ switch ─┬─ 1 ─┬─ switch ─ internet
                        ├─ 2 ─┤
                        └─ 3 ─┘
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

INTERNET = "198.51.100.1"
CUSTOMERS = tuple(f"10.0.0.{n}" for n in range(1, 9))
SYNC_MTU = 1700  # room for a packet that goes to another server in a datagram


def nat(pool, block_size):
    """Returns the configuration of NAT with one pool for all customers."""
    return f"""function = "nat"
[[nat.pool]]
name = "homes"
addresses = ["{pool}"]
block_size = {block_size}
filtering = "endpoint-independent"
[[nat.rule]]
source = ["10.0.0.0/24"]
pool = "homes"
"""


def with_firewall(text):
    """Returns that configuration of NAT alone with a firewall before it, which lets customers' connections pass."""
    return (text.replace('function = "nat"', 'chain = ["firewall", "nat"]')
            + '[[firewall.rule]]\nname = "out"\nsource = ["10.0.0.0/24"]\naction = "accept"\n')


class ServersNetwork:
    def __init__(self, count):
        self.customers, self.internet, self.switch = Namespace(), Namespace(), Namespace()
        self.servers = {number: Namespace() for number in range(1, count + 1)}
        with self.switch:
            for name in ("inside", "outside", "sync"):
                ip(f"link add {name} type bridge forward_delay 0")
                ip(f"link set {name} up")
            for name, end in (("inside", self.customers), ("outside", self.internet)):
                self.link(f"{name}0", name, "wire", end)
            for number, server in self.servers.items():
                for name in ("inside", "outside", "sync"):
                    self.link(f"{name}{number}", name, name, server)
                ip(f"link set sync{number} mtu {SYNC_MTU}")
        for server in self.servers.values():
            with server:
                ip(f"link set sync mtu {SYNC_MTU}")
                for name in ("inside", "outside", "sync"):
                    ip(f"link set {name} up")
        with self.customers:
            ip("link set wire up")
            for address in CUSTOMERS:
                ip(f"address add {address}/24 dev wire")
        with self.internet:
            ip("link set wire up")
            ip(f"address add {INTERNET}/24 dev wire")

    @staticmethod
    def link(name, switch, other, namespace):
        ip(f"link add {name} type veth peer name {other} netns {namespace.path}")
        ip(f"link set {name} master {switch} up")

    def cut(self, number, is_cut=True):
        """Cuts a server off from the others."""
        with self.servers[number]:
            ip(f"link set sync {'down' if is_cut else 'up'}")

    def close(self):
        for namespace in (self.customers, self.internet, self.switch, *self.servers.values()):
            namespace.close()


def ports(number, kernel=False, shared="", inside=""):
    """Returns the ports of a server. `kernel`: with the kernel's interfaces of examples/pair.toml; `shared`: the first address of
    the port `inside`, which all servers have; `inside`: more keys of that port."""
    text = ""
    for name, address, beside in (("outside", f"198.51.100.{1 + number}", "mr-wan"), ("inside", f"10.0.0.{250 + number}", "mr-lan"),
                                  ("sync", f"10.9.0.{number}", "")):
        addresses = f'"{shared}/32", "{address}/24"' if shared and name == "inside" else f'"{address}/24"'
        text += f'[[port]]\nname = "{name}"\ndevice = "af_packet:{name}"\naddresses = [{addresses}]\n'
        text += inside if name == "inside" else ""
        if kernel and beside:
            text += f'kernel = "{beside}"\n'
    return text


class ServersCase(Live):
    COUNT = 2
    WORKERS = 1
    ports_differ = {}  # by keyword of `ports`

    def setUp(self):
        super().setUp()
        self.network_ = ServersNetwork(self.COUNT)
        self.addCleanup(self.network_.close)
        self.key = self.write("key", "ab" * 32)
        os.chmod(self.key, 0o600)
        self.processes, self.texts = {}, {}
        self.addCleanup(self.stop_all)

    def others(self, number):
        """Returns the part of a server's configuration that names the other ones."""
        raise NotImplementedError

    def serve(self, number, text, *arguments, others=None, kernel=False):
        """Starts a server. Returns what it said."""
        text = f"workers = {self.WORKERS}\n" + text + ports(number, kernel, **self.ports_differ) + (others or self.others(number))
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

    def stop_all(self):
        for number in list(self.processes):
            self.kill(number)

    def ask_server(self, number, what, body=None, status=200):
        method, path = what.split()
        with contextlib.closing(Connection(self.path(f"c{number}"))) as connection:
            connection.request(method, path, body=body, headers={"Connection": "close"})
            answer = connection.getresponse()
            body = answer.read().decode()
        self.assertEqual(answer.status, status, body)
        if answer.getheader("Content-Type") == "application/x-ndjson":
            return [json.loads(line) for line in body.splitlines()]
        return json.loads(body)

    def connections(self, number):
        return {(c["source"], c["source_port"], c["destination"], c["protocol"]): c["state"]
                for c in self.ask_server(number, "GET /connections")}

    def echo(self, port=7):
        """Starts a server in the internet that answers each line with its customer's address and port in front."""
        listening = self.socket_in(self.network_.internet, socket.AF_INET, socket.SOCK_STREAM)
        listening.settimeout(None)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((INTERNET, port))
        listening.listen(1000)

        def serve(accepted, sender):
            with accepted, accepted.makefile("rb") as lines, contextlib.suppress(OSError):
                for line in lines:
                    accepted.sendall(f"{sender[0]}:{sender[1]} ".encode() + line)

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
        client.sendall(data + b"\n")
        got = b""
        while not got.endswith(data + b"\n"):
            more = client.recv(65536)
            if not more:
                raise ConnectionError("the connection has ended")
            got += more
        return got.partition(b" ")[0].decode()
