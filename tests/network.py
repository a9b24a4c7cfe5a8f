"""Networks in which `millrace run` is tested and measured: network namespaces of a client, millrace and two servers.

    client ─ veth or tap ─ millrace ─ veth ─ servers (two addresses of one namespace)

Or the client, millrace and the servers are on one link, as behind a switch (`OneLink`).

Needs root and ip (iproute2).
"""

import contextlib
import hashlib
import socket
import threading

from namespaces import Namespace, ip, set_sysctls

ADDRESSES = {
    4: {
        "client": "198.51.100.1", "outside": "198.51.100.2", "inside": "10.0.0.254", "service": "203.0.113.10",
        "servers": ["10.0.0.1", "10.0.0.2"], "bits": 24, "services": "203.0.113.0/24", "unspecified": "0.0.0.0",
    },
    6: {
        "client": "2001:db8::1", "outside": "2001:db8::2", "inside": "fd00::fe", "service": "2001:db8:1::10",
        "servers": ["fd00::1", "fd00::2"], "bits": 64, "services": "2001:db8:1::/64", "unspecified": "::",
    },
}
FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
PORT, SERVER_PORT = 80, 8080


def ports(outside="af_packet:outside", inside="af_packet:inside", outside_keys=""):
    """Returns the ports of millrace in a `Network`, with addresses of both families. `outside_keys`: further keys of the first, a line each."""
    text = ""
    for name, device, keys in (("outside", outside, outside_keys), ("inside", inside, "")):
        addresses = ", ".join(f'"{a[name]}/{a["bits"]}"' for a in ADDRESSES.values())
        text += f'[[port]]\nname = "{name}"\ndevice = "{device}"\naddresses = [{addresses}]\n{keys}'
    return text


def configuration(outside, inside, extra=""):
    text = f"""workers = 2
[table]
capacity = 20000
{ports(outside, inside)}"""
    for a in ADDRESSES.values():
        for protocol in ("tcp", "udp"):
            backends = ", ".join(f'{{ address = "{s}", port = {SERVER_PORT} }}' for s in a["servers"])
            text += f"""[[service]]
address = "{a['service']}"
port = {PORT}
protocol = "{protocol}"
backends = [{backends}]
"""
    return text + extra


class Network:
    """The namespaces and the links between them. `to_client`: "veth"; "tap", which millrace makes; or "kept tap",
    which is there before millrace starts: the client is then in millrace's namespace."""

    def __init__(self, to_client="veth", mtu=1500):
        self.middle, self.servers = Namespace(), Namespace()
        self.client = self.middle if to_client == "kept tap" else Namespace()
        with self.middle:
            if to_client == "kept tap":
                ip("tuntap add wire mode tap multi_queue")
        if to_client == "veth":
            self.link("outside", self.client, mtu)
        self.link("inside", self.servers, mtu)
        with self.servers:
            ip("link set lo up")
            ip("link set wire up")
            for a in ADDRESSES.values():
                for server in a["servers"]:
                    ip(f"address add {server}/{a['bits']} dev wire nodad")
                ip(f"route add {a['client']} via {a['inside']}")
        if to_client != "tap":
            self.connect_client()

    def link(self, name, end, mtu):
        """Links the interface `name` of millrace's namespace to `wire` of another one."""
        with self.middle:
            ip(f"link add {name} mtu {mtu} type veth peer name wire mtu {mtu} netns {end.path}")
            ip(f"link set {name} up")

    def connect_client(self):
        with self.client:
            ip("link set lo up")
            ip("link set wire up")
            for a in ADDRESSES.values():
                ip(f"address add {a['client']}/{a['bits']} dev wire nodad")
                ip(f"route add {a['services']} via {a['outside']}")
                ip(f"route add {a['inside']} via {a['outside']}")
                ip(f"route add {a['servers'][0]} via {a['outside']}")

    def server_of(self, _family, _address):
        return self.servers

    def close(self):
        for namespace in {self.client, self.middle, self.servers}:
            namespace.close()


