#!/usr/bin/env python3
"""Compares millrace's states of SCTP associations with those of Linux, for hand-made conversations.

    kernel_sctp.py MILLRACE

The packets of all conversations go through a router made of network namespaces (kernel_router.py), and through
`millrace replay` with `function = "forward"`. Then the two lists of connections are compared: each conversation
must have the state that SCENARIOS gives, the kernel's where a second state is given.

A packet of a conversation is the sender (`>` the client, `<` the server), a chunk, and the verification tag: `c`
is the tag that the client has chosen, `s` the server's, a number is another tag; `T` stands for the T bit. INIT
and INIT-ACK have their own tag behind the tag.

Needs root, and the commands ip, nft and conntrack. Exit status 1 if states differ from those in SCENARIOS, 77
(skipped) if the comparison cannot run.
"""

import json
import os
import struct
import subprocess
import sys
import tempfile

import captures
import kernel_router
import packets
from kernel_router import CannotTry

_CLIENT, _SERVER = bytes((10, 1, 0, 1)), bytes((10, 2, 0, 1))
_TAGS = {"c": 0xC1000001, "s": 0x5E000002}
_CHUNKS = {"DATA": 0, "INIT": 1, "INIT-ACK": 2, "HEARTBEAT": 4, "HEARTBEAT-ACK": 5, "ABORT": 6, "SHUTDOWN": 7,
           "SHUTDOWN-ACK": 8, "ERROR": 9, "COOKIE-ECHO": 10, "COOKIE-ACK": 11, "SHUTDOWN-COMPLETE": 14}  # fmt: skip
_FIRST_PORT = 20000

# The kernel's names of states, and millrace's.
_STATES = {
    "COOKIE_WAIT": "sctp_cookie_sent", "COOKIE_ECHOED": "sctp_cookie_echoed", "ESTABLISHED": "sctp_established",
    "SHUTDOWN_SENT": "sctp_shutdown_sent", "SHUTDOWN_RECD": "sctp_shutdown_received",
    "SHUTDOWN_ACK_SENT": "sctp_shutdown_ack_sent", "CLOSED": "sctp_closed", "HEARTBEAT_SENT": "sctp_midstream",
}  # fmt: skip

_ASKED = [">INIT 0 c"]
_ANSWERED = [*_ASKED, "<INIT-ACK c s"]
_ECHOED = [*_ANSWERED, ">COOKIE-ECHO s"]
_OPEN = [*_ECHOED, "<COOKIE-ACK c"]
_CLIENT_SHUTDOWN = [*_OPEN, ">SHUTDOWN s"]
_SERVER_SHUTDOWN = [*_OPEN, "<SHUTDOWN c"]
_ACKED = [*_CLIENT_SHUTDOWN, "<SHUTDOWN-ACK c"]
_CLOSED = [*_ACKED, ">SHUTDOWN-COMPLETE s"]

# Reasons for states of the kernel that are not millrace's.
UNANSWERED = "the kernel calls an association CLOSED until its INIT is answered"
ABORTED = "the kernel has no state of its own for ABORT"
MIDSTREAM = "the kernel tracks no association from the midst, except by a HEARTBEAT"
RESTART = "the kernel does not follow the handshake of an association that begins again"

