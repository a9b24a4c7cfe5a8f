"""TCP conversations for kernel_firewall_test.py.

A conversation is a list of packets: the sender (`>` the client, `<` the server), the flags, the sequence number, the
acknowledged number (both relative to the first number of the side whose bytes they count), and the number of bytes of data.
Then words may follow: `win=`, the window; `scale=`, the window scale that a SYN offers; `sack`, SACK is permitted;
`bad`, a wrong checksum; `port=`, another server port than 80; `end=`, a SACK block that ends there; `short`, a data offset
that is too small; `offset`, one beyond the packet's end; `cut`, ten bytes of the header; `ack=0`, an acknowledged number of 0.
"""

import struct
from typing import NamedTuple

from firewall_packets import MASK, tcp, with_header_checksum

CLIENT_PORT, OPEN_PORT, DENIED_PORT, REJECTED_PORT = 40000, 80, 81, 82
FIRST = (100_000, 5_000_000)  # the first sequence numbers of client and server
WRAPPED = (0xFFFFFF00, 0xFFFFFE00)  # first numbers close below 2^32


class Segment(NamedTuple):
    text: str
    by_client: bool
    flags: str
    numbers: tuple  # seq, ack, bytes of data
    words: dict


def read(text):
    head, *rest = text.split()
    numbers = [int(word) for word in rest if word.lstrip("-").isdigit()]
    words = dict((word.partition("=")[0], word.partition("=")[2]) for word in rest if not word.lstrip("-").isdigit())
    return Segment(text, head[0] == ">", head[1:].strip("-"), (*numbers, 0, 0, 0)[:3], words)


def options_of(words):
    options = b""
    if "scale" in words:
        options += bytes((3, 3, int(words["scale"]), 1))
    if "sack" in words:
        options += bytes((4, 2, 1, 1))
    return options


def packet_of(text, hosts, first=FIRST):
    """Returns the packet, from its IP header on, that a line of a conversation describes."""
    segment = read(text)
    words = segment.words
    own, other = first if segment.by_client else first[::-1]
    seq, ack, size = segment.numbers
    port = int(words.get("port", OPEN_PORT))
    ports = (CLIENT_PORT, port) if segment.by_client else (port, CLIENT_PORT)
    options = options_of(words)
    if "end" in words:
        end = other + int(words["end"]) & MASK
        options += b"\1\1" + struct.pack(">BBII", 5, 10, end - 10 & MASK, end)
    data = bytes((seq + i) & 0xFF for i in range(size))
    acknowledged = 0 if words.get("ack") == "0" else other + ack
    packet = tcp(*hosts.of(segment.by_client), ports, segment.flags, own + seq, acknowledged if "A" in segment.flags else 0, data,
                 int(words.get("win", 8192)), options, is_bad="bad" in words)
    if "short" in words or "offset" in words:
        at = (20 if hosts.family == 4 else 40) + 12
        packet = packet[:at] + bytes((0x40 if "short" in words else 0xF0,)) + packet[at + 1 :]
    if "cut" in words:
        body = packet[:30] if hosts.family == 4 else packet[:50]
        packet = with_header_checksum(body[:2] + b"\0\x1e" + body[4:]) if hosts.family == 4 else body[:4] + b"\0\x0a" + body[6:]
    return packet


OPEN = [">S 0", "<SA 0 1", ">A 1 1"]
SCALED = [">S 0 scale=7 win=64000", "<SA 0 1 scale=8 win=64000", ">A 1 1 win=500"]
SCALED_SACK = [">S 0 scale=7 sack win=64000", "<SA 0 1 scale=8 sack win=64000", ">A 1 1 win=500", "<A 1 1 win=500"]
WIDE = [">S 0 scale=14 win=65535", "<SA 0 1 scale=14 win=65535", ">A 1 1 win=65535", "<A 1 1 win=65535"]
BOTH = [*OPEN, ">A 1 1 100", "<A 1 101 200", ">A 101 201"]
CLIENT_FIN = [*BOTH, ">FA 101 201", "<A 201 102"]
CLOSED = [*CLIENT_FIN, "<FA 201 102", ">A 102 202"]
SERVER_CLOSED = [*BOTH, "<FA 201 101", ">A 101 202", ">FA 101 202", "<A 202 102"]
RESET = [*BOTH, ">R 101"]
SERVER_RESET = [*BOTH, "<R 201"]
PROBES = [">A 101 201 10", "<A 201 111 10"]  # data both ways after whatever came before
AGAIN = [">S 900000", "<SA 700000 900001", ">A 900001 700001", ">A 900001 700001 10", "<A 700001 900011 10"]

