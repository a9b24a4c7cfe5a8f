#!/usr/bin/env python3
"""Checks the output of a NAT for a capture, packet by packet, from nothing but the two captures and the addresses of customers and pool.

    check_nat.py ORIGINAL TRANSLATED --customers PREFIX... --pool PREFIX... [--exempt PREFIX...]
    check_nat.py ACCESS INTERNET --near ADDRESS --own ADDRESS... --customers PREFIX... --pool PREFIX...

The second form judges captures of the two links of a running NAT, whose customers are behind GRE tunnels that end at `near` (nat_links.py); `own`: its
addresses, whose packets are not judged. A customer is then the far end and the key of his tunnel, and several may have one private address.

Confirms that
- a packet of a customer leaves with a source of the pool, a packet to the pool with a destination among the customers, and
  every other packet is byte-identical;
- the translation is invertible: a public end and a remote end lead to one inside end, and back;
- a public port of one customer is another customer's only after 120 s (RFC 6888, REQ-8); a customer has one address (RFC 4787, REQ-2);
- a translated packet differs in addresses, ports and identifiers only, and in the checksums over them, by exactly that difference
  (IPv4, TCP, UDP with 0 as no checksum, UDP-Lite, DCCP, ICMP, SCTP's CRC32c), so that right checksums stay right;
- an ICMP error has the ends of its session, outside and in its quote, and its checksums are right accordingly;
- later fragments have the addresses of their datagram's first one.

Exit status 1 if any of these does not hold, 2 if a file cannot be read. ICMP errors about no session may pass as they are (docs/nat.md).
"""

import argparse
import collections
import ipaddress
import sys

import captures
import nat_links
import packets
from packets import ICMP, L4_CHECKSUM, SCTP, UDP, UDP_LITE, sum16

REST_NS = 120 * captures.SECOND
FRESH_NS = 8 * captures.SECOND  # a session that sent a packet from inside so short a time ago lives: the least timeout is that of an aborted one, 10 s
TOGETHER_NS = 4 * captures.SECOND  # fragments so far apart are of two datagrams, one of which has the other's identification again
SHOWN = 10


class Set:
    """A set of IPv4 addresses, made of prefixes."""

    def __init__(self, prefixes):
        networks = [ipaddress.ip_network(prefix) for prefix in prefixes]
        self.parts = [(int(n.network_address), int(n.netmask)) for n in networks]
        self.known = {}

    def __contains__(self, address):
        if address not in self.known:
            number = int.from_bytes(address, "big")
            self.known[address] = any(number & mask == network for network, mask in self.parts)
        return self.known[address]


def numbers_at(flow):
    """Returns the places of the source's and the destination's number (port or identifier), or none."""
    if flow.ports:
        return flow.ports, flow.ports + 2
    if flow.protocol == ICMP:
        return flow.l4 + 4, flow.l4 + 4
    return ()


def number(data, at):
    return data[at] << 8 | data[at + 1]


def difference(flow, before, after):
    """Returns what `after` must not have: a change that translation does not make. None if there is none."""
    l3, expected = flow.l3, bytearray(before)
    addresses = slice(l3 + 12, l3 + 20)
    expected[addresses] = after[addresses]
    moved = sum16(after[addresses]) - sum16(before[addresses])
    for begin in sorted(set(numbers_at(flow))):
        expected[begin : begin + 2] = after[begin : begin + 2]
    text = check_sum(expected, before, after, l3 + 10, moved)
    if text:
        return f"IP {text}"
    ports = sum(number(after, at) - number(before, at) for at in set(numbers_at(flow)))
    if flow.protocol == SCTP:
        follow_crc(flow, expected, before, after)
    elif flow.protocol in L4_CHECKSUM or flow.protocol == ICMP:
        at = flow.l4 + L4_CHECKSUM.get(flow.protocol, 2)
        has_none = flow.protocol == UDP and at + 2 <= flow.end and number(before, at) == 0
        if at + 2 <= flow.end and not has_none:
            text = check_sum(expected, before, after, at, ports + (0 if flow.protocol == ICMP else moved))
            if text or (flow.protocol in (UDP, UDP_LITE) and number(after, at) == 0):
                return f"layer 4 {text or 'checksum became 0'}"
    if expected != after:
        where = next(i for i, (a, b) in enumerate(zip(expected, after)) if a != b)
        return f"byte {where} is {after[where]:#04x} and should be {expected[where]:#04x}"
    return None


def check_sum(expected, before, after, at, moved):
    if (number(before, at) - moved - number(after, at)) % 65535:
        return "checksum changed by something else than the translation's difference"
    expected[at : at + 2] = after[at : at + 2]
    return None