# Conversations: (packets, millrace's state, the kernel's if it is another one, with the reason). None: no connection.
SCENARIOS = [
    (_ASKED, "sctp_cookie_wait", "CLOSED", UNANSWERED),
    (_ASKED * 2, "sctp_cookie_wait", "CLOSED", UNANSWERED),
    ([*_ASKED, ">COOKIE-ECHO s"], "sctp_cookie_wait", "CLOSED", UNANSWERED),
    ([*_ASKED, "<INIT-ACK 9 s"], "sctp_cookie_wait", "CLOSED", UNANSWERED),
    ([*_ASKED, "<ABORT c"], "sctp_aborted", "CLOSED", ABORTED),
    ([*_ASKED, "<ABORT 9"], "sctp_cookie_wait", "CLOSED", UNANSWERED),
    (_ANSWERED, "sctp_cookie_sent"),
    ([*_ANSWERED, ">COOKIE-ECHO 9"], "sctp_cookie_sent"),
    ([*_ANSWERED, "<ABORT c"], "sctp_aborted", "CLOSED", ABORTED),
    (_ECHOED, "sctp_cookie_echoed"),
    ([*_ECHOED, "<COOKIE-ACK 9"], "sctp_cookie_echoed"),
    ([*_ECHOED, ">COOKIE-ECHO s"], "sctp_cookie_echoed"),
    (_OPEN, "sctp_established"),
    ([*_OPEN, ">DATA s", "<DATA c"], "sctp_established"),
    ([*_OPEN, ">HEARTBEAT s", "<HEARTBEAT-ACK c"], "sctp_established"),
    ([*_OPEN, ">SHUTDOWN 9"], "sctp_established"),
    ([*_OPEN, "<SHUTDOWN 9"], "sctp_established"),
    ([*_OPEN, ">SHUTDOWN-ACK s"], "sctp_established"),
    ([*_OPEN, ">SHUTDOWN-COMPLETE s"], "sctp_established"),
    ([*_OPEN, ">ERROR s"], "sctp_established"),
    ([*_OPEN, ">ABORT s"], "sctp_aborted", "CLOSED", ABORTED),
    ([*_OPEN, ">ABORT c"], "sctp_established"),
    ([*_OPEN, ">ABORT c T"], "sctp_aborted", "CLOSED", ABORTED),
    ([*_OPEN, ">ABORT s T"], "sctp_established"),
    ([*_OPEN, "<ABORT c"], "sctp_aborted", "CLOSED", ABORTED),
    ([*_OPEN, "<ABORT s"], "sctp_established"),
    ([*_OPEN, "<ABORT s T"], "sctp_aborted", "CLOSED", ABORTED),
    ([*_OPEN, "<ABORT 9"], "sctp_established"),
    (_CLIENT_SHUTDOWN, "sctp_shutdown_sent"),
    ([*_CLIENT_SHUTDOWN, "<DATA c"], "sctp_shutdown_sent"),
    ([*_CLIENT_SHUTDOWN, "<SHUTDOWN c"], "sctp_shutdown_sent"),
    ([*_CLIENT_SHUTDOWN, "<SHUTDOWN-ACK 9"], "sctp_shutdown_sent", "SHUTDOWN_ACK_SENT",
     "the kernel does not check the tag of a SHUTDOWN ACK"),
    ([*_CLIENT_SHUTDOWN, ">SHUTDOWN-ACK s"], "sctp_shutdown_sent", "SHUTDOWN_ACK_SENT",
     "the kernel believes a side that acknowledges its own SHUTDOWN"),
    ([*_CLIENT_SHUTDOWN, ">ABORT s"], "sctp_aborted", "CLOSED", ABORTED),
    (_SERVER_SHUTDOWN, "sctp_shutdown_received"),
    ([*_SERVER_SHUTDOWN, ">SHUTDOWN-ACK s"], "sctp_shutdown_ack_sent"),
    ([*_SERVER_SHUTDOWN, ">SHUTDOWN-ACK s", "<SHUTDOWN-COMPLETE c"], "sctp_closed"),
    (_ACKED, "sctp_shutdown_ack_sent"),
    ([*_ACKED, ">SHUTDOWN-COMPLETE c"], "sctp_shutdown_ack_sent"),
    ([*_ACKED, ">SHUTDOWN-COMPLETE c T"], "sctp_closed"),
    (_CLOSED, "sctp_closed"),
    ([*_CLOSED, ">DATA s"], "sctp_closed"),
    ([*_CLOSED, *_ASKED], "sctp_cookie_wait", "CLOSED", UNANSWERED),
    ([*_CLOSED, *_OPEN], "sctp_established"),
    ([*_OPEN, ">INIT 0 70", ">SHUTDOWN s"], "sctp_shutdown_sent"),
    ([*_OPEN, ">INIT 0 70", "<SHUTDOWN c"], "sctp_shutdown_received", "ESTABLISHED",
     "the kernel believes a forged INIT, and refuses the packets of the true association"),
    ([*_OPEN, ">INIT 0 70", "<INIT-ACK 70 80", ">COOKIE-ECHO 80", "<COOKIE-ACK 70"], "sctp_established"),
    ([*_OPEN, ">INIT 0 70", "<INIT-ACK 70 80", ">COOKIE-ECHO 80"], "sctp_cookie_echoed", "ESTABLISHED", RESTART),
    ([*_OPEN, ">INIT 0 70", "<INIT-ACK 70 80", ">COOKIE-ECHO 80", "<COOKIE-ACK 70", ">SHUTDOWN 80"],
     "sctp_shutdown_sent"),
    ([">HEARTBEAT s"], "sctp_midstream"),
    ([">HEARTBEAT s", "<HEARTBEAT-ACK c"], "sctp_established"),
    ([">HEARTBEAT s", "<HEARTBEAT c"], "sctp_established", "HEARTBEAT_SENT",
     "the kernel waits for the HEARTBEAT ACK"),
    ([">DATA s"], "sctp_midstream", None, MIDSTREAM),
    ([">COOKIE-ECHO s"], "sctp_midstream", None, MIDSTREAM),
    ([">ABORT s"], None),
    ([">SHUTDOWN-COMPLETE s"], None),
    ([">COOKIE-ACK s"], None),
]  # fmt: skip