CONVERSATIONS = {
    "open, data, close by the client": [*CLOSED],
    "open, data, close by the server": SERVER_CLOSED,
    "open, data, both FINs at once": [*BOTH, ">FA 101 201", "<FA 201 101", ">A 102 202", "<A 202 102"],
    "open, data, FIN with data": [*BOTH, ">FA 101 201 10", "<FA 201 112 10", ">A 112 212"],
    "half closed: data goes on": [*CLIENT_FIN, "<A 201 102 500", ">A 102 701", "<FA 701 102", ">A 102 702"],
    "data behind the FIN": [*CLIENT_FIN, ">A 102 201 10"],
    "the FIN again": [*CLIENT_FIN, ">FA 101 201", "<A 201 102", "<FA 201 102", "<FA 201 102", ">A 102 202"],
    "packets in TIME_WAIT": [*CLOSED, "<FA 201 102", ">A 102 202", "<A 202 102", "<A 202 102 50", ">R 102"],
    "close by a RST of the client": [*RESET, *PROBES],
    "close by a RST of the server": [*SERVER_RESET, *PROBES],
    "close by a RST with an ACK": [*BOTH, ">RA 101 201", *PROBES],
    "a RST after the client's FIN": [*CLIENT_FIN, "<R 201", ">R 102", "<A 201 102 20"],
    "the SYN is refused": [">S 0", "<RA 0 1", ">S 0", "<RA 0 1"],
    "the SYN is refused, and something follows": [">S 0", "<RA 0 1", ">A 1 1", "<A 1 1"],
    "the SYN is refused with sequence number 0": [">S 0", f"<RA {-FIRST[1]} 1", ">S 0"],
    "a RST within data that nobody has acknowledged": [*BOTH, ">A 101 201 100", ">R 151", ">A 201 201 10", "<A 201 211"],
    "a RST at the byte that is acknowledged last": [*BOTH, ">A 101 201 100", ">R 101", ">A 201 201 10", "<A 201 211"],
    "a RST behind data that nobody has acknowledged": [*BOTH, ">A 101 201 100", ">R 201", ">A 201 201 10", "<A 201 211"],
    "a RST with data": [*BOTH, ">R 101 0 10", *PROBES],
    "a RST with an acknowledgement of 0": [*BOTH, ">RA 101 0 0 ack=0", *PROBES],
    "half open, RST of the server": [">S 0", "<SA 0 1", "<R 1", ">A 1 1"],
    "a RST of the server, acknowledging nothing": [*BOTH, "<RA 201 101", *PROBES],
    "a RST that acknowledges another SYN": [">S 0", "<RA 0 77", "<SA 0 1", ">A 1 1"],
    "the SYN is answered by a bare RST": [">S 0", "<R 0", "<SA 0 1"],
    "half open, then the SYN again": [">S 0", ">S 0", "<SA 0 1", ">S 0", "<SA 0 1", ">A 1 1", ">A 1 1 10", "<A 1 11 10"],
    "half open, then the SYN and ACK again": [">S 0", "<SA 0 1", "<SA 0 1", ">A 1 1", "<SA 0 1", ">A 1 1", ">A 1 1 10"],
    "half open, data instead of the ACK": [">S 0", "<SA 0 1", ">A 1 1 10", "<A 1 11"],
    "half open, an ACK of nothing sent": [">S 0", "<SA 0 1", ">A 1 3000", ">A 1 1"],
    "half open, an ACK far away": [">S 0", "<SA 0 1", ">A 1 2000000", ">A 1 1"],
    "half open, data of the server": [">S 0", "<SA 0 1", "<A 1 1 100", ">A 1 101"],
    "half open, FIN of the client": [">S 0", "<SA 0 1", ">FA 1 1", "<A 1 2"],
    "half open, RST of the client": [">S 0", "<SA 0 1", ">R 1", "<SA 0 1", ">A 1 1"],
    "half open, another SYN": [">S 0", ">S 5000", "<SA 0 5001", ">A 5001 1"],
    "half open, an earlier SYN": [">S 0", ">S -5000", "<SA 0 -4999", ">A -4999 1"],
    "a SYN, then an ACK without an answer": [">S 0", ">A 1 1", "<SA 0 1"],
    "a SYN, then data without an answer": [">S 0", ">A 1 1 10", "<SA 0 1"],
    "a SYN, then the client's FIN": [">S 0", ">FA 1 1", "<SA 0 1"],
    "a SYN, then the client's RST": [">S 0", ">R 1", "<SA 0 1"],
    "a SYN, then an ACK of the server": [">S 0", "<A 77 99", ">R 99", ">S 0", "<SA 0 1", ">A 1 1"],
    "a SYN, then a good ACK of the server": [">S 0", "<A 1 1", ">A 1 1"],
    "a SYN, then data of the server": [">S 0", "<A 1 1 100", ">A 1 101", "<A 101 1 10"],
    "a SYN, then a FIN of the server": [">S 0", "<FA 1 1", ">A 1 2"],
    "a SYN and ACK that acknowledges too much": [">S 0", "<SA 0 2", ">R 2", "<SA 0 1", ">A 1 1"],
    "a SYN and ACK that acknowledges far too much": [">S 0", "<SA 0 200000", "<SA 0 1", ">A 1 1"],
    "a SYN and ACK that acknowledges too little": [">S 0", "<SA 0 0", "<SA 0 1", ">A 1 1"],
    "a SYN with data": [">S 0 0 20", "<SA 0 1", ">A 1 1 20", "<A 1 21"],
    "a SYN with data, all acknowledged": [">S 0 0 20", "<SA 0 21", ">A 21 1", "<A 1 21 10"],
    "a SYN with ECN": [">SEC 0", "<SAE 0 1", ">A 1 1", ">A 1 1 10"],
    "simultaneous open": [">S 0", "<S 0", ">SA 0 1", "<SA 0 1", ">A 1 1 10", "<A 1 11 10"],
    "simultaneous open, one SYN and ACK": [">S 0", "<S 0", "<SA 0 1", ">A 1 1", "<A 1 1 10"],
    "simultaneous open, then ACKs": [">S 0", "<S 0", ">SA 0 1", "<A 1 1", ">A 1 1 10"],
    "first seen: SYN and ACK": [">SA 0 1", "<A 1 1"],
    "first seen: SYN and ACK of the server": ["<SA 0 1", ">A 1 1"],
    "first seen: ACK": [">A 1 1", "<A 1 1", ">A 1 1 10", "<A 1 11 10"],
    "first seen: data": [">A 1 1 10", "<A 1 11 20", ">A 11 21 10"],
    "first seen: data of the server": ["<A 1 1 10", ">A 1 11 10", "<A 11 11"],
    "first seen: data, then its retransmission": [">A 1 1 10", ">A 1 1 10", "<A 1 11"],
    "first seen: data, then close": [">A 1 1 10", "<A 1 11 20", ">FA 11 21", "<FA 21 12", ">A 12 22"],
    "first seen: data, then a RST": [">A 1 1 10", "<A 1 11 20", ">R 11", "<A 21 11 5"],
    "first seen: data, no answer, then a SYN": [">A 1 1 10", ">S 900000", "<SA 700000 900001", ">A 900001 700001"],
    "first seen: data, then an ACK of bytes never sent": [">A 1 1 10", "<A 1 11 20", ">A 11 500", "<A 21 11"],
    "first seen: data, and the server is ahead": [">A 1 1 10", "<A 5001 11 20", ">A 11 5021"],
    "first seen: data, and the server acknowledges more": [">A 1 1 10", "<A 1 5011 20", ">A 5011 21 10"],
    "first seen: data, then data far above": [">A 1 1 10", "<A 1 11 20", ">A 2000000 21 10"],
    "first seen: FIN": [">FA 1 1", "<A 1 2"],
    "first seen: RST": [">R 1", "<A 1 1"],
    "first seen: RST and ACK": [">RA 1 1", "<A 1 1"],
    "first seen: data of the server, to a closed port": ["<A 1 1 10 port=81"],
    "first seen: ACK to a closed port": [">A 1 1 port=81", "<A 1 1 port=81"],
    "first seen: ACK to a rejected port": [">A 1 1 port=82"],
    "first seen: FIN to a rejected port": [">FA 1 1 port=82"],
    "first seen: RST to a rejected port": [">R 1 port=82"],
    "first seen: SYN and ACK to a rejected port": [">SA 0 1 port=82"],
    "to a closed port": [">S 0 port=81", ">S 0 port=81"],
    "to a rejected port": [">S 0 port=82", ">S 0 0 20 port=82", ">S 0 port=82 scale=7 sack"],
    "a SYN of the other side to the rejected port": ["<S 0 port=82"],
    "a SYN on a live connection": [*BOTH, ">S 900000", "<A 201 101", *PROBES],
    "a SYN on a live connection, answered": [*BOTH, *AGAIN],
    "a SYN on a live connection, refused": [*BOTH, ">S 900000", "<RA 0 900001", *PROBES],
    "a SYN on a live connection, reset after the challenge": [*BOTH, ">S 900000", "<A 201 101", ">R 101", ">S 900000", "<SA 700000 900001",
                                                              ">A 900001 700001"],
    "a SYN in the window of a live connection": [*BOTH, ">S 500", "<A 201 101", *PROBES],
    "a SYN of the server on a live connection": [*BOTH, "<S 900000", ">A 101 201", *PROBES],
    "a SYN and ACK on a live connection": [*BOTH, "<SA 0 1", *PROBES],
    "a SYN and ACK of the client on a live connection": [*BOTH, ">SA 0 1", *PROBES],
    "a SYN and ACK of other numbers on a live connection": [*BOTH, "<SA 700000 900001", *PROBES],
    "a new SYN after both FINs": [*CLOSED, *AGAIN],
    "a new SYN after the server's close": [*SERVER_CLOSED, *AGAIN],
    "a new SYN after the client's FIN": [*CLIENT_FIN, ">S 900000", "<A 201 102"],
    "a new SYN before the last ACK": [*CLIENT_FIN, "<FA 201 102", *AGAIN],
    "a new SYN after a RST": [*RESET, *AGAIN],
    "a new SYN after the server's RST": [*SERVER_RESET, *AGAIN],
    "a new SYN of the server after both FINs": [*CLOSED, "<S 900000"],
    "a SYN below the former numbers after both FINs": [*CLOSED, ">S -5000", "<SA 700000 -4999", ">A -4999 700001"],
    "zero window, probes": [*BOTH, "<A 201 101 win=0", ">A 101 201 1", "<A 201 101 win=0", ">A 100 201 1", "<A 201 101 win=5000",
                            ">A 101 201 500"],
    "more than a zero window": [*BOTH, "<A 201 101 win=0", ">A 101 201 1400"],
    "a zero window in SYN and ACK": [">S 0", "<SA 0 1 win=0", ">A 1 1", ">A 1 1 1", "<A 1 1 win=0", "<A 1 1 win=8000", ">A 1 1 100"],
    "keepalives": [*BOTH, ">A 100 201", "<A 201 101", ">A 100 201 1", "<A 201 101", "<A 200 101", ">A 101 201"],
    "keepalives with SACK": [*SCALED_SACK, ">A 0 1", "<A 1 1 end=1", ">A 0 1"],
    "retransmitted data": [*BOTH, ">A 1 201 100", ">A 1 1 100", "<A 1 101 200", "<A 1 1 200"],
    "retransmitted data of long ago": [
        *BOTH, *(line for n in range(0, 12_000, 1200) for line in (f">A {101 + n} 201 1200", f"<A 201 {1301 + n}")),
        ">A 1 1 100", "<A 1 1 200", "<A 201 12101"],
    "segments out of order": [*BOTH, ">A 301 201 100", ">A 101 201 100", ">A 201 201 100", "<A 201 401"],
    "a segment behind a gap is acknowledged": [*BOTH, ">A 5101 201 10", "<A 201 101", "<A 201 5111", ">A 5111 201 10", "<A 201 5121 10"],
    "gaps in both directions": [*BOTH, ">A 5101 201 10", "<A 5201 5111 10", ">A 5111 5211 10", "<A 5211 5121"],
    "the widest windows, segments half a window ahead": [
        *WIDE, ">A 500000001 1 10", "<A 1 500000011 win=65535", ">A 500000011 1 10", "<A 1 500000021 10"],
    "the widest windows, both sides ahead": [
        *WIDE, ">A 500000001 1 10", "<A 500000001 500000011 10", ">A 500000011 500000011 10", "<A 500000011 500000021"],
    "segments with gaps and SACK": [*SCALED_SACK, ">A 101 1 100", "<A 1 1 end=201", ">A 1 1 100", "<A 1 201"],
    "SACK of data never sent": [*SCALED_SACK, ">A 1 1 100", "<A 1 101 end=5001", "<A 1 101"],
    "SACK without permission, of data never sent": [*BOTH, "<A 201 101 end=5001", "<A 201 101"],
    "urgent data, push, ECN": [*BOTH, ">PA 101 201 10", ">UA 111 201 10", ">PUA 121 201 10", ">AEC 131 201 10", "<AE 201 141"],
}

