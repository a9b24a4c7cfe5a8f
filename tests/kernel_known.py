"""Connections as the two sides of kernel_conntrack.py, the kernel and millrace, list them; and differences that are explained.

A difference is explained if one of the rules in `KNOWN` applies to the conversation's packets.
"""

import ipaddress
from typing import NamedTuple

from captures import SECOND
from packets import TCP, UDP

NAMES = {TCP: "tcp", UDP: "udp"}
FIN, SYN, RST, ACK = 1, 2, 4, 16  # flags of TCP

# millrace's name for each of the kernel's TCP states. The kernel has no state for connections in mid-stream.
STATES = {
    "SYN_SENT": "syn_sent",
    "SYN_SENT2": "syn_sent2",
    "SYN_RECV": "syn_received",
    "ESTABLISHED": "established",
    "FIN_WAIT": "fin_wait",
    "CLOSE_WAIT": "close_wait",
    "LAST_ACK": "last_ack",
    "TIME_WAIT": "time_wait",
    "CLOSE": "closed",
}
_TIMEOUT_OF = {"syn_sent2": "tcp_syn_sent", "closed": "tcp_close"}

# The wheel ends a connection up to an interval late, and the kernel counts jiffies of up to 10 ms.
MARGIN_NS = 30_000_000


class Conversation(NamedTuple):
    """The client, which sent the first packet, and the server: each (address, port)."""

    protocol: int
    client: tuple
    server: tuple

    def __str__(self):
        client, server = (f"{ipaddress.ip_address(a)} port {p}" for a, p in self[1:])
        return f"{NAMES[self.protocol]} {client} -> {server}"


class Connection(NamedTuple):
    """A connection in one side's list."""

    state: str
    by_client: bool  # True if, according to this side, the client opened the connection
    idle_s: tuple  # seconds since a packet last renewed the connection: (at least, at most)


class Packet(NamedTuple):
    """A packet of a conversation about which the kernel and millrace disagree."""

    time: int  # ns
    by_client: bool
    flags: int  # TCP flags; 0 for UDP
    seq: int
    ack: int
    length: int  # bytes of payload

    @property
    def end(self):
        """The sequence number behind the packet."""
        flags = (self.flags & SYN != 0) + (self.flags & FIN != 0)
        return (self.seq + self.length + flags) & 0xFFFFFFFF

    def __str__(self):
        arrow = "->" if self.by_client else "<-"
        text = f"{self.time / SECOND % 1000:10.6f} {arrow} {self.length} bytes"
        if not self.seq and not self.flags:
            return text
        flags = "".join(c for i, c in enumerate("FSRPAUEC") if self.flags >> i & 1)
        return f"{text} {flags or '-'} seq {self.seq} ack {self.ack}"


class Difference(NamedTuple):
    conversation: Conversation
    kernel: Connection | None
    millrace: Connection | None


class Run(NamedTuple):
    """A run: when reading the kernel's list began and ended, in ns on the clock of the packets; and the timeouts."""

    read_ns: tuple
    timeouts_s: dict

    def timeout_s(self, protocol, state):
        key = _TIMEOUT_OF.get(state, f"tcp_{state}" if protocol == TCP else state)
        return self.timeouts_s[key]


def _since_open(seen):
    """Returns the client's last SYN that is no retransmission, and the packets since then; without such a SYN all packets."""
    start = 0
    for i, packet in enumerate(seen):
        if packet.by_client and packet.flags & (SYN | ACK | RST) == SYN:
            if i == 0 or not any(p.flags & SYN and p.seq == packet.seq for p in seen[start:i]):
                start = i
    return seen[start:]


def _runs_out(difference, seen, run):
    conversation, *sides = difference
    low, high = run.read_ns[0] - MARGIN_NS, run.read_ns[1] + MARGIN_NS
    own = {run.timeout_s(conversation.protocol, s.state) for s in sides if s}
    if any(s and s.state == "established" for s in sides):  # to the kernel a RST or unacknowledged data changes the timeout of `established`
        own |= {run.timeouts_s["tcp_midstream"], run.timeouts_s["tcp_close"]}
    if None in sides and any(low <= p.time + t * SECOND <= high for p in seen for t in own):
        return True
    pauses = [q.time - p.time for p, q in zip(seen, seen[1:])]
    name = NAMES[conversation.protocol]
    ends = {t * SECOND for key, t in run.timeouts_s.items() if key.startswith(name)}
    return any(abs(pause - end) <= MARGIN_NS for pause in pauses for end in ends)


