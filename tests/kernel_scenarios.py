#!/usr/bin/env python3
"""Writes a capture of hand-made TCP conversations, each of which takes a path through TCP's states.

    kernel_scenarios.py CAPTURE

A conversation is a list of packets: the sender (`>` the client, `<` the server), the flags, the sequence
number, the acknowledged number (both relative to the first number of the side whose bytes they count), and
the number of bytes of data.
A `!` in front stands for a router's ICMP error about the packet, instead of the packet. `~500` stands for a
pause of 500 ms.
"""

import struct
import sys

import captures
import packets

_CLIENT, _SERVER = bytes((10, 1, 0, 1)), bytes((10, 2, 0, 1))
_ROUTER = bytes((10, 3, 0, 1))
_FIRST = {">": 1000, "<": 5000}
_OPEN = [">S 0", "<SA 0 1", ">A 1 1"]
_CLIENT_FIN = [*_OPEN, ">FA 1 1"]
_SERVER_FIN = [*_OPEN, "<FA 1 1"]

# The packets that lead to each state, and the server's challenge ACK to a SYN in that state (RFC 5961, 4), or None.
_STATES = {
    "SYN_SENT": ([">S 0"], None),
    "SYN_SENT2": ([">S 0", "<S 0"], None),
    "SYN_RECV": ([">S 0", "<SA 0 1"], "<A 1 1"),
    "ESTABLISHED": (_OPEN, "<A 1 1"),
    "ESTABLISHED, with data": ([*_OPEN, ">A 1 1 10", "<A 1 11 20", ">A 11 21"], "<A 21 11"),
    "FIN_WAIT": (_CLIENT_FIN, "<A 1 2"),
    "FIN_WAIT of the server": (_SERVER_FIN, "<A 2 1"),
    "CLOSE_WAIT": ([*_CLIENT_FIN, "<A 1 2"], "<A 1 2"),
    "CLOSE_WAIT of the server": ([*_SERVER_FIN, ">A 1 2"], "<A 2 1"),
    "LAST_ACK": ([*_CLIENT_FIN, "<A 1 2", "<FA 1 2"], "<A 2 2"),
    "TIME_WAIT": ([*_CLIENT_FIN, "<FA 1 2", ">A 2 2"], "<A 2 2"),
    "CLOSE": ([*_OPEN, "<R 1"], None),
    "CLOSE by the client": ([*_OPEN, ">R 1"], None),
}
_ANSWERED = [">S 9000", "<SA 9500 9001"]
_AGAIN = [*_ANSWERED, ">A 9001 9501"]
# Packets to follow in each state: a SYN with another sequence number, and what may come after this SYN.
_SYNS = {
    "SYN": [">S 9000"],
    "SYN, SYN/ACK": _ANSWERED,
    "SYN twice, SYN/ACK": [">S 9000", *_ANSWERED],
    "SYN, SYN/ACK of another": [">S 9000", "<SA 9500 8001"],
    "SYN, SYN/ACK, ACK": _AGAIN,
    "SYN, SYN/ACK, ACK, data both ways": [*_AGAIN, ">A 9001 9501 10", "<A 9501 9011 10"],
    "SYN, SYN/ACK, ACK, FIN": [*_AGAIN, ">FA 9001 9501"],
    "SYN, SYN/ACK, ACK, both FINs": [*_AGAIN, ">FA 9001 9501", "<FA 9501 9002", ">A 9002 9502"],
    "SYN, SYN/ACK, ACK, RST": [*_AGAIN, ">R 9001"],
    "SYN, SYN/ACK, RST of the server": [*_ANSWERED, "<R 9501"],
}

