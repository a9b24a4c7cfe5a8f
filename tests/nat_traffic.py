"""Random packets for nat_model_test.py: customers that open sessions, answers, strangers, ICMP errors, fragments, floods of ports."""

import collections

import nat_packets as make
from packets import ICMP, SCTP, TCP, UDP, UDP_LITE

# Packets come in epochs, which begin at multiples of this time and take less than a tenth of it. No sum of timeouts is within a tenth
# of a multiple, so none ends within an epoch.
EPOCH_NS = 1_197_000_000
EPOCH_STEPS = 30
EXEMPT, OTHER = bytes((203, 0, 113, 9)), bytes((172, 16, 0, 1))
STRANGERS = [bytes((192, 0, 2, n)) for n in range(1, 6)]
REMOTES = [bytes((9, 9, 9, n)) for n in range(1, 5)]


class Talk:
    """A conversation of TCP or SCTP under way. `outsider` has begun it if `by_outside`."""

    def __init__(self, protocol, inside, remote, rng, public=None):
        self.protocol, self.inside, self.remote, self.public, self.by_outside = protocol, inside, remote, public, public is not None
        self.first = self.second = rng.randrange(2**32)  # the sequence numbers of originator and responder; tags of SCTP
        self.second = rng.randrange(1, 2**32)
        self.steps = collections.deque(self.tcp_steps(rng) if protocol == TCP else self.sctp_steps(rng))

    @staticmethod
    def tcp_steps(rng):
        handshake = [("o", "S"), ("r", "SA"), ("o", "A")][: rng.choice((1, 2, 3, 3, 3, 3))]
        yield from handshake
        is_established = len(handshake) == 3
        for _ in range(rng.randrange(6) * is_established):
            yield rng.choice("or"), "D"
        end = rng.random()
        if end < 0.3 and is_established:
            yield from [("o", "F"), ("r", "F"), ("o", "A")]
            yield rng.choice("or"), "A"
        elif end < 0.5:
            yield rng.choice("or"), "R"
            yield rng.choice("or"), "A"
        if end < 0.25:
            yield "o", "S"

    @staticmethod
    def sctp_steps(rng):
        handshake = [("o", make.INIT), ("r", make.INIT_ACK), ("o", make.COOKIE_ECHO), ("r", make.COOKIE_ACK)][: rng.choice((1, 4, 4, 4))]
        yield from handshake
        is_established = len(handshake) == 4
        for _ in range(rng.randrange(5) * is_established):
            yield rng.choice("or"), make.DATA
        if rng.random() < 0.3 and is_established:
            yield rng.choice("or"), make.ABORT

    def packet(self, ident):
        """Returns the next packet, or None if the public end, which it goes to, is not known yet."""
        side, what = self.steps[0]
        by_inside = (side == "o") != self.by_outside
        if not by_inside and self.public is None:
            return None
        self.steps.popleft()
        source, to = (self.inside, self.remote) if by_inside else (self.remote, self.public)
        mine, other = ("first", "second") if side == "o" else ("second", "first")
        if self.protocol == SCTP:
            return self.sctp_packet(source, to, what, mine, other, ident)
        data = b"0123456789" if what == "D" else b""
        flags = {"S": make.SYN, "SA": make.SYN | make.ACK, "F": make.FIN | make.ACK, "R": make.RST | make.ACK}.get(what, make.ACK)
        packet = make.tcp(source, to, flags, getattr(self, mine), 0 if what == "S" else getattr(self, other), data, ident)
        setattr(self, mine, getattr(self, mine) + len(data) + (what in ("S", "SA", "F")) & 0xFFFFFFFF)
        return packet

    def sctp_packet(self, source, to, what, mine, other, ident):
        own_tag = (getattr(self, mine) or 1).to_bytes(4, "big")
        value = {make.INIT: own_tag + bytes((0, 1, 0, 0, 0, 9, 0, 9)) + own_tag, make.COOKIE_ECHO: b"cookie!!", make.DATA: bytes(12) + b"data"}
        value[make.INIT_ACK] = value[make.INIT]
        tag = 0 if what == make.INIT else getattr(self, other) or 1
        return make.sctp(source, to, tag, what, value.get(what, b""), ident)