def follow_crc(flow, expected, before, after):
    ports = slice(flow.ports, flow.ports + 4)
    if flow.l4 + 12 > flow.end or flow.fragment or before[ports] == after[ports]:
        return
    flip = bytes(a ^ b for a, b in zip(before[ports], after[ports]))
    crc = int.from_bytes(before[flow.l4 + 8 : flow.l4 + 12], "little") ^ packets.crc32c_change(flip, flow.l4_wire - 4)
    expected[flow.l4 + 8 : flow.l4 + 12] = crc.to_bytes(4, "little")


def error_difference(quote, before, after):
    """Does what `difference` does for an ICMP error and its quote."""
    text = difference(quote.flow, before[quote.at : quote.quote_end], after[quote.at : quote.quote_end])
    if text:
        return f"in the quote: {text}"
    expected = bytearray(before)
    expected[quote.l3 + 12 : quote.l3 + 20] = after[quote.l3 + 12 : quote.l3 + 20]
    expected[quote.at : quote.quote_end] = after[quote.at : quote.quote_end]
    header = slice(quote.l3, quote.l3 + (before[quote.l3] & 15) * 4)
    for covered, at in ((header, quote.l3 + 10), (slice(quote.icmp, quote.end), quote.icmp + 2)):
        if (padded_sum(after[covered]) - padded_sum(before[covered])) % 65535:
            return f"the checksum at byte {at} changed by something else than the translation's difference"
        expected[at : at + 2] = after[at : at + 2]
    return None if expected == after else "an ICMP error changed where it must not"


def padded_sum(data):
    return sum16(data + b"\0" if len(data) % 2 else data)


def inside_of(end, customer):
    """Returns an inside end, with its customer in front: his tunnel, or else his address."""
    return customer or end[0], *end


