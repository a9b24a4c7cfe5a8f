"""A model of a NAT for nat_model_test.py, written from RFC 4787 (UDP), 5382 (TCP), 5508 (ICMP), 6888 and 7857, and from docs/nat.md and
docs/configuration.md: not from millrace's code. It is told the configuration and each packet, and says what must leave.

Where the RFCs leave a choice (which address, which port), the model learns the choice from the packet that leaves, checks that it was
allowed, and holds the NAT to it. An end of a session has two right moments: its deadline, and the NAT's next look at it. The test sends
no packet between them.
"""

import collections
import heapq
from typing import NamedTuple

import nat_packets as make
from nat_ports import Ports, Wrong
from packets import ICMP, SCTP, TCP, UDP, UDP_LITE

SECOND = 1_000_000_000
INDEPENDENT, ADDRESS, ADDRESS_AND_PORT = range(3)
DEPENDENCES = ("endpoint-independent", "address-dependent", "address-and-port-dependent")

# Seconds without activity after which a session ends: RFC 4787, REQ-5; RFC 5382, REQ-5; RFC 5508, REQ-2; docs/configuration.md.
TIMEOUT_S = {
    (UDP, "new"): 120, (UDP, "replied"): 300,
    (UDP_LITE, "new"): 120, (UDP_LITE, "replied"): 300,
    (ICMP, "new"): 60, (ICMP, "replied"): 60,
    (TCP, "new"): 240, (TCP, "answered"): 240, (TCP, "established"): 7440, (TCP, "closing"): 240, (TCP, "closed"): 240,
    (SCTP, "new"): 60, (SCTP, "established"): 210, (SCTP, "closed"): 10,
}
# Protocols without a handshake, of which only packets from inside are activity (RFC 4787, REQ-6).
INSIDE_ONLY = {UDP, UDP_LITE, ICMP}


class Settings(NamedTuple):
    mapping: int
    filtering: int
    addresses: list
    ports: tuple  # the first and the last one
    block_size: int
    blocks: int  # that a customer may have
    sessions: int  # that a customer may have
    inside: int = 10  # the first byte of customers' addresses
    exempt: int = 203  # the first byte of exempt destinations

    def text(self):
        addresses = ", ".join('"' + ".".join(map(str, a)) + '"' for a in self.addresses)
        return f"""function = "nat"
[table]
capacity = 30000
[[nat.pool]]
name = "homes"
addresses = [{addresses}]
ports = "{self.ports[0]}-{self.ports[1]}"
mapping = "{DEPENDENCES[self.mapping]}"
filtering = "{DEPENDENCES[self.filtering]}"
block_size = {self.block_size}
blocks_per_customer = {self.blocks}
sessions_per_customer = {self.sessions}
[[nat.rule]]
source = "{self.inside}.0.0.0/8"
pool = "homes"
exempt = "{self.exempt}.0.0.0/8"
"""


class Session:
    """A session of a customer's end and a remote one, which may be another customer's public end (a hairpin)."""

    __slots__ = ("protocol", "state", "last", "deadline", "fins", "inside", "remote", "mapping", "by_inside", "is_live")

    def __init__(self, protocol, now, inside, remote, mapping, by_inside):
        self.protocol, self.state, self.last, self.fins, self.is_live = protocol, "new", now, set(), True
        self.deadline = now + TIMEOUT_S[protocol, "new"] * SECOND
        self.inside, self.remote, self.mapping, self.by_inside = inside, remote, mapping, by_inside  # by_inside: the inside has begun it

    @property
    def public(self):
        return self.mapping.public

    def holds(self):
        """Returns two truths, surely and perhaps: the session counts for its customer, and holds its mapping open. docs/nat.md: once the inside
        has answered; of TCP and SCTP, once the handshake is done, and the NAT may see it end earlier or later than this model."""
        surely = self.by_inside or self.state in ("replied", "established")
        return surely, surely or self.protocol == SCTP or self.state not in ("new", "answered")


class Mapping:
    __slots__ = ("key", "inside", "public", "sessions", "own")

    def __init__(self, key, inside, public):
        self.key, self.inside, self.public = key, inside, public
        self.sessions = self.own = 0  # own: those that the inside has begun