SCENARIOS = [
    ("handshake, nothing more", _OPEN),
    ("SYN, SYN again", [">S 0", ">S 0"]),
    ("SYN, RST/ACK of the server", [">S 0", "<RA 0 1"]),
    ("SYN, SYN/ACK, RST of the client", [">S 0", "<SA 0 1", ">R 1"]),
    ("SYN, SYN/ACK, server sends data before the ACK", [">S 0", "<SA 0 1", "<A 1 1 100"]),
    ("SYN, ACK of the client without SYN/ACK", [">S 0", ">A 1 1"]),
    ("SYN, challenge ACK of the server, RST of the client", [">S 0", "<A 77 99", ">R 99"]),
    ("SYN, SYN of the server", [">S 0", "<S 0"]),
    ("SYN, SYN of the server, SYN/ACK of the server", [">S 0", "<S 0", "<SA 0 1"]),
    (
        "SYN, SYN of the server, both SYN/ACK, both ACK",
        [">S 0", "<S 0", "<SA 0 1", ">SA 0 1", "<A 1 1", ">A 1 1"],
    ),
    ("first seen: data of the client", [">A 1 1 10"]),
    ("first seen: data of the client, ACK of the server", [">A 1 1 10", "<A 1 11"]),
    (
        "first seen: data of the client, ACK of the server, ACK of the client",
        [">A 1 1 10", "<A 1 11 5", ">A 11 6"],
    ),
    ("first seen: FIN/ACK of the client", [">FA 1 1"]),
    (
        "first seen: FIN of the client, FIN and ACK of the server, ACK",
        [">FA 1 1", "<FA 1 2", ">A 2 2"],
    ),
    ("first seen: SYN/ACK of the client", [">SA 0 1"]),
    ("first seen: data of the client, then its RST elsewhere", [">A 1 1 10", ">R 500"]),
    ("first seen: RST of the client", [">R 1"]),
    (
        "first seen: data, then FIN and FIN and ACK",
        [">A 1 1 10", "<FA 1 11", ">FA 11 2", "<A 2 12"],
    ),
    ("established, data without acknowledgement", _OPEN + [">A 1 1 10"]),
    ("established, FIN of the client", _OPEN + [">FA 1 1"]),
    ("established, FIN of the client twice", _OPEN + [">FA 1 1", ">FA 1 1"]),
    (
        "established, FIN of the client twice, ACK of the server",
        _OPEN + [">FA 1 1", ">FA 1 1", "<A 1 2"],
    ),
    ("established, FIN of the client, old ACK of the server", _OPEN + [">FA 1 1", "<A 1 1"]),
    ("established, FIN of the client, its own ACK", _OPEN + [">FA 1 1", ">A 2 1"]),
    ("established, FIN, ACK of it, FIN of the server", _OPEN + [">FA 1 1", "<A 1 2", "<FA 1 2"]),
    (
        "established, FIN, FIN, ACK by the sender of the second FIN",
        _OPEN + [">FA 1 1", "<FA 1 2", "<A 2 2"],
    ),
    ("established, FIN, FIN, ACK", _OPEN + [">FA 1 1", "<FA 1 2", ">A 2 2"]),
    ("established, FIN of the client before the handshake's ACK", [">S 0", "<SA 0 1", ">FA 1 1"]),
    ("TIME_WAIT, RST of the client", _OPEN + [">FA 1 1", "<FA 1 2", ">A 2 2", ">R 2"]),
    ("TIME_WAIT, SYN of the client", _OPEN + [">FA 1 1", "<FA 1 2", ">A 2 2", ">S 9000"]),
    ("TIME_WAIT, SYN of the server", _OPEN + [">FA 1 1", "<FA 1 2", ">A 2 2", "<S 9000"]),
    ("TIME_WAIT, FIN of the server again", _OPEN + [">FA 1 1", "<FA 1 2", ">A 2 2", "<FA 1 2"]),
    (
        "LAST_ACK, SYN of the client, challenge ACK of the server",
        _OPEN + [">FA 1 1", "<FA 1 2", ">S 9000", "<A 2 2"],
    ),
    ("established, RST of the client, exact", _OPEN + [">R 1"]),
    ("established, RST of the client, 10 too far", _OPEN + [">R 11"]),
    (
        "established, RST of the client, 1 too early",
        _OPEN + ["<A 1 1 10", ">A 1 11", "<A 11 1", ">R 0"],
    ),
    (
        "established, data acknowledged, RST of the client 1 too early",
        _OPEN + [">A 1 1 10", "<A 1 11", ">R 10"],
    ),
    ("established, RST of the client, far outside the window", _OPEN + [">R 900000000"]),
    ("established, FIN of the client, far outside the window", _OPEN + [">FA 900000000 1"]),
    ("established, ACK of what was never sent", _OPEN + [">A 1 500 10"]),
    ("established, FIN that acknowledges what was never sent", _OPEN + [">FA 1 500"]),
    ("established, SYN of the client", _OPEN + [">S 9000"]),
    ("established, SYN of the client, SYN/ACK of it", _OPEN + [">S 9000", "<SA 9500 9001"]),
    (
        "established, SYN of the client, SYN/ACK of it, ACK",
        _OPEN + [">S 9000", "<SA 9500 9001", ">A 9001 9501"],
    ),
    ("established, SYN of the client, RST of it by the server", _OPEN + [">S 9000", "<RA 0 9001"]),
    ("established, SYN of the server", _OPEN + ["<S 9000"]),
    ("closed by the server's RST, SYN of the client", _OPEN + ["<R 1", ">S 9000"]),
    (
        "closed by the server's RST, SYN of the client, SYN/ACK",
        _OPEN + ["<R 1", ">S 9000", "<SA 9500 9001"],
    ),
    ("closed by the client's RST, SYN of the client", _OPEN + [">R 1", ">S 9000"]),
    ("closed, data of the client", _OPEN + [">R 1", ">A 1 1 10"]),
    ("established, SYN and FIN in one", _OPEN + [">SF 1"]),
    ("established, FIN without ACK", _OPEN + [">F 1"]),
    ("established, no flags", _OPEN + [">- 1"]),
    ("SYN, error about it", [">S 0", "~300", "!>S 0"]),
    ("established, error about the client's data", _OPEN + [">A 1 1 10", "~300", "!>A 1 1 10"]),
    ("established, error about the server's data", _OPEN + ["<A 1 1 10", "~300", "!<A 1 1 10"]),
    ("established, errors about what was never sent", _OPEN + ["~300", "!>R 99", "!<FA 500 1"]),
    ("FIN_WAIT, more data of the server", _OPEN + [">FA 1 1", "<A 1 2 100", "<A 101 2 100"]),
]
SCENARIOS += [(f"{state}, {what}", way + syn) for state, (way, _) in _STATES.items() for what, syn in _SYNS.items()]
SCENARIOS += [
    (f"{state}, SYN, challenge ACK", [*way, ">S 9000", challenge])
    for state, (way, challenge) in _STATES.items()
    if challenge
]