# Numbers around each bound that the kernel has: sequence and acknowledged numbers, and windows.
BOUNDS = {
    # After BOTH each side has a window of 8192: the client may send up to 101 + 8192 = 8293, the server up to 201 + 8192.
    "data that begins {} above the window": lambda d: [*BOTH, f">A {8293 + d} 201 10", "<A 201 101 10", ">A 101 211 10"],
    "data of the server that begins {} above the window": lambda d: [*BOTH, f"<A {8393 + d} 101 10", ">A 101 201 10", "<A 201 111 10"],
    "an empty segment {} above the window": lambda d: [*BOTH, f">A {8293 + d} 201", *PROBES],
    "a FIN {} above the window": lambda d: [*BOTH, f">FA {8293 + d} 201", *PROBES],
    "an ACK of {} bytes never sent": lambda d: [*BOTH, f">A 101 {201 + d}", *PROBES],
    "data with an ACK of {} bytes never sent": lambda d: [*BOTH, f">A 101 {201 + d} 10", "<A 201 111 10"],
    "an ACK of the server of {} bytes never sent": lambda d: [*BOTH, f"<A 201 {101 + d}", *PROBES],
    "an ACK {} below what was sent": lambda d: [*BOTH, f">A 101 {201 - d} 10", "<A 201 111 10"],
    "data {} below what was sent": lambda d: [*BOTH, f">A {101 - d - 10} 201 10", *PROBES],
    "a RST {} above the next byte": lambda d: [*BOTH, f">R {101 + d}", *PROBES],
    "a RST of the server {} above the next byte": lambda d: [*BOTH, f"<R {201 + d}", *PROBES],
    "a RST {} below the next byte": lambda d: [*BOTH, f">R {101 - d}", *PROBES],
    "a RST with an ACK of {} bytes never sent": lambda d: [*BOTH, f">RA 101 {201 + d}", *PROBES],
    "data that begins within the window and ends {} above": lambda d: [*BOTH, f">A {8293 + d - 1000} 201 1000", "<A 201 101 10"],
}
DISTANCES = {
    "data that begins {} above the window": (-10, 0, 1, 8181, 8182, 100_000, 2_000_000),
    "data of the server that begins {} above the window": (0, 1, 100_000),
    "an empty segment {} above the window": (0, 1, 100_000),
    "a FIN {} above the window": (0, 1, 2_000_000),
    "an ACK of {} bytes never sent": (1, 8192, 70_000, 2_000_000),
    "data with an ACK of {} bytes never sent": (1, 8192, 2_000_000),
    "an ACK of the server of {} bytes never sent": (1, 2_000_000),
    "an ACK {} below what was sent": (1, 8192, 65_999, 66_000, 66_001, 2_000_000),
    "data {} below what was sent": (0, 8191, 8192, 8193, 100_000, 2_000_000),
    "a RST {} above the next byte": (1, 8192, 8193, 16_383, 16_384, 100_000),
    "a RST of the server {} above the next byte": (1, 8192, 8193),
    "a RST {} below the next byte": (1, 50, 8192, 100_000),
    "a RST with an ACK of {} bytes never sent": (1, 100_000),
    "data that begins within the window and ends {} above": (0, 1, 999),
}
# Windows of SCALED: the client's 500 << 7 = 64000, the server's 64000 until its first packet behind the SYN says more.
SCALED_BOUNDS = {
    "scaled: data that begins {} above the window of the SYN": (
        lambda d: [*SCALED, f">A {64001 + d} 1 10", "<A 1 1 10"], (0, 1, 63_989, 63_990)),
    "scaled: data that begins {} above the window": (
        lambda d: [*SCALED, "<A 1 1 win=500", f">A {128_001 + d} 1 10", "<A 1 1 10"], (-64_000, 0, 1, 127_989, 127_990, 2_000_000)),
    "scaled: data of the server that begins {} above the window": (
        lambda d: [*SCALED, f"<A {64001 + d} 1 10", ">A 1 1 10"], (0, 1, 2_000_000)),
    "scaled: data {} below what was sent": (
        lambda d: [*SCALED, "<A 1 1 win=500", ">A 1 1 10", "<A 1 11 win=500", f">A {11 - d - 10} 1 10", "<A 1 11 10"],
        (0, 63_990, 64_001, 2_000_000)),
    "scaled by one side only: data that begins {} above the window": (
        lambda d: [">S 0 scale=7 win=64000", "<SA 0 1 win=8000", ">A 1 1 win=64000", "<A 1 1 win=8000", f">A {8001 + d} 1 10", "<A 1 1 10"],
        (0, 1, 8000)),
}
FLAGS = {"none": "-", "FIN": "F", "SYN and FIN": "SF", "SYN and RST": "SR", "FIN and RST": "FR", "all": "FSRPAU", "PSH": "P", "URG": "U",
         "FIN, PSH, URG": "FPU", "SYN, FIN, ACK": "SFA", "SYN, RST, ACK": "SRA", "FIN, RST, ACK": "FRA", "SYN and PSH": "SP",
         "SYN and URG": "SU", "RST and PSH": "RP", "RST and URG": "RU", "RST, URG, ACK": "RUA", "SYN, URG, ACK": "SUA", "FIN, PSH, ACK": "FPA",
         "FIN, URG, ACK": "FUA"}