class Model:
    def __init__(self, settings):
        self.settings = settings
        self.pool = set(settings.addresses)
        self.shares = settings.mapping == settings.filtering == ADDRESS_AND_PORT
        self.ports = Ports(settings, self.shares)
        self.from_inside, self.from_outside, self.mappings = {}, {}, {}
        self.sessions = collections.Counter()  # of a customer, which he has begun
        self.remotes = collections.Counter()  # sessions of a mapping to a remote address, which the inside has begun
        self.strangers = collections.defaultdict(set)  # sessions from outside, by customer
        self.deadlines, self.number, self.now = [], 0, 0
        self.datagrams, self.waiting = {}, collections.defaultdict(list)
        self.counts = collections.Counter()

    # Time

    def at(self, now):
        if now - self.now > SECOND // 4:
            self.forget_datagrams()
        self.now = now
        while self.deadlines and self.deadlines[0][0] <= now:
            session = heapq.heappop(self.deadlines)[2]
            if session.deadline > now:
                self.push(session)
            elif session.is_live:
                self.counts["timeouts"] += 1
                self.end(session, session.deadline)

    def push(self, session):
        self.number += 1  # keeps equal deadlines apart
        heapq.heappush(self.deadlines, (session.deadline, self.number, session))

    def end(self, session, when):
        mapping = session.mapping
        del self.from_inside[session.protocol, session.inside, session.remote]
        del self.from_outside[session.protocol, session.remote, session.public]
        if session.by_inside:
            self.sessions[session.inside[0]] -= 1
            self.remotes[mapping, session.remote[0]] -= 1
            mapping.own -= 1
        else:
            self.strangers[session.inside[0]].discard(session)
        mapping.sessions -= 1
        if mapping.sessions == 0:
            del self.mappings[mapping.key]
            self.ports.give_back(session.protocol, mapping, when, self.now)
        session.is_live = False

    # Packets

    def judge(self, data, left):
        """Checks what left for this packet: a packet, or None. Raises Wrong."""
        fragment = int.from_bytes(data[6:8], "big") & 0x3FFF
        if fragment:
            key = data[4:6] + data[9:10] + data[12:20]
            if fragment & 0x1FFF:
                if key not in self.datagrams:
                    self.waiting[key].append((data, left))
                    return
                self.check_later(data, left, self.datagrams[key])
                return
        expected, met = self.expected(data, left)
        if left != expected:
            states = [(one.state, (self.now - one.last) / SECOND, by_inside) for one, by_inside in met]
            raise Wrong(f"expected {self.shown(expected)} {states}")
        self.counts["passed" if left else "dropped"] += 1
        if fragment:
            self.datagrams[key] = expected and (met, expected[12:16], expected[16:20])
            for later in self.waiting.pop(key, ()):
                self.check_later(*later, self.datagrams[key])

    def check_later(self, data, left, first):
        if first is None:
            expected = None
        else:
            met, source, to = first
            expected = make.rewritten(data, (source, 0), (to, 0))
            for session, by_inside in met:
                self.touch(session, by_inside or session.protocol not in INSIDE_ONLY | {TCP})
        if left != expected:
            raise Wrong(f"of a later fragment expected {self.shown(expected)}")
        self.counts["later fragments"] += 1

    def forget_datagrams(self):
        for later in self.waiting.values():
            for _, left in later:
                if left is not None:
                    raise Wrong("a fragment left without the first one of its datagram")
        self.datagrams.clear()
        self.waiting.clear()

    @staticmethod
    def shown(packet):
        return "nothing" if packet is None else packet.hex()

    def ends(self, data, from_customer):
        """Returns a packet's ends. An ICMP query has an identifier, which counts as the port of the customer's end."""
        source, to = data[12:16], data[16:20]
        if data[9] == ICMP:
            identifier = int.from_bytes(data[24:26], "big")
            ports = (identifier, None) if from_customer else (None, identifier)
        else:
            ports = int.from_bytes(data[20:22], "big"), int.from_bytes(data[22:24], "big")
        return (source, ports[0]), (to, ports[1])

    def expected(self, data, left):
        """Returns what must leave, and the sessions that the packet met, each with whether it came from inside. RFC 4787, REQ-9: what a
        customer sends to a public address is as if it left, and came back from outside."""
        from_customer, to_pool = data[12] == self.settings.inside, data[16:20] in self.pool
        if data[9] == ICMP and data[20] in make.ERRORS:
            out = self.expected_error(data, from_customer, left)
            comes_again = out is not None and out != data and from_customer and to_pool
            return self.expected_error(out, False, left) if comes_again else out, []
        if from_customer and data[16] != self.settings.exempt:
            out, session = self.to_outside(data, left)
            if out is None or not to_pool:
                return out, [(session, True)] if session else []
            again, receiver = self.to_inside(out, left)
            self.counts["hairpins" if again else "hairpins dropped"] += 1
            return again, [(session, True)] + [(receiver, False)] * (receiver is not None)
        if to_pool:
            out, session = self.to_inside(data, left)
            return out, [(session, False)] if session else []
        self.counts["untouched"] += 1
        return data, []

    @staticmethod
    def begins(data):
        """True if the packet may begin a session: RFC 5382, REQ-1 and docs/nat.md."""
        if data[9] == TCP:
            return data[33] & (make.FIN | make.SYN | make.RST | make.ACK) == make.SYN
        if data[9] == SCTP:
            return data[32] == make.INIT
        return True

    def to_outside(self, data, left):
        """Returns a customer's packet with its public source, and its session; or None, and the session if there is one."""
        protocol, (inside, remote) = data[9], self.ends(data, True)
        session = self.begun_anew(self.from_inside.get((protocol, inside, remote)), data)
        if session is None:
            session = self.open(data, protocol, inside, remote, left)
            if session is None:
                return None, None
            self.counts["sessions from inside"] += 1
        elif not self.follow_packet(session, session.by_inside, True, data, left):
            return None, session
        return make.rewritten(data, session.public, remote), session

    def key(self, protocol, inside, remote):
        """Returns the key of a session's mapping."""
        return protocol, inside, (None, remote[0], remote)[self.settings.mapping]

    def begun_anew(self, session, data):
        """Returns the session, or None after a SYN has ended it, which was closed, for another one (RFC 9293, 3.6.1)."""
        if session and session.state == "closed" and session.protocol == TCP and self.begins(data):
            self.end(session, self.now)
            return None
        return session

    def open(self, data, protocol, inside, remote, left):
        """Begins a session of the inside; returns it, or None if it may not begin."""
        if not self.begins(data):
            self.counts["without a beginning"] += 1
            return None
        if not self.has_room(inside[0], left):
            return None
        key = self.key(protocol, inside, remote)
        mapping = self.mappings.get(key)
        if mapping is None:
            can, must = self.ports.outlook(protocol, inside, remote, self.now, self.from_outside)
            if left is None:
                if must:
                    raise Wrong("dropped, although a port is free")
                self.counts["without a port"] += 1
                return None
            if not can:
                raise Wrong("no port is free")
            at = 24 if protocol == ICMP else 20
            public = left[12:16], int.from_bytes(left[at : at + 2], "big")
            self.ports.take(protocol, inside, remote, public, self.now, self.from_outside)
            mapping = self.mappings[key] = Mapping(key, inside, public)
            self.ports.users[protocol, public].append(mapping)
        return self.added(Session(protocol, self.now, inside, remote, mapping, True))

    def holding(self, customer, is_it=lambda session: True):
        """Returns how many of the customer's sessions from outside hold something, surely and perhaps."""
        holds = [session.holds() for session in self.strangers[customer] if is_it(session)]
        return sum(surely for surely, _ in holds), sum(perhaps for _, perhaps in holds)

    def has_room(self, customer, left):
        """True if the customer may have one more session that counts. What the model cannot know, the NAT has decided."""
        surely, perhaps = (self.sessions[customer] + more for more in self.holding(customer))
        if surely < self.settings.sessions and (perhaps < self.settings.sessions or left is not None):
            return True
        self.counts["over the customer's limit"] += 1
        return False

    def added(self, session):
        protocol, inside, remote, mapping = session.protocol, session.inside, session.remote, session.mapping
        if (protocol, inside, remote) in self.from_inside or (protocol, remote, mapping.public) in self.from_outside:
            raise Wrong(f"two sessions of {inside} and {remote}")
        self.from_inside[protocol, inside, remote] = self.from_outside[protocol, remote, mapping.public] = session
        if session.by_inside:
            self.sessions[inside[0]] += 1
            self.remotes[mapping, remote[0]] += 1
            mapping.own += 1
        else:
            self.strangers[inside[0]].add(session)
        mapping.sessions += 1
        self.push(session)
        return session

    def to_inside(self, data, left):
        """Returns a packet to a public end with its inside destination, and its session; or None, and None."""
        protocol, (remote, public) = data[9], self.ends(data, False)
        session = self.begun_anew(self.from_outside.get((protocol, remote, public)), data)
        if session is None:
            mapping = self.admitting(protocol, remote, public, data, left)
            if mapping is None:
                return None, None
            self.counts["sessions from outside"] += 1
            session = self.added(Session(protocol, self.now, mapping.inside, remote, mapping, False))
        elif not self.follow_packet(session, not session.by_inside, False, data, left):
            return None, session
        return make.rewritten(data, remote, session.inside), session

    def admitting(self, protocol, remote, public, data, left):
        """Returns the mapping for which a packet of no session passes from outside (RFC 4787, REQ-8; REQ-6: strangers hold none open), or
        None."""
        users = self.ports.users.get((protocol, public))
        if not users:
            self.counts["to no mapping"] += 1
            return None
        mapping = users[0]
        if self.settings.filtering == ADDRESS_AND_PORT:
            self.counts["filtered"] += 1
            return None
        by_address = self.settings.filtering == ADDRESS
        own = self.remotes[mapping, remote[0]] if by_address else mapping.own
        surely, perhaps = (own + more for more in self.holding(mapping.inside[0], lambda session: session.mapping is mapping and (
            not by_address or session.remote[0] == remote[0])))
        if perhaps == 0 or (surely == 0 and left is None):
            self.counts["filtered" if by_address else "held open by strangers only"] += 1
            return None
        if not self.begins(data):
            self.counts["without a beginning"] += 1
            return None
        if (protocol, mapping.inside, remote) in self.from_inside:
            self.counts["collisions"] += 1  # the inside already speaks with that end, from another public end
            return None
        return mapping

    # States

    def touch(self, session, counts):
        if counts:
            session.last = self.now
        self.set_deadline(session)

    def set_deadline(self, session):
        deadline = session.last + TIMEOUT_S[session.protocol, session.state] * SECOND
        if deadline < session.deadline:
            session.deadline = deadline
            self.push(session)
        session.deadline = deadline

    def follow_packet(self, session, by_originator, by_inside, data, left):
        """Returns False, and changes nothing, if the session would be one too many that counts for its customer."""
        protocol, state = session.protocol, session.state
        counts = by_inside or protocol not in INSIDE_ONLY
        if protocol == TCP:
            before = state, len(session.fins)
            state = self.tcp_state(session, by_originator, data[33])
            begins_a_timeout = data[33] & (make.SYN | make.FIN | make.RST) and (state, len(session.fins)) != before
            counts = by_inside or begins_a_timeout
        elif protocol == SCTP:
            if data[32] == make.ABORT:
                state = "closed"
            elif data[32] == make.COOKIE_ACK and not by_originator and state == "new":
                state = "established"
        elif not by_originator:
            state = "replied"
        holds, _ = session.holds()
        if not holds and state in ("replied", "established") and not self.has_room(session.inside[0], left):
            return False
        session.state = state
        self.touch(session, counts)
        return True

    @staticmethod
    def tcp_state(session, by_originator, flags):
        state = session.state
        if flags & make.RST:
            return "closed"
        if flags & make.SYN:  # without an ACK, both ends open at once (RFC 9293, 3.5)
            return "answered" if not by_originator and state == "new" else state
        if flags & make.FIN:
            session.fins.add(by_originator)
            return "closing"
        if state == "answered" and by_originator:
            return "established"
        return "closed" if len(session.fins) == 2 else state

    # ICMP errors: RFC 5508, REQ-3 to 6. They change no session.

    def expected_error(self, data, from_customer, left):
        quote = data[28:]
        protocol, source, to = quote[9], quote[12:16], quote[16:20]
        to_pool = data[16:20] in self.pool
        by_inside = from_customer or not to_pool
        if protocol == ICMP:
            identifier = int.from_bytes(quote[24:26], "big")
            ends = ((source, None), (to, identifier)) if by_inside else ((source, identifier), (to, None))
        else:
            ends = (source, int.from_bytes(quote[20:22], "big")), (to, int.from_bytes(quote[22:24], "big"))
        sessions = self.from_inside if by_inside else self.from_outside
        session = sessions.get((protocol, ends[1], ends[0])) if source == data[16:20] else None
        if session is None:  # docs/nat.md: errors of customers about no session pass untranslated
            if by_inside or left == data:
                self.counts["errors about nothing (a replay has no host to drop them)"] += 1
                return data
            return None
        if make.internet_checksum(data[20:]) != 0:
            self.counts["errors dropped"] += 1
            return None
        if by_inside:
            self.counts["errors to the outside"] += 1
            return make.requoted(data, session.public[0], data[16:20], session.remote, session.public)
        self.counts["errors to the inside"] += 1
        return make.requoted(data, data[12:16], session.inside[0], session.inside, session.remote)