def error_about(frame):
    """Returns an ICMP error, host unreachable, to the sender of `frame`. It quotes the IP header and 8 bytes (RFC 792)."""
    icmp = bytes((3, 1)) + bytes(6) + frame[14:42]
    icmp = icmp[:2] + packets.checksum(icmp).to_bytes(2, "big") + icmp[4:]
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(icmp), 0, 0, 64, 1, 0) + _ROUTER + frame[26:30]
    header = header[:10] + packets.checksum(header).to_bytes(2, "big") + header[12:]
    return frame[:14] + header + icmp


def packet(client_port, text):
    if text[0] == "!":
        return error_about(packet(client_port, text[1:]))
    who, (flags, *numbers) = text[0], text[1:].split()
    sequence, acknowledged, length = (*map(int, numbers), 0, 0)[:3]
    other = "<" if who == ">" else ">"
    tcp = struct.pack(
        ">IIBBHHH",
        _FIRST[who] + sequence,
        _FIRST[other] + acknowledged if "A" in flags else 0,
        0x50,
        sum(1 << "FSRPA".index(flag) for flag in flags if flag != "-"),
        30000,
        0,
        0,
    )
    ports, addresses = struct.pack(">HH", client_port, 80), _CLIENT + _SERVER
    if who == "<":
        ports, addresses = ports[2:] + ports[:2], _SERVER + _CLIENT
    payload = ports + tcp + bytes(length)
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(payload), 0, 0, 64, 6, 0) + addresses
    header = header[:10] + packets.checksum(header).to_bytes(2, "big") + header[12:]
    return bytes(12) + b"\x08\x00" + header + payload


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    written, time = [], captures.SECOND
    for number, (_, conversation) in enumerate(SCENARIOS):
        for text in conversation:
            time += 1_000_000
            if text[0] == "~":
                time += int(text[1:]) * 1_000_000
                continue
            data = packet(20000 + number, text)
            written.append((time, len(data), data))
    captures.write(sys.argv[1], captures.ETHERNET, written)


if __name__ == "__main__":
    main()