class Traffic:
    def __init__(self, settings, model, rng):
        self.settings, self.model, self.rng = settings, model, rng
        self.customers = [bytes((settings.inside, 0, n // 4, n)) for n in range(10)]
        self.ident, self.port = 0, 1024
        self.epoch, self.in_epoch = 1000, 0
        self.talks, self.legs, self.old = [], [], collections.deque(maxlen=300)
        self.kinds = [
            (self.udp_out, 22), (self.reply, 22), (self.stranger, 9), (self.stray, 3), (self.ping_out, 6), (self.error_in, 6),
            (self.error_out, 3), (self.fragmented, 5), (self.talk, 20), (self.new_talk, 5), (self.udp_lite_out, 3), (self.hairpin, 6),
            (self.untouched, 2), (self.many, 0.25), (self.without_beginning, 2),
        ]

    def chunk(self, steps):
        """Returns (time, packet) of so many steps. Knows the public ends of sessions that began in earlier chunks."""
        rng, model = self.rng, self.model
        self.legs = [leg for leg in model.from_outside.values() if model.now - leg.last < 400 * 10**9]
        if len(self.legs) > 400:
            self.legs = rng.sample(self.legs, 400)
        self.old.extend(rng.sample(self.legs, min(30, len(self.legs))))
        for talk in self.talks:
            leg = model.from_inside.get((talk.protocol, talk.inside, talk.remote))
            talk.public = talk.public or (leg and leg.public)
        self.talks = [talk for talk in self.talks if talk.steps and talk.public][-100:]
        packets = []
        kinds, weights = zip(*self.kinds)
        for kind in rng.choices(kinds, weights, k=steps):
            for packet in kind():
                packets.append((self.epoch * EPOCH_NS + self.in_epoch * 50_000, packet))
                self.in_epoch += 1
            if self.in_epoch > EPOCH_STEPS:
                self.next_epoch()
        self.next_epoch()
        return packets

    def next_epoch(self):
        self.in_epoch = 0
        chance = self.rng.random()
        longest = 2 if chance < 0.7 else 30 if chance < 0.93 else 330 if chance < 0.997 else 7000
        self.epoch += self.rng.randint(1, longest)

    # Draws

    def next_ident(self):
        self.ident = self.ident + 1 & 0xFFFF
        return self.ident

    def inside(self, ports=40):
        return self.rng.choice(self.customers), 4000 + self.rng.randrange(ports)

    def remote(self):
        return self.rng.choice(REMOTES), self.rng.choice((53, 80, 443))

    def data(self):
        return self.rng.randbytes(self.rng.randrange(40))

    def some_leg(self, protocols=(UDP,)):
        """Returns a session's leg, now and then one of a session that may have ended, or None."""
        for _ in range(4):
            legs = self.old if self.old and self.rng.random() < 0.1 else self.legs
            leg = self.rng.choice(legs) if legs else None
            if leg and leg.protocol in protocols:
                return leg
        return None

    # Steps

    def udp_out(self):
        yield make.udp(self.inside(), self.remote(), self.data(), self.next_ident(), self.rng.random() < 0.1)

    def udp_lite_out(self):
        yield make.udp_lite(self.inside(4), self.remote(), self.data() + b"lite", self.rng.choice((0, 8, 10, 12)), self.next_ident())

    def ping_out(self):
        kind = self.rng.choice(list(make.QUERIES))
        yield make.query(self.rng.choice(self.customers), self.rng.choice(REMOTES), kind, self.rng.randrange(12), self.data(), self.next_ident())

    def of(self, protocol, source, to, data, ident):
        if protocol == UDP:
            return make.udp(source, to, data, ident, self.rng.random() < 0.1)
        if protocol == UDP_LITE:
            return make.udp_lite(source, to, data, 8, ident)
        if protocol == TCP:
            return make.tcp(source, to, make.SYN, self.rng.randrange(2**32), 0, b"", ident)
        if protocol == SCTP:
            return make.sctp(source, to, 0, make.INIT, b"tag " + bytes((0, 1, 0, 0, 0, 9, 0, 9)) + b"1234", ident)
        identifier = to[1] if source[1] is None else source[1]
        return make.query(source[0], to[0], 0 if source[1] is None else 8, identifier, data, ident)

    def reply(self):
        leg = self.some_leg((UDP, UDP_LITE, ICMP))
        if leg and leg.remote[0] not in self.model.pool:
            yield self.of(leg.protocol, leg.remote, leg.public, self.data(), self.next_ident())
            if self.rng.random() < 0.3:
                yield self.of(leg.protocol, leg.inside, leg.remote, self.data(), self.next_ident())

    def stranger(self):
        """A packet to a mapping: from the address of a remote end, or from another one."""
        leg = self.some_leg((UDP, UDP_LITE, ICMP, TCP, SCTP))
        if leg:
            protocol = leg.protocol if self.rng.random() < 0.9 else UDP
            address = leg.remote[0] if self.rng.random() < 0.5 else self.rng.choice(REMOTES + STRANGERS)
            if address in self.model.pool or leg.public[1] is None:
                return
            end = (address, None if protocol == ICMP else self.rng.choice((53, 80, 443, 7000, 7001)))
            yield self.of(protocol, end, leg.public, self.data(), self.next_ident())

    def stray(self):
        first, last = self.settings.ports
        to = self.rng.choice(self.settings.addresses), self.rng.choice((1, self.rng.randint(first, last)))
        protocol = self.rng.choice((UDP, TCP, ICMP, SCTP, UDP_LITE))
        yield self.of(protocol, (self.rng.choice(STRANGERS), None if protocol == ICMP else 5), to, b"", self.next_ident())

    def seen(self, leg, source, to):
        """Returns a packet of a session as one of its ends sees it."""
        protocol = leg.protocol
        if protocol == TCP:
            return make.tcp(source, to, make.ACK, 77, 88, b"segment", self.next_ident())
        if protocol == SCTP:
            return make.sctp(source, to, 5, make.DATA, bytes(12) + b"data", self.next_ident())
        return self.of(protocol, source, to, self.data(), self.next_ident())

    def error_about(self, source, to, packet, by):
        kind, code, rest = self.rng.choice(((3, 1, 0), (3, 3, 0), (3, 4, 1400), (11, 0, 0), (12, 0, 20 << 24), (4, 0, 0)))
        quote = packet if self.rng.random() < 0.5 else packet[:28]
        if kind in (3, 11) and code != 4 and self.rng.random() < 0.2:  # RFC 4884: the quote has 128 bytes, extensions follow
            quote, rest = packet.ljust(128, b"\0") + bytes.fromhex("20002c510008010112345678"), 32 << 16
        yield make.error(by, to, kind, code, quote, rest, self.next_ident(), self.rng.random() < 0.1)

    def error_in(self):
        leg = self.some_leg((UDP, UDP_LITE, ICMP, TCP, SCTP))
        if leg and leg.remote[0] not in self.model.pool:
            by = leg.remote[0] if self.rng.random() < 0.5 else self.rng.choice(STRANGERS)
            yield from self.error_about(by, leg.public[0], self.seen(leg, leg.public, leg.remote), by)

    def error_out(self):
        """An error of a customer; one about a hairpin reaches the other customer."""
        leg = self.some_leg((UDP, UDP_LITE, ICMP, TCP, SCTP))
        if leg and (leg.protocol != ICMP or leg.remote[0] not in self.model.pool):
            by = leg.inside[0] if self.rng.random() < 0.5 else self.rng.choice(self.customers)
            yield from self.error_about(by, leg.remote[0], self.seen(leg, leg.remote, leg.inside), by)

    def fragmented(self):
        leg = self.some_leg((UDP, ICMP)) if self.rng.random() < 0.5 else None
        data = self.rng.randbytes(self.rng.randint(40, 200))
        if leg and leg.remote[0] not in self.model.pool:
            whole = self.of(leg.protocol, leg.remote, leg.public, data, self.next_ident())
        else:
            whole = make.udp(self.inside(), self.remote(), data, self.next_ident())
        pieces = make.fragments(whole, self.rng.choice(((24,), (8, 32), (16, 24, 40))))
        chance = self.rng.random()
        if chance < 0.4:
            self.rng.shuffle(pieces)
        elif chance < 0.5:
            pieces = pieces[1:]  # the first one never comes
        yield from pieces

    def new_talk(self):
        protocol = self.rng.choice((TCP, TCP, TCP, SCTP))
        self.port = self.port + 1 if self.port < 60_000 else 1024
        mapped = self.some_leg((protocol,)) if self.rng.random() < 0.3 else None
        if mapped and self.settings.filtering == 0:
            talk = Talk(protocol, mapped.inside, (self.rng.choice(STRANGERS), self.port), self.rng, mapped.public)
        else:
            inside = self.rng.choice(self.customers), self.rng.choice((self.port, 5000, 5001, 5002))
            talk = Talk(protocol, inside, (self.rng.choice(REMOTES), self.port), self.rng)
        self.talks.append(talk)
        yield talk.packet(self.next_ident())

    def talk(self):
        going_on = [talk for talk in self.talks[-40:] if talk.steps]
        if going_on:
            packet = self.rng.choice(going_on).packet(self.next_ident())
            if packet:
                yield packet

    def without_beginning(self):
        source, to = self.inside(), self.remote()
        yield self.rng.choice((
            lambda: make.tcp(source, to, make.ACK, 1, 2, b"x", self.next_ident()),
            lambda: make.tcp(source, to, make.RST, 1, 2, b"", self.next_ident()),
            lambda: make.tcp(source, to, make.SYN | make.ACK, 1, 2, b"", self.next_ident()),
            lambda: make.sctp(source, to, 5, make.DATA, bytes(12) + b"data", self.next_ident()),
        ))()

    def lives(self, session):
        """True if the session lives as long as this epoch, whatever the packets before it do."""
        return session and session.protocol in (UDP, ICMP) and session.is_live and session.deadline > (self.epoch + 1) * EPOCH_NS

    def hairpin(self):
        """Packets of a customer to another one's public end. The model must learn the sender's public end, which no packet shows if the
        receiver's filter drops this one: so either another packet has shown it, or the receiver takes this one."""
        receiver = self.some_leg((UDP, UDP, TCP, ICMP))
        if receiver is None:
            return
        protocol, to = receiver.protocol, receiver.public
        if receiver.remote[0] in self.model.pool and self.rng.random() < 0.6:
            if protocol == UDP and self.lives(receiver):
                yield from self.perhaps_divided(make.udp(receiver.inside, receiver.remote, self.data() + b"answer", self.next_ident()))
            return
        if self.settings.mapping == 0:
            yield from self.holes(receiver) if protocol == UDP and self.rng.random() < 0.3 else self.shown_hairpin(protocol, to)
        elif self.settings.filtering == 0 and protocol == UDP and self.lives(receiver) and receiver.by_inside:
            if self.model.sessions[receiver.inside[0]] < self.settings.sessions // 2 and receiver.inside[0] not in self.customers[:4]:
                yield make.udp(self.inside(), to, self.data(), self.next_ident())

    def shown_hairpin(self, protocol, to):
        """A packet that shows the sender's public end, and one to another customer's."""
        sender = self.inside() if protocol != ICMP else (self.rng.choice(self.customers), to[1])
        remote = self.remote()
        if protocol == ICMP:
            yield make.query(sender[0], remote[0], 8, to[1], b"", self.next_ident())
            yield make.query(sender[0], to[0], 8, to[1], b"", self.next_ident())
        else:
            yield self.of(protocol, sender, remote, self.data(), self.next_ident())
            packet = self.of(protocol, sender, to, self.data() + b"hairpin", self.next_ident())
            yield from self.perhaps_divided(packet) if protocol == UDP else (packet,)

    def holes(self, one):
        """Packets of two customers to each other's public ends."""
        other = self.some_leg((UDP,))
        if other and self.lives(one) and self.lives(other) and one.inside != other.inside:
            for _ in range(2):
                yield make.udp(one.inside, other.public, self.data(), self.next_ident())
                yield make.udp(other.inside, one.public, self.data(), self.next_ident())

    def perhaps_divided(self, packet):
        pieces = make.fragments(packet, (8,)) if self.rng.random() < 0.3 else [packet]
        if self.rng.random() < 0.3:
            self.rng.shuffle(pieces)
        yield from pieces

    def untouched(self):
        inside = self.inside()
        yield self.rng.choice((
            lambda: make.udp(inside, (EXEMPT, 53), self.data(), self.next_ident()),
            lambda: make.udp((EXEMPT, 53), inside, self.data(), self.next_ident()),
            lambda: make.tcp((OTHER, 99), self.remote(), make.ACK, 1, 2, b"x", self.next_ident()),
        ))()

    def many(self):
        """A customer opens more sessions than it has ports."""
        customer, to = self.rng.choice(self.customers[:4]), self.remote()
        first = self.rng.randrange(10_000, 60_000)
        for port in range(first, first + self.rng.randrange(150)):
            yield make.udp((customer, port), to, b"", self.next_ident())
