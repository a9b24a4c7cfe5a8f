#!/usr/bin/env python3
"""Tests of single requirements of the RFCs about NAT, each named after its requirement, by replays in simulated time. docs/nat-rfcs.md lists
them.

    nat_requirements_test.py MILLRACE [TEST...]
"""

import collections
import itertools
import json
import unittest

import nat_packets as make
from cli_case import Case
from nat_replay import Nat
from packets import ICMP, TCP, UDP

A, B, C = (bytes((10, 0, 0, n)) for n in (1, 2, 3))
X, Y = bytes((9, 9, 9, 1)), bytes((9, 9, 9, 2))
ROUTER = bytes((192, 0, 2, 1))
WEB, DNS, OTHER = (X, 80), (X, 53), (Y, 53)
PROTOCOLS = {"tcp": TCP, "udp": UDP, "icmp": ICMP}


def source(packet):
    """Returns the end that a packet comes from."""
    at = 24 if packet[9] == ICMP else 20
    return packet[12:16], int.from_bytes(packet[at : at + 2], "big")


def syn(inside, remote, seq=100):
    return make.tcp(inside, remote, make.SYN, seq)


class Requirements(Case):
    def nat(self, *arguments, **named):
        return Nat(self, *arguments, **named)

    def open_udp(self, nat, seconds=0, inside=(A, 5000), remote=DNS):
        """Opens a session; returns its public end."""
        left = nat.one(seconds, make.udp(inside, remote, b"?"))
        self.assertIsNotNone(left, nat.dropped())
        return source(left)

    def open_tcp(self, nat, seconds=0, inside=(A, 5000), remote=WEB):
        public = source(nat.one(seconds, syn(inside, remote)))
        left = nat.send(seconds, make.tcp(remote, public, make.SYN | make.ACK, 500, 101), make.tcp(inside, remote, make.ACK, 101, 501))
        self.assertNotIn(None, left)
        return public

    def passes(self, nat, seconds, packet, inside):
        """Returns whether a packet from outside reaches the inside end, unchanged but for its destination."""
        left = nat.one(seconds, packet)
        if left is not None:
            sender = packet[12:16], int.from_bytes(packet[20:22], "big")
            self.assertEqual(left, make.rewritten(packet, sender, inside))
        return left is not None

    def test_a_seed_repeats_every_choice(self):
        left = set()
        for _ in range(3):
            nat = self.nat()
            left.add(tuple(nat.send(0, *(make.udp((host, 5000 + n), DNS) for n in range(50) for host in (A, B, C)))))
        self.assertEqual(len(left), 1)

    # RFC 4787

    def test_rfc4787_req3a_high_ports_stay_high(self):
        nat = self.nat()
        left = nat.send(0, *(make.udp((A, port), DNS) for port in range(1024, 65536, 977)))
        self.assertTrue(all(source(packet)[1] >= 1024 for packet in left))

    def test_rfc4787_req5_a_udp_mapping_lives_two_minutes(self):
        for seconds, lives in ((119, True), (121, False)):
            nat = self.nat()
            public = self.open_udp(nat)
            self.assertEqual(self.passes(nat, seconds, make.udp(DNS, public, b"!"), (A, 5000)), lives)

    def test_rfc4787_req5c_with_an_answer_five_minutes(self):
        for seconds, lives in ((299, True), (301, False)):
            nat = self.nat()
            public = self.open_udp(nat)
            self.assertTrue(self.passes(nat, 1, make.udp(DNS, public, b"!"), (A, 5000)))
            self.assertEqual(self.passes(nat, seconds, make.udp(DNS, public, b"!"), (A, 5000)), lives)

    def test_rfc4787_req6_an_inbound_flood_keeps_no_mapping_alive(self):
        nat = self.nat()
        public = self.open_udp(nat)
        left = nat.send_all([(second, make.udp(DNS, public, b"flood")) for second in range(1, 600)])
        self.assertEqual([packet is not None for packet in left], [True] * 299 + [False] * 300)

    def test_rfc4787_req6_an_inbound_flood_keeps_no_connection_alive(self):
        """An established one and a reset one; packets that change nothing come from outside all the time."""
        for reset, timeout, step in ((False, 7440, 500), (True, 240, 50)):
            nat = self.nat()
            public = self.open_tcp(nat)
            nat.send(1, *([make.tcp(WEB, public, make.RST, 501)] if reset else []))
            times = list(range(step, 3 * timeout, step))
            left = nat.send_all([(second, make.tcp(WEB, public, make.RST if reset else make.ACK, 501, 101)) for second in times])
            self.assertEqual([packet is not None for packet in left], [second < timeout for second in times])

    def test_rfc4787_req9a_and_rfc5382_req8_hairpins_come_from_the_public_end(self):
        nat = self.nat('filtering = "endpoint-independent"')
        for packet in (make.udp, syn):
            public_b, public_a = (source(nat.one(0, packet((host, 6000), DNS))) for host in (B, A))
            hairpin = packet((A, 6000), public_b)
            self.assertEqual(nat.one(1, hairpin), make.rewritten(hairpin, public_a, (B, 6000)))

    def test_rfc4787_req9_and_rfc5382_req8_customers_punch_holes_to_each_other(self):
        """With each filtering: packets of the one pass once the other has sent to him, or to his address, or always."""
        for filtering, passes_before, passes_elsewhere in (
            ("endpoint-independent", True, True), ("address-dependent", False, True), ("address-and-port-dependent", False, False)
        ):
            nat = self.nat(f'filtering = "{filtering}"')
            for packet in (make.udp, syn):
                public_b, public_a = (source(nat.one(0, packet((host, 6000), DNS))) for host in (B, A))
                to_b, to_a = packet((A, 6000), public_b), packet((B, 6000), public_a)
                self.assertEqual(nat.one(1, to_b) is not None, passes_before)
                self.assertEqual(nat.one(2, to_a), make.rewritten(to_a, public_b, (A, 6000)))
                self.assertEqual(nat.one(3, to_b), make.rewritten(to_b, public_a, (B, 6000)))
                public_other = source(nat.one(4, packet((A, 6001), DNS)))
                elsewhere = packet((A, 6001), public_b)
                self.assertEqual(nat.one(5, elsewhere), make.rewritten(elsewhere, public_other, (B, 6000)) if passes_elsewhere else None)

    def test_a_firewall_judges_hairpins_like_packets_to_the_internet_and_from_there(self):
        table = '[[{}]]\nname = "{}"\n{}\n'.format
        zones = table("zone", "homes", 'prefixes = ["10.0.0.0/8"]') + table("zone", "internet", 'prefixes = ["0.0.0.0/0"]')
        out, back = (table("firewall.rule", f"from {one}", f'from = "{one}"\nto = "{other}"\naction = "accept"')
                     for one, other in (("homes", "internet"), ("internet", "homes")))
        for order in ('"firewall", "nat"', '"nat", "firewall"'):
            for rules, passes in ((zones + out, False), (zones + out + back, True)):
                nat = self.nat('filtering = "endpoint-independent"', more=rules, function=f"chain = [{order}]")
                hairpin = make.udp((A, 6000), source(nat.one(0, make.udp((B, 6000), DNS))))
                left = nat.one(1, hairpin)
                self.assertEqual(left, make.rewritten(hairpin, source(left), (B, 6000)) if passes else None)
                self.assertEqual(nat.dropped(), {} if passes else {"denied": 1})

    def test_rfc4787_req11_nothing_changes_when_ports_run_out(self):
        """With 99 % of a pool's ports in use, mapping, filtering and pairing are as before."""
        nat = self.nat('ports = "1024-33791"\nblock_size = 64\nfiltering = "address-dependent"', addresses='"198.51.100.9"')
        hosts = [bytes((10, 1, n >> 6, n & 63)) for n in range(507)]  # of 512 blocks
        left = nat.send_all([(n / 1000 + port / 1e6, make.udp((host, 2000 + port), DNS)) for n, host in enumerate(hosts) for port in range(64)])
        ends = [source(packet) for packet in left]
        self.assertEqual(len(set(ends)), 507 * 64)
        public = ends[64 * 100]
        inside = (hosts[100], 2000)
        again = nat.send(10, make.udp(inside, OTHER), make.udp((X, 99), public), make.udp((Y, 99), public), make.udp((C, 7), public))
        self.assertEqual((source(again[0]), again[1] is not None, again[2] is not None, again[3]), (public, True, True, None))
        fresh = self.open_udp(nat, 11, (C, 8001))
        self.assertEqual((fresh in ends, fresh[1] % 2), (False, 1))

    def test_rfc4787_req12_and_rfc5382_req10_no_icmp_message_ends_a_mapping(self):
        for protocol, opens in (("udp", self.open_udp), ("tcp", self.open_tcp)):
            nat = self.nat()
            public = opens(nat)
            remote = DNS if protocol == "udp" else WEB
            build = make.udp if protocol == "udp" else lambda a, b: make.tcp(a, b, make.ACK, 501, 101)
            quote = build(public, remote)
            errors = [make.error(X, public[0], kind, code, quote, 0) for kind in range(256) for code in ((0, 1, 2, 3, 4, 13) if kind == 3 else (0,))]
            nat.send(1, *errors)
            self.assertTrue(self.passes(nat, 2, build(remote, public), (A, 5000)), protocol)

    def test_rfc4787_req14_fragments_in_every_order(self):
        for order in itertools.permutations(range(4)):
            nat = self.nat()
            out = make.fragments(make.udp((A, 5000), DNS, bytes(range(200)), 9), (48, 104, 160))
            left = nat.send(0, *(out[n] for n in order))
            self.assertNotIn(None, left, order)
            public = source(left[order.index(0)])
            back = make.fragments(make.udp(DNS, public, bytes(range(200)), 10), (48, 104, 160))
            whole = make.udp(DNS, (A, 5000), bytes(range(200)), 10)
            self.assertEqual(nat.send(1, *(back[n] for n in order)), [make.fragments(whole, (48, 104, 160))[n] for n in order])

    def test_rfc4787_req14a_a_flood_of_fragments_harms_nobody_else(self):
        nat = self.nat()
        flood = [make.fragments(make.udp((B, 7), OTHER, bytes(64), n), (32,))[n % 2] for n in range(20_000)]
        first, second = make.fragments(make.udp((A, 5000), DNS, bytes(64), 9), (32,))
        left = nat.send_all([(n / 1e5, piece) for n, piece in enumerate([*flood[:10_000], second, *flood[10_000:15_000], first, *flood[15_000:]])])
        self.assertIsNotNone(left[10_000])
        self.assertIsNotNone(left[15_001])

    # RFC 5382

    def test_rfc5382_req1_tcp_keeps_its_public_end(self):
        nat = self.nat()
        ends = {source(packet) for packet in nat.send(0, *(syn((A, 5000), to) for to in (WEB, DNS, OTHER)))}
        self.assertEqual(len(ends), 1)

    def test_rfc5382_req2a_both_sides_may_open_at_once(self):
        nat = self.nat()
        public = source(nat.one(0, syn((A, 5000), WEB)))
        for packet in (make.tcp(WEB, public, make.SYN, 500), make.tcp(WEB, public, make.SYN | make.ACK, 500, 101)):
            self.assertTrue(self.passes(nat, 1, packet, (A, 5000)))
        self.assertIsNotNone(nat.one(2, make.tcp((A, 5000), WEB, make.SYN | make.ACK, 100, 501)))
        self.assertTrue(self.passes(nat, 100, make.tcp(WEB, public, make.ACK, 501, 101, b"data"), (A, 5000)))

    def test_rfc5382_req3_filters_as_the_pool_says(self):
        passing = {"endpoint-independent": (True, True), "address-dependent": (True, False), "address-and-port-dependent": (False, False)}
        for filtering, expected in passing.items():
            nat = self.nat(f'filtering = "{filtering}"')
            public = self.open_tcp(nat)
            found = tuple(self.passes(nat, 1, syn(end, public), (A, 5000)) for end in ((X, 81), (Y, 80)))
            self.assertEqual(found, expected, filtering)

    def test_rfc5382_req4_an_unsolicited_syn_gets_no_answer(self):
        nat = self.nat()
        public = self.open_tcp(nat)
        self.assertEqual(nat.send(1, syn(OTHER, public), syn(OTHER, (public[0], 4444))), [None, None])
        self.assertEqual((nat.stats["packets"]["generated"], nat.dropped()), (0, {"no_mapping": 2}))
        # The inside's own SYN to that end may follow.
        self.assertIsNotNone(nat.one(3, syn((A, 5000), OTHER)))
        self.assertTrue(self.passes(nat, 4, syn(OTHER, public), (A, 5000)))

    def test_rfc5382_req5_established_two_hours_four_minutes_half_open_four_minutes(self):
        for seconds, lives in ((7439, True), (7441, False)):
            nat = self.nat()
            public = self.open_tcp(nat)
            self.assertEqual(self.passes(nat, seconds, make.tcp(WEB, public, make.ACK, 501, 101, b"x"), (A, 5000)), lives)
        for seconds, lives in ((239, True), (241, False)):
            nat = self.nat()
            public = source(nat.one(0, syn((A, 5000), WEB)))
            self.assertEqual(self.passes(nat, seconds, make.tcp(WEB, public, make.SYN | make.ACK, 500, 101), (A, 5000)), lives)

    def test_rfc5382_req7_no_two_ends_have_one_port(self):
        nat = self.nat("block_size = 64\nblocks_per_customer = 2")
        left = nat.send(0, *(syn((A, 5000 + n), WEB) for n in range(200)))
        ends = [source(packet) for packet in left if packet]
        self.assertEqual((len(ends), len(set(ends))), (128, 128))

    def test_rfc5382_req9_unreachable_reaches_the_inside(self):
        nat = self.nat()
        public = source(nat.one(0, syn((A, 5000), WEB)))
        error = make.error(ROUTER, public[0], 3, 1, make.rewritten(syn((A, 5000), WEB), public, WEB)[:28])
        self.assertEqual(nat.one(1, error), make.error(ROUTER, A, 3, 1, syn((A, 5000), WEB)[:28]))

    # RFC 5508

    def test_rfc5508_req1a_an_identifier_is_the_same_to_all(self):
        nat = self.nat()
        left = nat.send(0, *(make.query(A, to, kind, 77) for to in (X, Y) for kind in (8, 13)))
        self.assertEqual(len({source(packet) for packet in left}), 1)

    def test_rfc5508_req2_a_query_lives_a_minute(self):
        for seconds, lives in ((59, True), (61, False)):
            nat = self.nat()
            public = source(nat.one(0, make.query(A, X, 8, 77)))
            self.assertEqual(nat.one(seconds, make.query(X, public[0], 0, public[1])), make.query(X, A, 0, 77) if lives else None)

    def error_about(self, nat, public, remote=DNS, data=b"?"):
        return make.udp(public, remote, data), make.udp((A, 5000), remote, data)

    def test_rfc5508_req3_an_error_with_a_wrong_checksum_is_dropped(self):
        nat = self.nat()
        outside, _ = self.error_about(nat, public := self.open_udp(nat))
        self.assertIsNone(nat.one(1, make.error(ROUTER, public[0], 3, 1, outside, is_bad=True)))
        self.assertEqual(nat.dropped(), {"bad_checksum": 1})

    def test_rfc5508_req3b_options_in_quotes(self):
        def with_options(packet):
            head = bytes((0x46,)) + packet[1:2] + (len(packet) + 4).to_bytes(2, "big") + packet[4:10] + b"\0\0" + packet[12:20] + b"\1\1\1\0"
            return head[:10] + make.internet_checksum(head).to_bytes(2, "big") + head[12:] + packet[20:]

        self.check_quote(with_options, 0)

    def test_rfc5508_req3d_extensions_behind_quotes(self):
        """RFC 4884: the quote is filled up to 128 bytes, and extensions follow."""
        extensions = bytes.fromhex("20002c510008010112345678")
        self.check_quote(lambda packet: packet.ljust(128, b"\0") + extensions, 32 << 16)

    def check_quote(self, change, rest):
        nat = self.nat()
        outside, inside = self.error_about(nat, public := self.open_udp(nat))
        error = make.error(ROUTER, public[0], 11, 0, change(outside), rest)
        self.assertEqual(nat.one(1, error), make.error(ROUTER, A, 11, 0, change(inside), rest))

    def test_rfc5508_req3c_the_quoted_checksum_of_layer_4_does_not_matter(self):
        nat = self.nat()
        outside, _ = self.error_about(nat, public := self.open_udp(nat))
        self.assertIsNotNone(nat.one(1, make.error(ROUTER, public[0], 3, 1, outside[:26] + b"\x12\x34" + outside[28:])))

    def test_rfc5508_req5c_an_error_of_the_inside_has_the_public_source(self):
        nat = self.nat()
        public = self.open_udp(nat)
        answer = make.udp(DNS, public, b"!")
        inner = make.rewritten(answer, DNS, (A, 5000))
        for by in (A, C):  # the customer, and a router before him
            self.assertEqual(nat.one(1, make.error(by, X, 3, 3, inner)), make.error(public[0], X, 3, 3, answer))

    def test_rfc5508_req6_and_rfc7857_sec7_1_an_error_refreshes_nothing(self):
        nat = self.nat()
        public = self.open_udp(nat)
        answer = make.udp(DNS, (A, 5000), b"!")
        left = nat.send(100, make.error(ROUTER, public[0], 3, 1, make.udp(public, DNS)), make.error(A, X, 3, 3, answer))
        self.assertNotIn(None, left)
        self.assertFalse(self.passes(nat, 121, make.udp(DNS, public), (A, 5000)))

    def test_rfc5508_req7a_an_error_about_a_hairpin(self):
        nat = self.nat('filtering = "endpoint-independent"')
        public_b, public_a = (self.open_udp(nat, inside=(host, 6000)) for host in (B, A))
        hairpin = nat.one(1, make.udp((A, 6000), public_b))
        self.assertEqual(nat.one(2, make.error(B, public_a[0], 3, 3, hairpin)), make.error(public_b[0], A, 3, 3, make.udp((A, 6000), public_b)))

    # RFC 6888

    def test_rfc6888_req3_a_scattered_pool(self):
        addresses = [bytes((203, 0, 113, n)) for n in (5, 77, 200)]
        text = ", ".join('"' + ".".join(map(str, address)) + '"' for address in addresses)
        nat = self.nat("block_size = 4096", addresses=text)
        left = nat.send(0, *(make.udp((bytes((10, 0, 1, n)), 5000), DNS) for n in range(45)))
        self.assertEqual(collections.Counter(source(packet)[0] for packet in left), dict.fromkeys(addresses, 15))

    def test_rfc6888_req4_ports_of_a_customer_are_limited(self):
        nat = self.nat("block_size = 64\nblocks_per_customer = 3")
        left = nat.send(0, *(make.udp((A, 5000 + n), DNS) for n in range(200)), make.udp((B, 1), DNS))
        self.assertEqual([packet is not None for packet in left], [True] * 192 + [False] * 8 + [True])
        self.assertEqual(nat.dropped(), {"no_port": 8})

    def test_rfc6888_req5_the_16001st_session_is_refused(self):
        nat = self.nat()
        left = nat.send(0, *(syn((A, 5000), (X, 1000 + n)) for n in range(16_001)), syn((B, 5000), WEB))
        self.assertEqual(left.index(None), 16_000)
        self.assertIsNotNone(left[-1])
        self.assertEqual((nat.dropped(), nat.stats["nat_pools"][0]["over_limit"]), ({"customer_limit": 1}, 1))

    def test_rfc6888_req5_a_customer_without_answers_keeps_nobody_out(self):
        """Unanswered sessions of one customer fill their share of the table; others' sessions begin, and get time for an answer."""
        nat = self.nat(table="capacity = 1000")  # 250 half open
        flood = iter([make.udp((A, 5000), (X, 1000 + n)) for n in range(3000)])
        real = [self.open_udp(nat, 0, (B, 5000))]
        self.assertTrue(self.passes(nat, 0.1, make.udp(DNS, real[0]), (B, 5000)))
        for second in range(1, 11):
            nat.send_all([(second + n / 1000, packet) for n, packet in enumerate(itertools.islice(flood, 300))])
            real.append(self.open_udp(nat, second + 0.5, (B, 5000 + second)))
            self.assertTrue(self.passes(nat, second + 0.6, make.udp(DNS, real[-1]), (B, 5000 + second)), second)
        self.assertEqual(nat.dropped(), {})
        for n, public in enumerate(real):
            self.assertTrue(self.passes(nat, 20, make.udp(DNS, public), (B, 5000 + n)), n)

    def test_rfc6888_req7_endpoint_independent_filtering_can_be_chosen(self):
        nat = self.nat('filtering = "endpoint-independent"')
        self.assertTrue(self.passes(nat, 1, make.udp(OTHER, self.open_udp(nat)), (A, 5000)))

    def test_rfc6888_req8_a_port_rests_from_the_end_of_its_session(self):
        """The only session ends 120 s after its packet, when nothing else passes, and its port then rests for 120 s."""
        for seconds, is_free in ((150, False), (239, False), (361, True)):
            nat = self.nat('ports = "1024-1087"\nblock_size = 64\nblocks_per_customer = 1', addresses='"198.51.100.9"')
            self.open_udp(nat)
            nat.send(seconds - 120 if is_free else 0.5, make.udp((ROUTER, 1), DNS))  # a replay notes ends when packets come
            self.assertEqual(nat.one(seconds, make.udp((B, 5000), DNS)) is not None, is_free, seconds)

    def test_rfc6888_req11_without_a_port_nothing_else_suffers(self):
        nat = self.nat('ports = "1024-1087"\nblock_size = 64', addresses='"198.51.100.9"')
        ends = [source(packet) for packet in nat.send(0, *(make.udp((A, 5000 + n), DNS) for n in range(64)))]
        self.assertEqual(nat.send(1, make.udp((A, 6000), DNS), make.udp((B, 6000), DNS)), [None, None])
        self.assertEqual(nat.dropped(), {"no_port": 2})
        left = nat.send(2, *(make.udp(DNS, end) for end in ends))
        self.assertNotIn(None, left)

    def test_rfc6888_req13_all_ports_can_be_used(self):
        nat = self.nat("block_size = 512", addresses='"198.51.100.9"')
        packets = [make.udp((bytes((10, 2, n >> 9, 1)), 1024 + n), DNS) for n in range(64_512)]
        left = nat.send_all([(n / 1e5, packet) for n, packet in enumerate(packets)])
        self.assertEqual(len({source(packet) for packet in left if packet}), 64_512)

    def test_rfc6888_req15_first_ports_are_even_over_the_pool(self):
        """A chi-square test of 2,000 customers' first ports in 16 classes; the bound, for 15 degrees of freedom, is passed by chance once in 10^6."""
        nat = self.nat("block_size = 64\nblocks_per_customer = 1", addresses='"198.51.100.0/28"')
        left = nat.send(0, *(make.udp((bytes((10, 3, n >> 8, n & 255)), 5000), DNS) for n in range(2000)))
        seen = collections.Counter(source(packet)[1] % 64 // 4 for packet in left)
        self.assertLess(sum((seen[n] - 125) ** 2 / 125 for n in range(16)), 56.5, seen)

    def test_rfc6888_req4_fifteen_fresh_ports_a_second_from_one_home(self):
        """For 20 minutes at a timeout of 120 s, in the default pool: none is refused."""
        nat = self.nat()
        left = nat.send_all([(n / 15, make.udp((A, 1024 + n), DNS)) for n in range(15 * 1200)])
        self.assertNotIn(None, left)
        self.assertEqual(nat.dropped(), {})

    # RFC 7857

    def test_rfc7857_sec2_1_a_closing_connection_lives_four_minutes(self):
        for seconds, lives in ((239, True), (241, False)):
            nat = self.nat()
            public = self.open_tcp(nat)
            nat.send(1, make.tcp((A, 5000), WEB, make.FIN | make.ACK, 101, 501), make.tcp(WEB, public, make.FIN | make.ACK, 501, 102),
                     make.tcp((A, 5000), WEB, make.ACK, 102, 502))
            self.assertEqual(self.passes(nat, 1 + seconds, make.tcp(WEB, public, make.FIN | make.ACK, 501, 102), (A, 5000)), lives)

    def test_rfc7857_sec2_2_a_reset_connection_lives_four_minutes(self):
        for seconds, lives in ((239, True), (241, False)):
            nat = self.nat()
            public = self.open_tcp(nat)
            self.assertTrue(self.passes(nat, 1, make.tcp(WEB, public, make.RST, 501), (A, 5000)))
            self.assertEqual(self.passes(nat, 1 + seconds, make.tcp(WEB, public, make.ACK, 501, 101, b"late"), (A, 5000)), lives)

    def test_rfc7857_sec5_and_sec6_a_mapping_is_of_one_protocol(self):
        nat = self.nat('filtering = "endpoint-independent"')
        public = self.open_udp(nat)
        self.assertIsNone(nat.one(1, syn(OTHER, public)))
        self.assertIsNone(nat.one(1, make.udp_lite(OTHER, public, b"data")))

    # RFC 7422

    def test_rfc7422_a_port_names_its_customer_without_a_log(self):
        """Customers, addresses and blocks of the file are counted here by hand, and compared with what leaves and with what
        `millrace explain` says."""
        nat = self.nat('deterministic = true\nports = "2000-6999"\nblock_size = 128\nblocks_per_customer = 3',
                       f'[nat.log]\nfile = "{self.path("nat.log")}"', addresses='"198.51.100.8/31", "203.0.113.5"',
                       inside='"10.0.0.64/28", "10.1.0.1", "10.0.0.16/29"')
        customers = [bytes((10, 0, 0, 64 + n)) for n in range(16)] + [bytes((10, 1, 0, 1))] + [bytes((10, 0, 0, 16 + n)) for n in range(8)]
        addresses = [bytes((198, 51, 100, 8)), bytes((198, 51, 100, 9)), bytes((203, 0, 113, 5))]
        each = (6999 - 2000 + 1) // 128 // 3  # customers of an address

        def customer_of(end):
            address, port = end
            in_address = (port - 2000) // (3 * 128)
            if address not in addresses or not 0 <= in_address < each:
                return None
            return dict(enumerate(customers)).get(addresses.index(address) * each + in_address)

        self.assertLessEqual(len(customers), len(addresses) * each)
        flows = [(customer, 1000 + n) for n in range(3 * 128 + 1) for customer in customers]
        left = nat.send_all([(n / 1e5, make.udp(flow, DNS)) for n, flow in enumerate(flows)])
        ends = [(flow[0], source(packet)) for flow, packet in zip(flows, left) if packet]
        self.assertEqual(len(set(ends)), len(customers) * 3 * 128, "each has three blocks, and no more")
        self.assertTrue(all(customer_of(end) == customer for customer, end in ends))
        self.assertEqual(nat.dropped(), {"no_port": len(customers)})
        with open(self.path("nat.log"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        self.assertEqual([line["event"] for line in lines], ["list", "deterministic"])
        self.assertEqual({name: lines[1][name] for name in lines[1] if name != "time"}, {
            "event": "deterministic", "pool": "homes", "addresses": ["198.51.100.8/31", "203.0.113.5"], "first_port": 2000,
            "last_port": 6999, "ports_per_customer": 384, "customers": [
                {"first": "10.0.0.64", "last": "10.0.0.79", "count": 16}, {"first": "10.1.0.1", "last": "10.1.0.1", "count": 1},
                {"first": "10.0.0.16", "last": "10.0.0.23", "count": 8}]})

        def explained(one, other):
            ends = [f"{'.'.join(map(str, address))}:{port}" for address, port in (one, other)]
            return self.run_ok("explain", "--config", nat.config, "udp", *ends).stdout

        for end in [(address, port) for address in addresses for port in (1999, *range(2000, 7000, 384), 6999, 7000)]:
            customer = customer_of(end)
            says = f"a public port of {'.'.join(map(str, customer))}," if customer else "a public port that nobody has"
            self.assertIn(says, explained(DNS, end))
        for n, customer in enumerate(customers):
            first = 2000 + n % each * 384
            address = ".".join(map(str, addresses[n // each]))
            self.assertIn(f"of {address}, {first} to {first + 383}\n", explained((customer, 1), DNS))

    # RFC 5961

    def test_rfc5961_sec3_2_a_guessed_reset_closes_nothing(self):
        nat = self.nat()
        public = self.open_tcp(nat)
        nat.send(1, *(make.tcp(WEB, public, make.RST, 501 + guess) for guess in (1, 100, 30_000)))
        self.assertTrue(self.passes(nat, 7000, make.tcp(WEB, public, make.ACK, 501, 101, b"x"), (A, 5000)))

    def test_rfc5961_sec4_2_a_syn_on_a_live_connection_changes_nothing(self):
        nat = self.nat()
        public = self.open_tcp(nat)
        self.assertTrue(self.passes(nat, 1, make.tcp(WEB, public, make.SYN, 9999), (A, 5000)))
        self.assertEqual(source(nat.one(2, make.tcp((A, 5000), WEB, make.ACK, 101, 501))), public)
        self.assertTrue(self.passes(nat, 7000, make.tcp(WEB, public, make.ACK, 501, 101, b"x"), (A, 5000)))


if __name__ == "__main__":
    unittest.main()