class OneLink:
    """A client, millrace and two servers on one bridge; millrace has one port. `direct`: each server has the service's
    addresses on its loopback device without answering for them on the link, and replies directly to clients (direct server
    return). Otherwise replies go through millrace."""

    QUIET = {"ipv4/conf/all/arp_ignore": 1, "ipv4/conf/all/arp_announce": 2}

    def __init__(self, direct=True, mtu=1500):
        self.direct = direct
        self.switch, self.client, self.middle, *self.each_server = self._all = [Namespace() for _ in range(5)]
        with self.switch:
            ip("link add switch type bridge")
            ip("link set switch up")
            for n, namespace in enumerate(self._all[1:]):
                ip(f"link add port{n} mtu {mtu} type veth peer name wire mtu {mtu} netns {namespace.path}")
                ip(f"link set port{n} master switch up")
        with self.middle:
            ip("link set wire up")
        with self.client:
            ip("link set wire up")
            for a in ADDRESSES.values():
                ip(f"address add {a['client']}/{a['bits']} dev wire nodad")
                for other in ("services", "inside"):
                    ip(f"route add {a[other]} dev wire")
        for n, namespace in enumerate(self.each_server):
            with namespace:
                set_sysctls(self.QUIET)
                ip("link set lo up")
                ip("link set wire up")
                for a in ADDRESSES.values():
                    ip(f"address add {a['servers'][n]}/{a['bits']} dev wire nodad")
                    if direct:
                        ip(f"address add {a['service']} dev lo nodad")
                    ip(f"route add {a['client']} " + ("dev wire" if direct else f"via {a['inside']}"))

    def server_of(self, family, address):
        return self.each_server[ADDRESSES[family]["servers"].index(address)]

    def close(self):
        for namespace in self._all:
            namespace.close()


class Servers:
    """The servers of both families. Over TCP a server answers with its address and as many bytes as the client asks for.
    Over UDP it echoes each datagram, with its own address in front."""

    def __init__(self, network):
        self._network = network
        self._listening = {}
        for family, a in ADDRESSES.items():
            for address in a["servers"]:
                self.start(family, address)

    def start(self, family, address):
        """Starts one server. It listens at the service's address if it replies directly to clients."""
        a = ADDRESSES[family]
        is_direct = getattr(self._network, "direct", False)
        end = (a["service"], PORT) if is_direct else (address, SERVER_PORT)
        namespace = self._network.server_of(family, address)
        with namespace:
            streams_at = ("", PORT) if is_direct else end  # "": the server's own address, too
            stream = socket.create_server(streams_at, family=FAMILIES[family], backlog=256)
            datagrams = socket.socket(FAMILIES[family], socket.SOCK_DGRAM)
            datagrams.bind(end)
        self._listening[family, address] = [stream, datagrams]
        threading.Thread(target=self._accept, args=(stream, address), daemon=True).start()
        threading.Thread(target=self._echo, args=(datagrams, address), daemon=True).start()

    def datagrams(self, family, address):
        return self._listening[family, address][1]

    def stop(self, family, address):
        for listening in self._listening.pop((family, address)):
            try:
                listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits on the socket
            except OSError:
                pass
            listening.close()

    def _accept(self, listening, address):
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection, address), daemon=True).start()

    @staticmethod
    def _answer(connection, address):
        with contextlib.suppress(ConnectionError), connection, connection.makefile("rwb") as stream:
            for line in stream:
                stream.write(f"{address}\n".encode() + payload(int(line)))
                stream.flush()

    @staticmethod
    def _echo(listening, address):
        while True:
            try:
                data, sender = listening.recvfrom(65536)
                if sender is None:  # the socket was shut down
                    return
                listening.sendto(f"{address} ".encode() + data, sender)
            except OSError:
                return

    def close(self):
        for family, address in list(self._listening):
            self.stop(family, address)


def payload(size):
    """Returns the first `size` bytes of a fixed pseudo-random sequence."""
    return hashlib.shake_128().digest(size)


class Client:
    """A TCP connection to the service. `source`: the client's address, if it has several."""

    def __init__(self, network, family, source=""):
        with network.client:
            self._socket = socket.socket(FAMILIES[family])
        self._socket.settimeout(20)
        self._socket.bind((source, 0))
        self._socket.connect((ADDRESSES[family]["service"], PORT))
        self._stream = self._socket.makefile("rwb")

    def get(self, size):
        """Asks for `size` bytes, and checks them. Returns the address of the server that answered."""
        self._stream.write(f"{size}\n".encode())
        self._stream.flush()
        address = self._stream.readline().decode().strip()
        got = self._stream.read(size)
        if got != payload(size):
            raise AssertionError(f"{size} bytes of the known sequence must come, but {len(got)} came, or wrong bytes")
        return address

    def close(self):
        with contextlib.suppress(OSError):  # closing flushes, which fails on a reset connection
            self._stream.close()
        self._socket.close()