def _opened_by_server(difference, seen, _):
    kernel = difference.kernel
    return kernel is not None and not kernel.by_client and any(not p.by_client for p in seen)


def _states(difference):
    return tuple(side and side.state for side in difference[1:])


def _after(a, b):
    """Returns True if sequence number `a` is behind `b`, modulo 2^32."""
    return 0 < (a - b) & 0xFFFFFFFF < 1 << 31


def _plain_ack(packet):
    return packet.flags & (FIN | SYN | RST | ACK) == ACK


def _fins(seen):
    """Returns the FINs, as (index of the packet, True if the client's)."""
    return [(i, p.by_client) for i, p in enumerate(seen) if p.flags & (FIN | RST) == FIN]


def _fin_again(difference, seen, _):
    kernel, millrace = _states(difference)
    by = [side for _, side in _fins(_since_open(seen))]
    return (
        len(by) > 1
        and len(set(by)) == 1
        and kernel in ("last_ack", "time_wait")
        and millrace in ("fin_wait", "close_wait")
    )


def _any_ack(difference, seen, _):
    if _states(difference) not in (("close_wait", "fin_wait"), ("time_wait", "last_ack")):
        return False
    seen = _since_open(seen)
    fins = _fins(seen)
    acknowledged = [
        any(
            not _after(seen[i].end, p.ack)
            for p in seen[i:]
            if p.by_client != by_client and p.flags & (ACK | RST) == ACK
        )
        for i, by_client in fins
    ]
    return not all(acknowledged) and any(_plain_ack(p) for p in seen[fins[-1][0] :])


def _refused(difference, seen, _):
    kernel, millrace = _states(difference)
    if kernel not in (None, "established") or millrace not in (None, "closed"):
        return False
    seen = _since_open(seen)
    resets = [i for i, p in enumerate(seen) if p.flags & RST]
    if not resets or any(not p.by_client and not p.flags & RST for p in seen):
        return False
    # To the kernel an ACK after the reset opens the connection anew, in mid-stream.
    return kernel is None or any(_plain_ack(p) for p in seen[resets[-1] :])


def _reset_elsewhere(difference, seen, _):
    kernel, millrace = _states(difference)
    if kernel in (None, "closed") or millrace not in (None, "closed"):
        return False
    acknowledged = {}
    for packet in _since_open(seen):
        expected = acknowledged.get(not packet.by_client)
        if packet.flags & RST and expected not in (None, packet.seq):
            return True
        if packet.flags & (ACK | RST) == ACK:
            before = acknowledged.get(packet.by_client)
            if before is None or _after(packet.ack, before):
                acknowledged[packet.by_client] = packet.ack
    return False


def _reset_unanswered(difference, seen, _):
    if _states(difference) != (None, "midstream") or not all(p.by_client for p in seen):
        return False
    resets = [i for i, p in enumerate(seen) if p.flags & RST]
    return bool(resets) and all(seen[i].seq != seen[i - 1].end for i in resets if i)


_ORDER = [None, *STATES.values()]


def _acknowledges_unseen(difference, seen, _):
    kernel, millrace = _states(difference)
    seen = _since_open(seen)
    if not seen[0].flags & SYN or kernel is None or kernel == "closed":
        return False
    if millrace not in (None, "closed") and _ORDER.index(kernel) >= _ORDER.index(millrace):
        return False
    end = {}
    for packet in seen:
        other = end.get(not packet.by_client)
        if packet.flags & ACK and other is not None and _after(packet.ack, other):
            return True
        before = end.get(packet.by_client)
        if before is None or _after(packet.end, before):
            end[packet.by_client] = packet.end
    return False