def _tag(text):
    return _TAGS[text] if text in _TAGS else int(text)


def frame(port, text):
    """Returns the Ethernet frame of a packet of the conversation from the client's `port`."""
    (chunk, *words), from_client = text[1:].split(), text[0] == ">"
    ports, addresses = struct.pack(">HH", port, 80), _CLIENT + _SERVER
    if not from_client:
        ports, addresses = ports[2:] + ports[:2], _SERVER + _CLIENT
    value = bytes(4)
    if chunk in ("INIT", "INIT-ACK"):
        value = struct.pack(">IIHHI", _tag(words[1]), 100_000, 1, 1, 1)
    if chunk in ("HEARTBEAT", "HEARTBEAT-ACK"):
        value = struct.pack(">HHI", 1, 8, 0)
    if chunk == "DATA":
        value = bytes(12) + b"data"
    flags = 3 if chunk == "DATA" else "T" in words
    sctp = ports + struct.pack(">II", _tag(words[0]), 0) + struct.pack(">BBH", _CHUNKS[chunk], flags, 4 + len(value)) + value
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(sctp), 0, 0, 64, packets.SCTP, 0) + addresses
    header = header[:10] + packets.checksum(header).to_bytes(2, "big") + header[12:]
    return kernel_router.ethernet(4) + header + sctp


def kernels():
    """Returns the kernel's states by the client's port."""
    router = kernel_router.Router({key: t[0] for key, t in kernel_router.TIMEOUTS_S.items()}, False)
    router.send([(0, one) for one in frames()], 1)
    states = {}
    for line in router.list().splitlines():
        words = line.split()
        if words[2] == "sctp":
            ports = [int(word.partition("=")[2]) for word in words if word.startswith(("sport=", "dport="))]
            states[max(ports)] = words[5]
    return states


def frames():
    return [frame(_FIRST_PORT + n, text) for n, (conversation, *_) in enumerate(SCENARIOS) for text in conversation]


def millraces(program, folder):
    """Returns millrace's states by the client's port."""
    names = {name: os.path.join(folder, name) for name in ("in.pcap", "forward.toml", "list.jsonl")}
    written = [(captures.SECOND + n * 1000, len(one), one) for n, one in enumerate(frames())]
    captures.write(names["in.pcap"], captures.ETHERNET, written)
    with open(names["forward.toml"], "w", encoding="ascii") as file:
        print('function = "forward"', file=file)
    command = [program, "replay", "--in", names["in.pcap"], "--config", names["forward.toml"], "--quiet",
               "--connections", names["list.jsonl"], "--clock", "capture"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
    with open(names["list.jsonl"], encoding="utf-8") as file:
        entries = [json.loads(line) for line in file]
    return {max(entry["source_port"], entry["destination_port"]): entry["state"] for entry in entries}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        kernel_router.check_possible()
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = millraces(sys.argv[1], folder), kernels()
    except CannotTry as why:
        print(f"skipped: {why}")
        return 77
    wrong = explained = 0
    for n, (conversation, state, *kernel) in enumerate(SCENARIOS):
        port = _FIRST_PORT + n
        wanted = kernel[0] if kernel else next((k for k, ours_ in _STATES.items() if ours_ == state), None)
        explained += bool(kernel)
        if (ours.get(port), theirs.get(port)) != (state, wanted):
            wrong += 1
            print(f"{', '.join(conversation)}: millrace {ours.get(port)}, wanted {state}; "
                  f"the kernel {theirs.get(port)}, wanted {wanted}")  # fmt: skip
    print(f"{len(SCENARIOS)} conversations, {explained} with another state in the kernel for a known reason, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
