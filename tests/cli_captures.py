"""The part of cli_test.py about captures: several interfaces, clocks that step, standard streams and pipes. tshark, if it is
installed, reads the written captures."""

import json
import os
import shutil
import signal
import subprocess
import threading
import time
import unittest

import captures
from captures_made import ETHERNET, IPV4, NULL, RAW, SLL, SLL2, WLAN, Pcapng, framed, pcap, udp
from cli_case import DONE, FAILED, MILLRACE, UNREADABLE, USAGE, Case

START = 1_700_000_000_000_000  # us


def mixed():
    """Returns a capture with five packets of four link types. Three of the four interfaces are described only after packets of the first."""
    return (Pcapng().interface(ETHERNET, 65535).packet(0, framed(ETHERNET, udp(0)), START)
            .interface(RAW, 96).packet(1, udp(1), START + 1000)
            .interface(SLL).interface(SLL2, resolution=9)
            .packet(2, framed(SLL, udp(2)), START + 2000)
            .packet(0, framed(ETHERNET, udp(3)), START + 3000)
            .packet(3, framed(SLL2, udp(4)), (START + 4000) * 1000))


class CaptureCase(Case):
    def stats_of(self, data, *arguments, status=DONE):
        """Replays the capture `data`; returns the statistics, and standard error."""
        name = self.write("in.pcapng", data)
        stats = self.path("s.json")
        result = self.run_it("replay", "--in", name, "--stats", stats, "--seed", "1", "--capacity", "10000", *arguments)
        self.assertEqual(result.returncode, status, result.stderr)
        with open(stats) as file:
            return json.load(file), result.stderr

    def read(self, name):
        """Returns (link type, time in ns, length on the wire, bytes) of each packet, read by captures.py."""
        capture = captures.Capture(self.path(name))
        return [(capture.link_of(packet), *packet) for packet in capture]

    def fields(self, name, *fields):
        if shutil.which("tshark") is None:
            self.skipTest("no tshark here")
        done = subprocess.run(["tshark", "-r", self.path(name), "-T", "fields", *(x for f in fields for x in ("-e", f))],
                              capture_output=True, text=True, check=True)
        self.assertNotIn("cut short", done.stderr)
        return [line.split("\t") for line in done.stdout.splitlines()]