class Judge:
    def __init__(self, link_type, customers, pool, exempt):
        self.link_type, self.customers, self.pool, self.exempt = link_type, Set(customers), Set(pool), Set(exempt)
        self.errors, self.counts, self.now = [], collections.Counter(), 0
        self.insides = {}  # (protocol, remote end, public end): [inside end, time of its last packet from inside]
        self.publics = {}  # (protocol, remote end, inside end): the same with the public end
        self.owners = {}  # (protocol, public end), or a block (address, number): [customer, time of his last packet]
        self.block_size, self.lost_session = 0, "wrong"
        self.addresses = {}  # customer: [public address, time]
        self.datagrams = {}  # by customer and datagram: the addresses and the customer that its first fragment left with, and when
        self.early = collections.defaultdict(list)  # by datagram: later fragments that came before the first one

    def wrong(self, at, text, kind="wrong"):
        self.counts[kind] += 1
        if kind == "wrong" and len(self.errors) < SHOWN:
            self.errors.append(f"packet {at}: {text}")

    def pair(self, at, original, translated):
        """Takes a packet and what left for it, or None."""
        if translated is None:
            self.counts["dropped"] += 1
            return
        self.now, _, before = original
        after = translated[2]
        link = getattr(original, "link", self.link_type)
        self.came_from, self.leaves_to = getattr(original, "customer", None), getattr(translated, "customer", None)
        flow, quote, part = packets.dissect(link, before), packets.quote_of(link, before), packets.part_of(link, before)
        if flow and flow.family == 4:
            self.flow(at, flow, before, after)
            if part:
                datagram = self.came_from, part.datagram
                self.datagrams[datagram] = (after[flow.l3 + 12 : flow.l3 + 20], self.leaves_to), self.now
                for one in self.early.pop(datagram, ()):
                    self.later(*one)
        elif quote and quote.family == 4 and before != after:
            self.quote(at, quote, before, after)
        elif part and part.size == 4 and before != after:
            self.later(at, (self.came_from, part.datagram), self.leaves_to, part, before, after)
        elif before != after:
            self.wrong(at, "changed, though it belongs to no session")
        else:
            self.counts["untouched"] += 1

    def later(self, at, datagram, leaves_to, part, before, after):
        first, time = self.datagrams.get(datagram, (None, 0))
        if first is None or self.now - time > TOGETHER_NS:
            self.early[datagram].append((at, datagram, leaves_to, part, before, after))
            return
        addresses, place = slice(part.addresses, part.addresses + 8), part.addresses - 2
        if (number(before, place) - sum16(after[addresses]) + sum16(before[addresses]) - number(after, place)) % 65535:
            self.wrong(at, "the IP checksum of a later fragment changed by something else than the translation's difference")
        self.counts["later fragments"] += 1
        if (after[addresses], leaves_to) != first:
            self.wrong(at, "a later fragment has not the addresses, or the customer, of the first one")

    def flow(self, at, flow, before, after):
        def ends(data):
            a, n = data[flow.l3 + 12 : flow.l3 + 20], [number(data, place) for place in numbers_at(flow)] or [None, None]
            return (a[:4], n[0]), (a[4:], n[1])

        (source, to), (new_source, new_to) = ends(before), ends(after)
        from_customer = self.came_from is not None or (source[0] in self.customers and to[0] not in self.exempt)
        to_pool = to[0] in self.pool
        if not from_customer and not to_pool:
            self.counts["untouched"] += 1
            if before != after:
                self.wrong(at, "changed, though it is from no customer and to no public address")
            return
        is_query = flow.protocol == ICMP
        text = difference(flow, before, after)
        if text:
            self.wrong(at, text)
        begins = flow.protocol == packets.TCP and flow.whole and before[flow.l4 + 13] & 0x12 == 2
        if from_customer and to_pool and is_query:
            self.counts["pings between customers"] += 1  # nothing shows their identifiers outside
            return
        if from_customer:
            self.counts["from inside"] += 1
            if new_source[0] not in self.pool:
                self.wrong(at, "a customer's packet leaves with a source that is not of the pool")
            self.session(at, flow.protocol, inside_of(source, self.came_from), new_source, (to[0], None) if is_query else to, begins, True)
        if to_pool:
            self.counts["to inside"] += 1
            if self.leaves_to is None and new_to[0] not in self.customers:
                self.wrong(at, "a packet to a public address leaves to no customer")
            remote = new_source if from_customer else source
            self.session(at, flow.protocol, inside_of(new_to, self.leaves_to), to, (remote[0], None) if is_query else remote, begins, from_customer)
        if not from_customer and (source[0] != new_source[0] or (not is_query and source != new_source)):
            self.wrong(at, "the source of a packet from outside was rewritten")
        if not to_pool and (to[0] != new_to[0] or (not is_query and to != new_to)):
            self.wrong(at, "the destination of a packet to the outside was rewritten")

    def session(self, at, protocol, inside, public, remote, begins, by_inside):
        """Notes that a packet of a session has passed, after checking that the session's ends are those of its earlier packets."""
        for known, key, end in ((self.insides, (protocol, remote, public), inside), (self.publics, (protocol, remote, inside), public)):
            was = known.get(key)
            if was and was[0] != end and self.now - was[1] < FRESH_NS and not begins:
                self.wrong(at, f"a live session of {key} had the end {was[0]}, and now has {end}", self.lost_session)
            if by_inside or not was or was[0] != end:  # only what the inside sends keeps every session alive
                known[key] = [end, self.now]
        self.own(at, "ports of another customer", (protocol, public), inside[0])
        if self.block_size:
            self.own(at, "blocks of another customer", (public[0], public[1] // self.block_size), inside[0])
        address = self.addresses.setdefault(inside[0], [public[0], self.now])
        if address[0] != public[0] and self.now - address[1] < FRESH_NS:
            self.wrong(at, "a customer has two public addresses")
        address[:] = public[0], self.now

    def own(self, at, what, part, customer):
        """Notes that a port or a block is this customer's, after checking that no other one had it a short time ago."""
        owner = self.owners.setdefault(part, [customer, self.now])
        if owner[0] != customer:
            self.counts[what] += 1
            if self.now - owner[1] < REST_NS:
                self.wrong(at, f"{part}, now {customer}'s, was {owner[0]}'s {(self.now - owner[1]) / 1e9:.3f} s ago")
        owner[:] = customer, self.now

    def quote(self, at, quote, before, after):
        self.counts["errors"] += 1
        text = error_difference(quote, before, after)
        if text:
            self.wrong(at, text)
        flow = quote.flow
        old, new = before[quote.at :], after[quote.at :]
        ends = [[(d[flow.l3 + 12 + 4 * n : flow.l3 + 16 + 4 * n], number(d, numbers_at(flow)[n]) if numbers_at(flow) else None) for n in (0, 1)]
                for d in (old, new)]
        is_query = flow.protocol == ICMP
        source, to, new_to = before[quote.l3 + 12 : quote.l3 + 16], before[quote.l3 + 16 : quote.l3 + 20], after[quote.l3 + 16 : quote.l3 + 20]
        from_customer, to_pool = self.came_from is not None or source in self.customers, to in self.pool
        # A hairpin whose sender has no session any more is unknown, and so is a session of which each hairpin was dropped.
        if to_pool and not (from_customer and new_to == to):
            public, remote, inside = ends[0][0], ends[from_customer][1], inside_of(ends[1][0], self.leaves_to)
            known = self.insides.get((flow.protocol, (remote[0], None) if is_query else remote, public))
            if (known is None and not from_customer) or (known and known[0] != inside) or new_to != inside[1]:
                self.wrong(at, f"an ICMP error about {public} went to {inside}")
        if from_customer or not to_pool:
            remote, inside, public = ends[0][0], inside_of(ends[0][1], self.came_from), ends[1][1]
            known = self.publics.get((flow.protocol, (remote[0], None) if is_query else remote, inside))
            if (known is None and not to_pool) or (known and known[0] != public) or after[quote.l3 + 12 : quote.l3 + 16] != public[0]:
                self.wrong(at, f"an ICMP error about {inside} names {public}")


def is_same(link, original, translated):
    """True if `translated` is what may have left for `original`."""
    if original[1] != translated[1] or len(original[2]) != len(translated[2]):
        return False
    before, after = original[2], translated[2]
    if before == after:
        return True
    flow, quote, part = packets.dissect(link, before), packets.quote_of(link, before), packets.part_of(link, before)
    if flow:
        return difference(flow, before, after) is None if flow.family == 4 else False
    if quote:
        return quote.family == 4 and error_difference(quote, before, after) is None
    return part is not None and part.rest == packets.part_of(link, after).rest if packets.part_of(link, after) else False


def pairs(original, translated, key=lambda packet: packet[0]):
    """Yields each packet with what left for it, or None; then None with each packet that left for none. `key` is the same for both: packets with one
    time, the key if none is given (a later fragment leaves behind the first one) may leave in another order."""
    waiting = collections.defaultdict(list)
    for packet in translated:
        waiting[key(packet)].append(packet)
    for packet in original:
        link = getattr(packet, "link", None) or original.link_type
        left = waiting.get(key(packet), [])
        one = next((one for one in left if is_same(link, packet, one)), None)
        if one is not None:
            left.remove(one)
        yield packet, one
    for left in waiting.values():
        for one in left:
            yield None, one


def check(original, translated, customers, pool, exempt=()):
    """Returns the judge of two captures, which names the errors."""
    one, other = captures.Capture(original), captures.Capture(translated)
    judge = Judge(one.link_type, customers, pool, exempt)
    return judged(judge, pairs(one, other))


def check_links(access, internet, near, own, customers, pool):
    """Does the same for captures of a running NAT's links. Packets are matched by what translation leaves as it is."""
    judge = Judge(captures.RAW, customers, pool, ())
    came, left, wrong = nat_links.passages(access, internet, near, own, Set(pool))
    for text in wrong:
        judge.wrong(0, text)
    return judged(judge, pairs(came, left, lambda packet: packet[2][2:8] + packet[2][9:10]))


def check_switches(inside, outside, until, own, customers, pool, hops, block_size):
    """Does the same for what captures of two switches have up to a time in ns, with a NAT of several servers between them, some of which fail: then a
    live session may be lost, and begin anew with another public end. That is counted, and no error. A block of ports must have one customer, as a port
    must."""
    judge = Judge(captures.RAW, customers, pool, ())
    judge.block_size, judge.lost_session = block_size, "sessions begun anew"
    came, left = nat_links.switched(inside, outside, until, Set(own), Set(customers), Set(pool), hops)
    # An answer may have the data, the length and the identification of its question.
    return judged(judge, pairs(came, left, lambda packet: (packet.goes_out, packet[2][2:8] + packet[2][9:10])))


def judged(judge, all_of_them):
    for at, (packet, left) in enumerate(all_of_them, 1):
        if packet is None:
            judge.wrong(at, f"a packet left that is no translation of one that came: {left[2][:60].hex()}")
        else:
            judge.pair(at, packet, left)
    for waiting in judge.early.values():
        judge.wrong(waiting[0][0], "a later fragment left without the first one")
    return judge


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("original")
    parser.add_argument("translated")
    for name in ("customers", "pool", "exempt", "own"):
        parser.add_argument(f"--{name}", nargs="+", default=[], metavar="PREFIX", required=name in ("customers", "pool"))
    parser.add_argument("--near", metavar="ADDRESS")
    given = parser.parse_args()
    try:
        if given.near:
            judge = check_links(given.original, given.translated, given.near, given.own, given.customers, given.pool)
        else:
            judge = check(given.original, given.translated, given.customers, given.pool, given.exempt)
    except (OSError, captures.NotACapture) as error:
        print(error, file=sys.stderr)
        return 2
    for text in judge.errors:
        print(text)
    print(", ".join(f"{count:,} {what}" for what, count in sorted(judge.counts.items())))
    return 1 if judge.counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
