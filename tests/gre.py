"""The customers' ends of GRE tunnels (RFC 2784, RFC 2890), for kernels without GRE: a thread wraps what a home's tun sends, and
unwraps what comes back."""

import fcntl
import os
import socket
import struct
import threading

from namespaces import Namespace, ip

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000  # of linux/if_tun.h
GRE, IPV4 = 47, 0x0800
_KEY = 0x2000


def header(key=None):
    return struct.pack("!HH", 0 if key is None else _KEY, IPV4) + (b"" if key is None else struct.pack("!I", key))


def unwrapped(packet):
    """Returns the far end, the key and the inner packet of an IPv4 packet with GRE."""
    at = (packet[0] & 15) * 4
    flags, kind = struct.unpack_from("!HH", packet, at)
    assert kind == IPV4 and flags & ~_KEY == 0, packet.hex()
    key = struct.unpack_from("!I", packet, at + 4)[0] if flags & _KEY else None
    return socket.inet_ntoa(packet[16:20]), key, packet[at + (8 if flags & _KEY else 4):]


class Home:
    """A customer's network: a namespace with one host, whose default route is the tunnel."""

    def __init__(self, address, mtu=1476):
        self.address = address
        self.namespace = Namespace()
        with self.namespace:
            self.tun = os.open("/dev/net/tun", os.O_RDWR)
            fcntl.ioctl(self.tun, TUNSETIFF, struct.pack("16sH22x", b"gre", IFF_TUN | IFF_NO_PI))
            ip("link set lo up")
            ip(f"link set gre mtu {mtu} up")
            ip(f"address add {address}/32 dev gre")
            ip("route add default dev gre")


class Tunnels:
    """The far ends of tunnels, in the namespace `access`. `near` is the address where millrace ends them. `homes` are by
    far end and key."""

    def __init__(self, access, near, homes):
        self.near, self.homes = near, homes
        self.received = []  # outer packets, as they came
        with access:
            self._in = socket.socket(socket.AF_INET, socket.SOCK_RAW, GRE)
            self._out = {far: self._bound(far) for far, _ in homes}
        self._threads = [threading.Thread(target=self._unwrap, daemon=True)]
        for (far, key), home in homes.items():
            self._threads.append(threading.Thread(target=self._wrap, args=(far, key, home), daemon=True))
        self._ended = False
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _bound(far):
        made = socket.socket(socket.AF_INET, socket.SOCK_RAW, GRE)
        made.bind((far, 0))
        return made

    def send(self, far, data):
        """Sends an outer packet from a far end: `data` begins with the GRE header."""
        self._out[far].sendto(data, (self.near, 0))

    def _wrap(self, far, key, home):
        while not self._ended:
            packet = os.read(home.tun, 65536)
            if packet[0] >> 4 == 4 and not self._ended:
                self.send(far, header(key) + packet)

    def _unwrap(self):
        self._in.settimeout(0.1)
        while not self._ended:
            try:
                packet = self._in.recv(65536)
            except TimeoutError:
                continue
            self.received.append(packet)
            far, key, inner = unwrapped(packet)
            if (far, key) in self.homes:
                os.write(self.homes[far, key].tun, inner)

    def close(self):
        """Ends the threads. A thread that waits for a home's packets ends with this process."""
        self._ended = True
        self._threads[0].join()
        for made in (self._in, *self._out.values()):
            made.close()
