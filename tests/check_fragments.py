"""The part of check_balance.py about later fragments, which may leave in another order than they came."""

import collections
import ipaddress

import packets


def without(capture, later):
    """Yields the packets of a capture but its later fragments, which it appends to `later`: (number, packet, `packets.Part`)."""
    for number, packet in enumerate(capture, 1):
        part = packets.part_of(capture.link_of(packet), packet[2])
        if part is not None and part.is_later:
            later.append((number, packet, part))
        else:
            yield packet


def judge_all(judge, originals, translations):
    """Judges all later fragments, as `without` lists them. Returns how many of the originals have no translation."""
    waiting = collections.defaultdict(list)
    for _, packet, part in originals:
        waiting[packet[0], packet[1], part.rest].append((packet[2], part))
    for number, packet, part in translations:
        same = waiting[packet[0], packet[1], part.rest]
        if not same:
            judge.error(number, "of the translated capture is a later fragment without an original")
            continue
        # Among duplicates with equal times, the one that goes to the same place.
        before, was = same.pop(next((i for i, (data, _) in enumerate(same) if data == packet[2]), 0))
        _judge(judge, number, before, was, packet[2])
    return sum(map(len, waiting.values()))


def _judge(judge, number, before, part, after):
    if before == after:
        judge.untouched += 1
        return
    middle, end = part.addresses + part.size, part.addresses + 2 * part.size
    if part.size == 4:
        was, now = (int.from_bytes(data[part.addresses - 2 : part.addresses], "big") for data in (before, after))
        if packets.adjusted(was, before[part.addresses : end], after[part.addresses : end]) % 0xFFFF != now % 0xFFFF:
            judge.error(number, "of the translated capture is a later fragment with another checksum than the new addresses make")
    if before[middle:end] == after[middle:end]:
        judge.replies += 1
        return
    judge.translated += 1
    backend = after[middle:end]
    judge.packets_of[backend] += 1
    if backend not in judge.backends_of[part.datagram]:
        judge.error(number, f"of the translated capture is a later fragment to {ipaddress.ip_address(backend)}, to which no first one went")