def whole():
    """Returns the conversations: name, lines, and the first sequence numbers."""
    table = [(name, lines, FIRST) for name, lines in CONVERSATIONS.items()]
    for name, distances in DISTANCES.items():
        table += [(name.format(d), BOUNDS[name](d), FIRST) for d in distances]
    for name, (lines, distances) in SCALED_BOUNDS.items():
        table += [(name.format(d), lines(d), FIRST) for d in distances]
    for name, flags in FLAGS.items():
        table.append((f"first seen: flags {name}", [f">{flags} 0", "<SA 0 1"], FIRST))
        table.append((f"on a live connection: flags {name}", [*BOTH, f">{flags} 101 201", "<A 201 101 10"], FIRST))
    for what in ("bad", "short", "offset", "cut"):
        table.append((f"a SYN with a header that is {what}", [f">S 0 {what}", "<SA 0 1"], FIRST))
        table.append((f"data with a header that is {what}", [*BOTH, f">A 101 201 10 {what}", *PROBES], FIRST))
        table.append((f"a RST with a header that is {what}", [*BOTH, f">R 101 {what}", *PROBES], FIRST))
    for name in ("open, data, close by the client", "segments out of order", "retransmitted data", "half open, then the SYN again"):
        table.append((f"numbers beyond 2^32: {name}", CONVERSATIONS[name], WRAPPED))
    for d in (0, 1):
        table.append((f"numbers beyond 2^32: data that begins {d} above the window", BOUNDS["data that begins {} above the window"](d), WRAPPED))
    return table
