"""Reads captures of the two links of a running NAT as what came to it and what left, without the customers' tunnels: GRE (RFC 2784, RFC 2890).

What left must have one hop less than what came: it gets that hop back, so that both differ by the translation alone.
"""

import socket

import captures
import packets

GRE, KEY, IPV4 = 47, 0x2000, 0x0800
DONT_FRAGMENT = 0x4000


class Passing(tuple):
    """A packet (time in ns, its length, its bytes from the IP header on). `customer`: the far end and the key of his tunnel, or None. `goes_out`: it
    is, or was, a customer's, of captures that say so."""

    link, customer, goes_out = captures.RAW, None, None


def passages(access, internet, near, own, pool):
    """Returns what came, what left, and texts about headers of tunnels that are wrong. Packets of the NAT itself, at `own`, are left out."""
    near, own = socket.inet_aton(near), {socket.inet_aton(address) for address in own}
    came, left, wrong = [], [], []
    for time, _, frame in captures.Capture(access):
        packet = ip_in(frame)
        if packet is None or packet[9] != GRE:
            if packet and not own & {packet[12:16], packet[16:20]}:
                wrong.append(f"a packet without a tunnel: {packet.hex()}")
            continue
        leaves = packet[12:16] == near
        try:
            customer, inner = unwrapped(packet, leaves)
        except ValueError as error:
            wrong.append(f"{error}: {packet.hex()}")
            continue
        if not own & {inner[12:16], inner[16:20]}:
            (left if leaves else came).append(passing(time, with_a_hop(inner) if leaves else inner, customer))
    for time, _, frame in captures.Capture(internet):
        packet = ip_in(frame)
        if packet is None or own & {packet[12:16], packet[16:20]}:
            continue
        if packet[16:20] in pool:
            came.append(passing(time, packet))
        else:
            left.append(passing(time, with_a_hop(packet)))
    came.sort(key=lambda packet: packet[0])
    return came, left, wrong


def switched(inside, outside, until, own, customers, pool, hops):
    """Returns what came and what left, between a switch at the customers and one at the internet: captures of the links of customers and of
    hosts there. What left has so many hops less than what came. Left out: packets from or to addresses in `own`, and later ones than `until`,
    in ns, as the captures do not end at once. Customers send nothing to each other."""
    came, left = [], []
    for path, ends in ((inside, customers), (outside, pool)):
        for time, _, frame in captures.Capture(path):
            packet = ip_in(frame)
            if time > until or packet is None or packet[12:16] in own or packet[16:20] in own:
                continue
            # Translated ones are to customers on the one link, and not to the pool on the other.
            has_left = (packet[16:20] in ends) == (ends is customers)
            for _ in range(hops if has_left else 0):
                packet = with_a_hop(packet)
            one = passing(time, packet)
            one.goes_out = has_left != (ends is customers)
            (left if has_left else came).append(one)
    came.sort(key=lambda packet: packet[0])
    return came, left


def passing(time, data, customer=None):
    made = Passing((time, len(data), bytes(data)))
    made.customer = customer
    return made


def ip_in(frame):
    """Returns the IPv4 packet in an Ethernet frame, without padding; or None."""
    found = packets.find_ip(captures.ETHERNET, frame)
    if found is None or found[1] != 4:
        return None
    at = found[0]
    return frame[at : at + int.from_bytes(frame[at + 2 : at + 4], "big")]


def unwrapped(packet, leaves):
    """Returns the customer and the inner packet of an IPv4 packet with GRE. Raises ValueError if it is not as RFC 2784 and docs/nat.md ask."""
    flags, kind = int.from_bytes(packet[20:22], "big"), int.from_bytes(packet[22:24], "big")
    if packet[0] != 0x45 or packets.sum16(packet[:20]):
        raise ValueError("an outer header with a wrong length or checksum")
    if kind != IPV4 or flags & ~KEY:
        raise ValueError("no GRE with IPv4 inside")
    begin = 28 if flags & KEY else 24
    inner = packet[begin:]
    if int.from_bytes(inner[2:4], "big") != len(inner):
        raise ValueError("the inner packet has another length")
    if leaves and int.from_bytes(packet[6:8], "big") != DONT_FRAGMENT:
        raise ValueError("a tunnel's packet may be divided on its way")
    if leaves and (packet[1] != inner[1] or packet[8] == 0):
        raise ValueError("the outer traffic class is not the inner one, or no hops are left")
    return (packet[16:20] if leaves else packet[12:16], packet[24:begin]), inner


def with_a_hop(packet):
    hops = bytes((packet[8] + 1 & 0xFF, packet[9]))
    checksum = packets.adjusted(int.from_bytes(packet[10:12], "big"), packet[8:10], hops)
    return packet[:8] + hops + checksum.to_bytes(2, "big") + packet[12:]
