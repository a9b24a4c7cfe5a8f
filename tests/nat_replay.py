"""A NAT that tests replay packets through, in simulated time."""

import json

import captures

SECOND = captures.SECOND
START = 1_700_000_000 * SECOND


class Nat:
    """A NAT that is replayed from the start for each packet: what it has chosen it chooses again."""

    def __init__(self, case, pool="", more="", addresses='"198.51.100.0/30"', inside='"10.0.0.0/8"', function='function = "nat"',
                 table="capacity = 70000\nhalf_open_percent = 100"):
        self.case, self.packets = case, []
        self.config = case.write("c.toml", f"""{function}
[table]
{table}
[[nat.pool]]
name = "homes"
addresses = [{addresses}]
{pool}
[[nat.rule]]
source = [{inside}]
pool = "homes"
{more}""")

    def send(self, seconds, *packets):
        """Sends packets at a time; returns what leaves for each of them, or None."""
        return self.send_all([(seconds + n / 1e6, packet) for n, packet in enumerate(packets)])

    def send_all(self, packets):
        """Does what `send` does with (seconds, packet)."""
        begin = len(self.packets)
        for seconds, data in packets:  # each packet has a time of its own, by which it is known when it leaves
            after = self.packets[-1][0] + 1000 if self.packets else 0
            self.packets.append((max(START + round(seconds * 1e6) * 1000, after), len(data), data))
        case = self.case
        captures.write(case.path("in.pcap"), captures.RAW, self.packets)
        case.run_ok("replay", "--in", case.path("in.pcap"), "--out", case.path("out.pcap"), "--config", self.config, "--seed", "7",
                    "--burst", "1", "--pages", "small", "--quiet", "--stats", case.path("s.json"))
        with open(case.path("s.json"), encoding="utf-8") as file:
            self.stats = json.load(file)
        left = {time: data for time, _, data in captures.Capture(case.path("out.pcap"))}
        return [left.get(time) for time, _, _ in self.packets[begin:]]

    def one(self, seconds, packet):
        return self.send(seconds, packet)[0]

    def dropped(self):
        return {reason: count for reason, count in self.stats["packets"]["dropped"].items() if count}