class Interfaces(CaptureCase):
    def test_link_types_resolutions_and_byte_orders(self):
        for order in "<>":
            data = Pcapng(order).interface(ETHERNET).interface(RAW, 0, resolution=9).interface(IPV4, resolution=0x8A)
            data.interface(SLL, resolution=3, offset=1_600_000_000).interface(SLL2, resolution=0).interface(ETHERNET, 68, resolution=10)
            second = 1_700_000_000
            data.packet(0, framed(ETHERNET, udp(0)), second * 10**6)
            data.packet(1, udp(1), second * 10**9 + 1)
            data.packet(2, udp(2), second << 10 | 512)
            data.packet(3, framed(SLL, udp(3)), 100_000_000_000 + 600)
            data.packet(4, framed(SLL2, udp(4)), second + 1)
            data.packet(5, framed(ETHERNET, udp(5, size=40)), second * 10**10 + 15 * 10**9 + 9, wire=99)
            stats, said = self.stats_of(data.data, "--out", self.path("out"))
            self.assertEqual((stats["packets"]["in"], stats["packets"]["tracked"], said), (6, 6, ""))
            at = second * 10**9
            links = [ETHERNET, RAW, IPV4, SLL, SLL2, ETHERNET]
            times = [at, at + 1, at + 5 * 10**8, at + 6 * 10**8, at + 10**9, at + 15 * 10**8]
            wires = [50, 36, 36, 52, 56, 99]
            self.assertEqual([p[:3] for p in self.read("out")], list(zip(links, times, wires)))
            self.assertEqual([p[:3] for p in self.read("out")], [p[:3] for p in self.read("in.pcapng")])
            shown = self.fields("out", "frame.encap_type", "frame.time_epoch", "ip.dst", "ip.checksum.status")
            # Wiretap's numbers of Ethernet, raw IP, raw IPv4, Linux cooked, its version 2, and Ethernet again.
            self.assertEqual([row[0] for row in shown], ["1", "7", "129", "25", "210", "1"])
            self.assertEqual([row[1] for row in shown], [f"{t // 10**9}.{t % 10**9:09}" for t in times])
            self.assertTrue(all(row[2].startswith("10.0.0.") for row in shown), shown)

    def test_an_interface_that_is_described_after_packets(self):
        stats, said = self.stats_of(mixed().data, "--out", self.path("out"))
        self.assertEqual((stats["packets"]["in"], stats["packets"]["tracked"], said), (5, 5, ""))
        self.assertEqual([p[0] for p in self.read("out")], [ETHERNET, RAW, SLL, ETHERNET, SLL2])

    def test_several_sections_in_either_byte_order(self):
        data = Pcapng("<").interface(RAW).packet(0, udp(0))
        data.section(">").interface(ETHERNET).interface(RAW).packet(1, udp(1)).packet(0, framed(ETHERNET, udp(2)))
        data.section("<").interface(SLL).packet(0, framed(SLL, udp(3))).section("<")
        stats, _ = self.stats_of(data.data, "--out", self.path("out"))
        self.assertEqual((stats["packets"]["in"], stats["packets"]["tracked"]), (4, 4))
        self.assertEqual([p[0] for p in self.read("out")], [RAW, RAW, ETHERNET, SLL])
        # A section does not have the interfaces of the sections before it.
        stats, said = self.stats_of(data.data + Pcapng().packet(0, udp(4)).data, status=UNREADABLE)
        self.assertEqual(stats["packets"]["in"], 4)
        self.assertIn("interface 0", said)

    def test_all_kinds_of_packet_blocks(self):
        data = Pcapng().interface(ETHERNET, 60).interface(RAW).old_packet(1, udp(0)).simple(framed(ETHERNET, udp(1)))
        data.simple(framed(ETHERNET, udp(2, size=40))[:60], wire=82)
        stats, _ = self.stats_of(data.data, "--out", self.path("out"))
        self.assertEqual(stats["packets"]["in"], 3)
        at = START * 1000  # a simple packet block has no time: it gets the time of the previous packet
        self.assertEqual([p[:3] for p in self.read("out")], [(RAW, at, 36), (ETHERNET, at, 50), (ETHERNET, at, 82)])

    def test_one_link_type_stays_pcap(self):
        for data in (Pcapng().interface(ETHERNET, 65535).interface(ETHERNET, 262144).packet(0, framed(ETHERNET, udp(0)))
                     .packet(1, framed(ETHERNET, udp(1))),
                     Pcapng().interface(NULL).interface(ETHERNET).interface(WLAN).packet(1, framed(ETHERNET, udp(0)))
                     .packet(1, framed(ETHERNET, udp(1)))):
            stats, _ = self.stats_of(data.data, "--out", self.path("out"))
            self.assertEqual(stats["packets"]["in"], 2)
            with open(self.path("out"), "rb") as file:
                self.assertEqual(file.read(4), b"\xd4\xc3\xb2\xa1")
            self.assertEqual([p[0] for p in self.read("out")], [ETHERNET] * 2)
            self.assertEqual(len(self.fields("out", "frame.number")), 2)

    def test_a_link_type_that_is_not_read_is_refused_once_it_has_packets(self):
        data = mixed().interface(WLAN).packet(4, b"x" * 60).data
        for how in ((), ("--quiet",)):
            self.refuse(UNREADABLE, ["packet 6", "interface 4", "IEEE802_11 (105)"], "replay", "--in",
                        self.write("in.pcapng", data), *how)

    def test_what_breaks_in_the_middle_is_never_well(self):
        for more, words in ((Pcapng().interface().packet(0, framed(ETHERNET, udp(9))).data[:-30], "cut short"),
                            (Pcapng().packet(0, udp(1)).data, "interface 0"),
                            (b"\6\0\0\0" + b"\xf0\xff\xff\xff" + bytes(40), "a block of"),
                            (b"\6\0\0\0" + b"\x11\0\0\0" + bytes(40), "impossible length 17"),
                            (b"\x55\0\0\0" + b"\xf0\xff\xff\xff" + bytes(40), "cut short")):
            for how in ((), ("--quiet",), ("--windows", "2"), ("--workers", "2", "--quiet")):
                stats, said = self.stats_of(mixed().data + more, *how, status=UNREADABLE)
                self.assertEqual(stats["packets"]["in"], 10 if "--windows" in how else 5)
                self.assertIn("unreadable after 5 packets", said)
                self.assertIn(words, said)
                self.assertEqual(said.count("\n"), 1, said)
                self.assertIn(said.split("millrace: warning: ")[1].strip(), stats["warnings"])

    def test_advice_about_a_part_says_so(self):
        name = self.write("cut.pcapng", mixed().data[:-10])
        result = self.run_it("advise", "--in", name, "--seconds", "0.01", "--workers", "1", "--quiet", "--json", self.path("a"))
        self.assertEqual(result.returncode, UNREADABLE, result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertIn("unreadable after 4 packets (cut short)", result.stderr)
        with open(self.path("a")) as file:
            self.assertEqual(json.load(file)["capture"]["packets"], 4)

    def test_cut_anywhere(self):
        whole = mixed().data
        ends = set()
        at = 0
        while at < len(whole):
            at += int.from_bytes(whole[at + 4:at + 8], "little")
            ends.add(at)
        for cut in sorted({*range(1, len(whole), 7), *ends}):
            name = self.write("in.pcapng", whole[:cut])
            result = self.run_it("replay", "--in", name, "--stats", "-", "--quiet", "--capacity", "100")
            self.assertEqual(result.returncode, DONE if cut in ends else UNREADABLE, (cut, result.stderr))
            self.assertEqual(result.stderr.count("\n"), 0 if cut in ends else 1, (cut, result.stderr))

    def test_several_workers_write_what_one_writes(self):
        data = Pcapng().interface(ETHERNET).interface(RAW).interface(SLL)
        links = (ETHERNET, RAW, SLL)
        for i in range(3000):
            on = i * 7 // 5 % 3
            data.packet(on, framed(links[on], udp(i % 300)), START + 500 * i)
        self.write("in.pcapng", data.data)
        outs = set()
        for how in ((), ("--workers", "3")):
            stats, _ = self.stats_of(data.data, "--out", self.path("out"), "--loops", "2", *how)
            self.assertEqual((stats["packets"]["in"], stats["packets"]["tracked"]), (6000, 6000))
            with open(self.path("out"), "rb") as file:
                outs.add(file.read())
        self.assertEqual(len(outs), 1)
        out = self.read("out")
        self.assertEqual([p[0] for p in out[:3000]], [p[0] for p in self.read("in.pcapng")])
        shown = self.fields("out", "frame.encap_type", "ip.dst")
        self.assertEqual(len(shown), 6000)
        self.assertTrue(all(row[1].startswith("10.0.0.") for row in shown))
        stats, _ = self.stats_of(data.data, "--out", self.path("out"), "--windows", "3")
        self.assertEqual((stats["packets"]["in"], stats["packets"]["tracked"]), (9000, 9000))
        self.assertEqual([p[0] for p in self.read("out")], [p[0] for p in self.read("in.pcapng") for _ in range(3)])

    def test_times_that_pcap_cannot_tell(self):
        late = (1 << 32) * 10**6 + 5
        data = Pcapng().interface(RAW).packet(0, udp(0), late).packet(0, udp(1), late + 10)
        self.stats_of(data.data, "--out", self.path("out"))
        self.assertEqual([p[1] for p in self.read("out")], [late * 1000, (late + 10) * 1000])
        self.assertEqual([row[0] for row in self.fields("out", "frame.time_epoch")],
                         [f"{1 << 32}.000005000", f"{1 << 32}.000015000"])


class Clocks(CaptureCase):
    CONFIG = '[[service]]\naddress = "203.0.113.10"\nport = 53\nprotocol = "udp"\nbackends = [{ address = "10.0.0.1" }]\n'

    def live(self, packets, *arguments):
        """Replays `packets`: (seconds, number of a client). Returns the clients with a connection that is live at
        the end, and standard error."""
        name = self.write("in.pcap", pcap((round(t * 10**6), framed(ETHERNET, udp(client))) for t, client in packets))
        listed = self.path("l")
        result = self.run_it("replay", "--in", name, "--config", self.write("c.toml", self.CONFIG), "--timeout", "30",
                             "--connections", listed, "--seed", "1", "--capacity", "10000", *arguments)
        self.assertEqual(result.returncode, DONE, result.stderr)
        with open(listed) as file:
            clients = {int(json.loads(line)["source"].rsplit(".", 1)[1]) for line in file}
        return clients, result.stderr

    def stepping(self, *steps):
        """Returns a packet of client 1, then 60 of client 2, one a second, then one of client 3. From packet 7 on the clock
        makes one of `steps` (in s) before each packet, until all of `steps` are made."""
        at, packets = 1_700_000_000, [(1_700_000_000, 1)]
        for i in range(60):
            at += 1 + (steps[i - 5] if 0 <= i - 5 < len(steps) else 0)
            packets.append((at, 2))
        return packets + [(at + 1, 3)]

    def test_ageing_goes_on_after_a_step(self):
        self.assertEqual(self.live(self.stepping()), ({2, 3}, ""))
        for steps, words in (((-3600,), ["back by 3599", "at packet 7"]), ((-10**9,), ["back by", "at packet 7"]),
                             ((86400 * 365,), ["ahead by 31536001.000000 s at packet 7"]),
                             ((2_000_000_000,), ["ahead", "at packet 7"]),
                             ((-3600, 0, 0, 3600), ["at packet 7"]),
                             ((-100, -100, 0, 10**8), ["at packet 7", "first of 3 steps (2 back, 1 ahead)"])):
            with self.subTest(steps):
                for how in ((), ("--workers", "2")):
                    clients, said = self.live(self.stepping(*steps), *how)
                    self.assertEqual(clients, {2, 3})
                    self.assertEqual(said.count("\n"), 1, said)
                    self.assertIn("in.pcap: the clock steps", said)
                    for word in words:
                        self.assertIn(word, said)
                self.assertEqual(self.live(self.stepping(*steps), "--quiet"), ({2, 3}, ""))
                self.assertEqual(self.live(self.stepping(*steps), "--clock", "wall")[1], "")

    def test_nothing_ages_by_one_time_that_is_wrong(self):
        start = 1_700_000_000
        for wrong in (0, 1, 2**32 - 1, start - 100, start + 10**6):
            packets = [(start + i, 1 if i == 0 else 2) for i in range(20)] + [(wrong, 4), (start + 20, 3)]
            with self.subTest(wrong):
                clients, said = self.live(packets)
                self.assertEqual(clients, {1, 2, 3, 4})
                self.assertIn("at packet 21", said)

    def test_times_that_are_nothing_special(self):
        for start in (0, 2**31 - 10, 2**31 + 5, 2**32 - 100):
            clients, said = self.live([(start + i, 1 if i == 0 else 2) for i in range(60)])
            self.assertEqual((clients, said), ({2}, ""))

    def test_packets_out_of_order_are_no_step(self):
        packets = [(1_700_000_000 + i / 100 + (0 if i % 3 else -0.05), i % 7) for i in range(1, 3000)]
        clients, said = self.live(packets)
        self.assertEqual((clients, said), (set(range(7)), ""))


class Streams(CaptureCase):
    def read_bytes(self, name):
        with open(self.path(name) if not os.path.isabs(name) else name, "rb") as file:
            return file.read()

    def bash(self, line, status=DONE):
        done = subprocess.run(["bash", "-c", "set -o pipefail; " + line, MILLRACE], capture_output=True, cwd=self.dir, timeout=60)
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def test_a_second_signal_ends_at_once_but_not_in_the_same_moment(self):
        fifo = self.path("full")
        os.mkfifo(fifo)
        process = subprocess.Popen([MILLRACE, *self.replay("--loops", "300", "--out", fifo)],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        with open(fifo, "rb") as file:
            file.read(1000)  # and no more, so that the program waits in a write
            for _ in range(2):
                process.send_signal(signal.SIGTERM)
                time.sleep(0.02)  # the kernel would merge two pending signals
            with self.assertRaises(subprocess.TimeoutExpired):
                process.wait(timeout=0.6)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(timeout=60), -signal.SIGTERM)

    def setUp(self):
        super().setUp()
        self.run_ok(*self.replay("--seed", "1", "--capacity", "10000", "--out", self.path("right")))
        self.right = self.read_bytes("right")
        self.good_bytes = self.read_bytes(self.good)

    def test_every_stream_gives_the_same_bytes(self):
        replay = '"$0" replay --seed 1 --capacity 10000 --quiet'
        for line in (f"{replay} --in - --out - < good.pcap", f"{replay} --in good.pcap --out /dev/stdout",
                     f"{replay} --in good.pcap --out /dev/stdout | cat", f"cat good.pcap | {replay} --in - --out - | cat",
                     f"{replay} --in <(cat good.pcap) --out -", f"{replay} --in /dev/stdin --out - < good.pcap",
                     f"cat good.pcap | {replay} --in - --workers 3 --out -",
                     f"mkfifo i o; timeout 20 cp good.pcap i & {replay} --in i --out o > /dev/null & timeout 20 cat o",
                     f"{replay} --in good.pcap --out - > file; cat file",
                     f"{replay} --in good.pcap --out /dev/stdout > file; cat file"):
            with self.subTest(line):
                done = self.bash(line)
                self.assertEqual(done.stdout, self.right)
                self.assertEqual(done.stderr, b"")
        self.bash(f"{replay} --in good.pcap --out >(cat > there; mv there whole) > /dev/null; "
                  "for i in {1..100}; do [ -e whole ] && exit; sleep 0.1; done")
        self.assertEqual(self.read_bytes("whole"), self.right)

    def test_generate_writes_to_streams(self):
        generate = '"$0" generate --connections 300 --packets 3000'
        for line in (f"{generate} --out -", f"{generate} --out - | cat", f"{generate} --out /dev/stdout > file; cat file"):
            with self.subTest(line):
                done = self.bash(line)
                self.assertEqual(done.stdout, self.good_bytes)
                name = b"standard output" if "--out -" in line else b"/dev/stdout"
                self.assertIn(name + b": 3000 packets", done.stderr)
                self.assertEqual(done.stderr.count(b"\n"), 1)
        self.assertEqual(self.bash(f"{generate} --quiet --out -").stderr, b"")
        done = self.bash(f'{generate} --quiet --out - | "$0" replay --in - --seed 1 --capacity 10000 --quiet --out -')
        self.assertEqual((done.stdout, done.stderr), (self.right, b""))

    def test_results_are_not_mixed_into_a_capture(self):
        done = self.bash('"$0" replay --in good.pcap --seed 1 --capacity 10000 --out - --stats s.json')
        self.assertEqual(done.stdout, self.right)
        self.assertIn(b"backend", done.stderr)  # the table goes to standard error
        self.assertEqual(json.loads(self.read_bytes("s.json"))["packets"]["in"], 3000)
        for out in ("-", "/dev/stdout"):
            for option in ("--stats", "--connections"):
                for results in ("-", "/dev/stdout"):
                    self.refuse(USAGE, [option, "where the capture"], *self.replay("--out", out, option, results))

    def test_a_terminal_takes_no_capture(self):
        try:
            terminal, end = os.openpty()
        except OSError as error:
            self.skipTest(f"no terminal to be had: {error}")
        self.addCleanup(os.close, terminal)
        self.addCleanup(os.close, end)
        for command in (self.replay(), ("generate", "--connections", "1")):
            for out in ("-", "/dev/stdout", os.ttyname(end)):
                done = subprocess.run([MILLRACE, *command, "--out", out], stdout=end, stderr=subprocess.PIPE, timeout=60)
                self.assertEqual(done.returncode, USAGE, done.stderr)
                self.assertIn(b"is a terminal", done.stderr)
                self.assertEqual(done.stderr.count(b"\n"), 1)

    def test_a_reader_that_goes_away(self):
        for command in (self.replay("--loops", "100"), ("generate", "--connections", "100000", "--quiet")):
            reading, writing = os.pipe()
            process = subprocess.Popen([MILLRACE, *command, "--out", "-"], stdout=writing, stderr=subprocess.PIPE)
            os.close(writing)
            os.read(reading, 100)
            os.close(reading)
            self.assertEqual(process.communicate(timeout=60)[1], b"")
            self.assertEqual(process.returncode, -signal.SIGPIPE)
            self.assertEqual([name for name in os.listdir(self.dir) if "partial" in name], [])
            # If SIGPIPE is ignored, the program reports the failed write in one line on standard error.
            reading, writing = os.pipe()
            os.close(reading)
            ignore = lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN)
            done = subprocess.run([MILLRACE, *command, "--out", "-"], stdout=writing, stderr=subprocess.PIPE, timeout=60,
                                  restore_signals=False, preexec_fn=ignore)
            os.close(writing)
            self.assertEqual(done.returncode, FAILED, done.stderr)
            self.assertIn(b"roken pipe", done.stderr)
            self.assertEqual(done.stderr.count(b"\n"), 1, done.stderr)

    def test_what_comes_through_a_pipe_cut_short_or_empty(self):
        cut = '"$0" replay --in - --out - --seed 1 --capacity 10000 --quiet'
        done = self.bash(f"head -c -10 good.pcap | {cut}", UNREADABLE)
        self.assertEqual(done.stderr.count(b"\n"), 1)
        self.assertIn(b"standard input: unreadable after 2999 packets (truncated", done.stderr)
        self.assertEqual(done.stdout, self.right[:len(done.stdout)])
        self.assertEqual(len(list(self.packets(done.stdout))), 2999)
        done = self.bash(f"{cut} < /dev/null", UNREADABLE)
        self.assertEqual((done.stdout, done.stderr.count(b"\n")), (b"", 1))
        self.assertIn(b"standard input: is empty", done.stderr)

    def packets(self, data):
        self.write("x", data)
        return captures.Capture(self.path("x"))

    def test_a_capture_is_not_written_onto_itself(self):
        for line in ('"$0" replay --in - --out - < good.pcap >> good.pcap', '"$0" replay --in good.pcap --out - >> good.pcap'):
            self.bash(line, USAGE)
        self.assertEqual(self.read_bytes(self.good), self.good_bytes)

    def test_a_slow_writer(self):
        fifo = self.path("slow")
        os.mkfifo(fifo)

        def write():
            with open(fifo, "wb") as file:
                for byte in self.good_bytes[:3]:
                    file.write(bytes([byte]))
                    file.flush()
                file.write(self.good_bytes[3:])

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        done = subprocess.run([MILLRACE, "replay", "--in", fifo, "--out", "-", "--seed", "1", "--capacity", "10000", "--quiet"], capture_output=True, timeout=60)
        self.assertEqual((done.stdout, done.stderr), (self.right, b""))
        thread.join()


if __name__ == "__main__":
    unittest.main()
