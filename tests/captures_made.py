"""Makes captures for the tests, byte by byte: pcapng with any interfaces, in either byte order, and pcap. Needs only Python's
standard library."""

import socket
import struct

ETHERNET, RAW, SLL, IPV4, SLL2, WLAN, NULL = 1, 101, 113, 228, 276, 105, 0


class Pcapng:
    """A pcapng file in the making. A method that is named after a kind of block appends such a block to `data`, the file so far."""

    def __init__(self, order="<"):
        self.order, self.data = order, b""
        self.section()

    def block(self, kind, body):
        body += bytes(-len(body) % 4)
        length = self.pack("I", len(body) + 12)
        self.data += self.pack("I", kind) + length + body + length
        return self

    def pack(self, form, *values):
        return struct.pack(self.order + form, *values)

    def option(self, code, value):
        return self.pack("HH", code, len(value)) + value + bytes(-len(value) % 4)

    def section(self, order=None):
        self.order = order or self.order
        return self.block(0x0A0D0D0A, self.pack("IHHq", 0x1A2B3C4D, 1, 0, -1))

    def interface(self, link=ETHERNET, snap=262144, resolution=None, offset=None):
        options = b""
        if resolution is not None:
            options += self.option(9, bytes([resolution]))
        if offset is not None:
            options += self.option(14, self.pack("q", offset))
        return self.block(1, self.pack("HHI", link, 0, snap) + (options and options + self.pack("I", 0)))

    def packet(self, interface, data, time=1_700_000_000_000_000, wire=None):
        """Appends an enhanced packet block; `time` is in the interface's units."""
        return self.block(6, self.pack("IIIII", interface, time >> 32, time & 0xFFFFFFFF, len(data), wire or len(data)) + data)

    def old_packet(self, interface, data, time=1_700_000_000_000_000):
        return self.block(2, self.pack("HHIIII", interface, 0, time >> 32, time & 0xFFFFFFFF, len(data), len(data)) + data)

    def simple(self, data, wire=None):
        return self.block(3, self.pack("I", wire or len(data)) + data)


def pcap(packets, link=ETHERNET, nanoseconds=False):
    """Returns the bytes of a pcap file. `packets` are pairs: a time, in ns if `nanoseconds` and else in us, and the packet's bytes."""
    per_second = 1_000_000_000 if nanoseconds else 1_000_000
    data = struct.pack("<IHHiIII", 0xA1B23C4D if nanoseconds else 0xA1B2C3D4, 2, 4, 0, 0, 262144, link)
    for time, packet in packets:
        data += struct.pack("<IIII", time // per_second, time % per_second, len(packet), len(packet)) + packet
    return data


def _sum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def udp(client, server="203.0.113.10", port=53, size=8):
    """Returns a UDP datagram over IPv4 from the client with the number `client`."""
    source = socket.inet_aton(f"198.51.{client >> 8 & 0xFF}.{client & 0xFF}")
    header = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 28 + size, client & 0xFFFF, 0, 64, 17, 0, source, socket.inet_aton(server))
    return header[:10] + struct.pack(">H", _sum(header)) + header[12:] + struct.pack(">HHHH", 1024 + client % 60000, port, 8 + size, 0) + bytes(size)


def framed(link, packet):
    """Returns the IPv4 packet in a frame of the link type `link`."""
    if link == ETHERNET:
        return bytes.fromhex("020000000002020000000001") + b"\x08\x00" + packet
    if link == SLL:
        return struct.pack(">HHH8sH", 0, 1, 6, b"\x02\0\0\0\0\x01\0\0", 0x0800) + packet
    if link == SLL2:
        return struct.pack(">HHIHBB8s", 0x0800, 0, 1, 1, 0, 6, b"\x02\0\0\0\0\x01\0\0") + packet
    return packet
