"""Reads pcap and pcapng files and writes pcap, with the standard library alone.

The module shares no code with millrace or libpcap, so that it can judge their output. A packet is
a tuple (time in ns, length on the wire, captured bytes). A packet whose link type is not the `link_type`
of its capture has its own link type as the attribute `link`.
"""

import mmap
import os
import struct

# LINKTYPE_* values in the header of a file.
ETHERNET, RAW_OLD, RAW, SLL, IPV4, IPV6, SLL2 = 1, 12, 101, 113, 228, 229, 276

SECOND = 1_000_000_000
NO_TIME = -1  # the time of a pcap record whose fraction is a second or more, which is not valid
_MAX_SNAPLEN = 262_144

# Magic number: (byte order, ns in a unit of the fraction, bytes of a record header)
_PCAP = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000, 16),
    b"\xa1\xb2\xc3\xd4": (">", 1000, 16),
    b"\x4d\x3c\xb2\xa1": ("<", 1, 16),
    b"\xa1\xb2\x3c\x4d": (">", 1, 16),
    b"\x34\xcd\xb2\xa1": ("<", 1000, 24),  # Kuznetzov's variant, with an interface behind the lengths
    b"\xa1\xb2\xcd\x34": (">", 1000, 24),
}
_SECTION, _INTERFACE, _OLD, _SIMPLE, _ENHANCED = 0x0A0D0D0A, 1, 2, 3, 6
_IF_TSRESOL, _IF_TSOFFSET = 9, 14


class NotACapture(Exception):
    pass


class OfLink(tuple):
    """A packet with a link type of its own."""


class Capture:
    """An open capture. Iterating over it yields its packets up to the first damage. `link_type` is the link
    type of a pcap file, or of a pcapng file's first packet, or of its first interface if it has no packet.
    `whole` is True once a pcapng file was read to its end without damage."""

    whole = None

    def link_of(self, packet):
        return getattr(packet, "link", self.link_type)

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < 24:
                raise NotACapture(f"{path}: too short for a capture")
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        magic = self._data[:4]
        if magic in _PCAP:
            self._order, self._unit, self._record = _PCAP[magic]
            snaplen, link = struct.unpack_from(self._order + "II", self._data, 16)
            self.link_type = link & 0x0FFFFFFF
            self._snaplen = snaplen if 0 < snaplen <= _MAX_SNAPLEN else _MAX_SNAPLEN
            self._packets = self._pcap
        elif magic == b"\x0a\x0d\x0d\x0a":
            self.link_type = None
            for packet in self._pcapng():
                self.link_type = packet.link
                break
            if self.link_type is None:
                raise NotACapture(f"{path}: pcapng without an interface")
            self._packets = self._plain
        else:
            raise NotACapture(f"{path}: neither pcap nor pcapng")

    def __iter__(self):
        return self._packets()

    def _pcap(self):
        data, unit, header, snaplen = self._data, self._unit, self._record, self._snaplen
        unpack = struct.Struct(self._order + "IIII").unpack_from
        at, end = 24, len(data)
        while at + header <= end:
            seconds, fraction, captured, wire = unpack(data, at)
            at += header
            if at + captured > end:
                return
            packet = data[at : at + min(captured, snaplen)]
            fraction *= unit
            yield seconds * SECOND + fraction if fraction < SECOND else NO_TIME, wire, packet
            at += captured

    def _plain(self):
        for packet in self._pcapng():
            yield packet if packet.link != self.link_type else tuple(packet)

    def _pcapng(self):
        """Yields the packets of all sections and all interfaces."""
        data, at, order, interfaces, time = self._data, 0, "<", [], 0
        self.whole = False
        while at + 12 <= len(data):
            if data[at : at + 4] == b"\x0a\x0d\x0d\x0a":
                order = "<" if data[at + 8 : at + 12] == b"\x4d\x3c\x2b\x1a" else ">"
                interfaces = []
            kind, length = struct.unpack_from(order + "II", data, at)
            if length < 12 or length % 4 or at + length > len(data):
                return
            body = at + 8
            number = captured = wire = start = 0
            if kind == _INTERFACE:
                interfaces.append(self._interface(order, body, at + length - 4))
                if self.link_type is None:
                    self.link_type = interfaces[-1][0]
            elif kind in (_ENHANCED, _OLD):
                form = "IIIII" if kind == _ENHANCED else "HxxIIII"
                number, high, low, captured, wire = struct.unpack_from(order + form, data, body)
                if number >= len(interfaces) or captured > length - 32:
                    return
                _, _, per_second, offset = interfaces[number]
                time = ((high << 32) | low) * SECOND // per_second + offset * SECOND
                start = body + 20
            elif kind == _SIMPLE:
                if not interfaces:
                    return
                (wire,) = struct.unpack_from(order + "I", data, body)
                captured = min(wire, interfaces[0][1], length - 16)
                start = body + 4
            if start:
                packet = OfLink((time, wire, data[start : start + captured]))
                packet.link = interfaces[number][0]
                yield packet
            at += length
        self.whole = at == len(data)

    def _interface(self, order, at, end):
        link, _, snaplen = struct.unpack_from(order + "HHI", self._data, at)
        per_second, offset = 1_000_000, 0
        at += 8
        while at + 4 <= end:
            option, length = struct.unpack_from(order + "HH", self._data, at)
            value = self._data[at + 4 : at + 4 + length]
            if option == 0:
                break
            if option == _IF_TSRESOL and length == 1:
                per_second = 2 ** (value[0] & 0x7F) if value[0] & 0x80 else 10 ** value[0]
            elif option == _IF_TSOFFSET and length == 8:
                (offset,) = struct.unpack(order + "q", value)
            at += 4 + (length + 3 & ~3)
        return link, snaplen if 0 < snaplen <= _MAX_SNAPLEN else _MAX_SNAPLEN, per_second, offset


def write(path, link_type, packets, nanoseconds=True):
    """Writes `packets` as a little-endian pcap file."""
    unit = 1 if nanoseconds else 1000
    magic = 0xA1B23C4D if nanoseconds else 0xA1B2C3D4
    pack = struct.Struct("<IIII").pack
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", magic, 2, 4, 0, 0, _MAX_SNAPLEN, link_type))
        for time, wire, data in packets:
            file.write(pack(time // SECOND, time % SECOND // unit, len(data), wire))
            file.write(data)