def _fin_first(difference, seen, _):
    kernel, millrace = _states(difference)
    if kernel != "established" or millrace not in (None, "close_wait", "last_ack", "time_wait"):
        return False
    replied = [i for i, p in enumerate(seen) if p.flags & FIN and not p.by_client]
    return (
        bool(replied)
        and all(p.flags & FIN for p in seen[: replied[0]])
        and any(_plain_ack(p) for p in seen[replied[0] :])
    )


def _stream_at_two_seconds(difference, seen, _):
    return set(_states(difference)) == {"udp", "udp_stream"} and any(
        abs(p.time - q.time - 2 * SECOND) <= MARGIN_NS for p in seen for q in seen
    )


def _second_syn(difference, seen, _):
    syns = {p.seq for p in seen if p.by_client and p.flags & (SYN | ACK | RST) == SYN}
    kernel, millrace = _states(difference)
    return len(syns) > 1 and (
        kernel == "syn_sent2"
        or (kernel, millrace) in (
            ("last_ack", "time_wait"),
            ("close_wait", "fin_wait"),
            ("closed", "syn_sent"),
            ("closed", "syn_received"),
        )
    )


def _challenged(difference, seen, _):
    if _states(difference) != ("closed", "syn_sent"):
        return False
    challenges = {p.ack for p in seen if not p.by_client and _plain_ack(p)}
    return any(p.by_client and p.flags & RST and p.seq in challenges for p in seen)


# Differences that are explained: name, reason, and a function that is True if the conversation's packets have that
# reason. Functions and tables named in a reason are in Linux's net/netfilter/nf_conntrack_proto_tcp.c, unless the
# reason names another file.
KNOWN = (
    ("runs out", "a timeout ends just when the list is read, or when a packet arrives", _runs_out),
    (
        "opened by the server",
        "the kernel opens a connection for any packet; a balancer only for one to a service",
        _opened_by_server,
    ),
    (
        "FIN again",
        "tcp_conntracks[][fin][FIN_WAIT] is LAST_ACK: the kernel does not know which side sent the FIN",
        _fin_again,
    ),
    (
        "RST unanswered",
        "nf_conntrack_tcp_packet compares a RST with what the other side has acknowledged, if it has acknowledged anything; "
        "millrace ignores a RST that does not have the number of its sender's next byte (RFC 5961)",
        _reset_unanswered,
    ),
    (
        "FIN first",
        "tcp_conntracks[][fin][NONE] is INVALID: the kernel opens a connection for the ACK that "
        "follows; to millrace a reply's FIN shows that there was a connection, which is about to end",
        _fin_first,
    ),
    (
        "any ACK",
        "tcp_conntracks[][ack] takes FIN_WAIT to CLOSE_WAIT and LAST_ACK to TIME_WAIT, whichever side sends "
        "the ACK and whatever the ACK acknowledges",
        _any_ack,
    ),
    (
        "refused",
        "nf_conntrack_tcp_packet removes a connection at once if a RST ends it before any other reply",
        _refused,
    ),
    (
        "RST elsewhere",
        "RFC 5961, 3.2: a RST without the sequence number that its receiver expects ends nothing",
        _reset_elsewhere,
    ),
    (
        "ACK of the unseen",
        "tcp_in_window, III: a packet that acknowledges bytes which the kernel has not seen is ignored",
        _acknowledges_unseen,
    ),
    (
        "second SYN",
        "to millrace a SYN after the end of a connection begins another (RFC 9293, 3.6.1); to the kernel "
        "only once the SYN is answered, never in SYN_SENT2, and an ACK after the SYN counts as a challenge (RFC 5961)",
        _second_syn,
    ),
    (
        "challenged",
        "a RST that answers an ACK before the handshake (RFC 9293, 3.10.7.3): the kernel keeps both "
        "sides' acknowledgements, millrace the sequence number that each side sends next",
        _challenged,
    ),
    (
        "two seconds",
        "nf_conntrack_udp_packet: a conversation is a stream once it is 2 s old, counted in jiffies",
        _stream_at_two_seconds,
    ),
)


def explain(difference, seen, run):
    """Returns the name of the rule that explains a difference, or None."""
    if not seen:
        return None
    return next((name for name, _, holds in KNOWN if holds(difference, seen, run)), None)
