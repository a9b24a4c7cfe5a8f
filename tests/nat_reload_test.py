#!/usr/bin/env python3
"""Tests that the pools and rules of a running NAT change while transfers use them.

    nat_reload_test.py MILLRACE [TEST...]
"""

import contextlib
import json
import os
import socket
import threading

from asked import Asked
from live import main, patience_with
from namespaces import ip
from network import ADDRESSES, ports

A = ADDRESSES[4]
SERVER = A["servers"][0]
CUSTOMERS = [f"198.51.100.{n}" for n in range(100, 124)]


class Transfer(threading.Thread):
    """A TCP connection of a customer, which sends and gets data until `end` is called or it is reset. Afterwards `error` and
    `error_outside` have what its two ends met; None: nothing."""

    def __init__(self, client, accepted):
        super().__init__(daemon=True)
        self.client, self.accepted = client, accepted
        self.public = accepted.getpeername()
        self.error = self.error_outside = None
        self.exchange = threading.Lock()  # held while data is on its way
        self._ends = threading.Event()
        self.start()

    def run(self):
        try:
            while not self._ends.wait(0.01):
                with self.exchange:
                    self.client.sendall(b"x" * 1000)
                    self._echo()
                    self.client.recv(1000, socket.MSG_WAITALL)
        except OSError as error:
            self.error = self.error or error

    def _echo(self):
        try:
            self.accepted.sendall(self.accepted.recv(1000, socket.MSG_WAITALL))
        except OSError as error:
            self.error_outside = error

    def wait(self):
        """Waits until it is reset."""
        self.join(10)
        if self.error and not self.error_outside:
            self._echo()  # the RST to this end may have come later
        self.end()

    def end(self):
        self._ends.set()
        self.join()
        self.client.close()
        self.accepted.close()


class Reload(Asked):
    def configuration(self, sharing, pools, rules, log=True):
        text = f"""function = "nat"
workers = 2
sharing = "{sharing}"
[table]
capacity = 20000
{ports()}
"""
        for name, (addresses, keys) in pools.items():
            text += f'[[nat.pool]]\nname = "{name}"\naddresses = {json.dumps(addresses)}\nblock_size = 64\n{keys}\n'
        for source, pool in rules.items():
            text += f'[[nat.rule]]\nsource = ["{source}"]\npool = "{pool}"\n'
        return text + (f'[nat.log]\nfile = "{self.path("nat.jsonl")}"\n' if log else "")

    def serve_customers(self, text):
        self.serve_with(text)
        with self.network_.client:
            for address in CUSTOMERS:
                ip(f"address add {address}/24 dev wire")
        with self.network_.servers:
            self.listening = socket.create_server((SERVER, 5353), backlog=100)
        self.listening.settimeout(10)
        self.addCleanup(self.listening.close)

    def connect(self, customer):
        with self.network_.client:
            client = socket.socket()
        client.settimeout(10)
        client.bind((customer, 0))
        client.connect((SERVER, 5353))
        accepted, _ = self.listening.accept()
        accepted.settimeout(10)
        return client, accepted

    def begin(self, customer):
        transfer = Transfer(*self.connect(customer))
        self.addCleanup(transfer.end)
        return transfer

    def public_of(self, customer):
        client, accepted = self.connect(customer)
        public = accepted.getpeername()[0]
        client.close()
        accepted.close()
        return public

    def lines(self):
        with open(self.path("nat.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def held(self):
        """Returns the blocks that customers have, as the log says."""
        held = set()
        for line in self.lines():
            if line["event"] == "list":
                held = set()
                continue
            block = (line["customer"], line["pool"], line["address"], line["first_port"], line["last_port"])
            (held.remove if line["event"] == "released" else held.add)(block)
        return held

    def reload_ending(self, ending, text):
        """Reloads while no data of the transfers that it ends is on its way: an end that waits for data that millrace has not seen
        does not take the RST, whose sequence number is not what it expects next (RFC 5961, 3.2)."""
        with contextlib.ExitStack() as quiet:
            for transfer in ending:
                quiet.enter_context(transfer.exchange)
            self.reload(text)

    def check_log(self):
        """Checks that the log and `millctl nat customer` know the same blocks."""
        def all_blocks():
            return {(customer, *(block[key] for key in ("pool", "address", "first_port", "last_port")))
                    for customer in CUSTOMERS
                    for block in self.ask("GET /nat/customer", customer=customer)["blocks"]}

        self.wait_until(lambda: self.held() == all_blocks())

    def test_a_pool_gets_an_address_and_loses_another(self):
        for sharing in ("sharded", "lock-free-race"):
            rules = {"198.51.100.0/24": "homes"}

            def text(addresses, sharing=sharing, rules=rules):
                return self.configuration(sharing, {"homes": (addresses, "")}, rules)

            self.serve_customers(text(["10.0.0.192/31"]))
            transfers = {customer: self.begin(customer) for customer in CUSTOMERS}
            self.assertEqual({t.public[0] for t in transfers.values()}, {"10.0.0.192", "10.0.0.193"})
            with self.network_.client:
                udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.addCleanup(udp.close)
            udp.settimeout(10)
            stays = {customer: transfer.public[0] == "10.0.0.193" for customer, transfer in transfers.items()}
            self.reload_ending([t for customer, t in transfers.items() if not stays[customer]], text(["10.0.0.194", "10.0.0.193"]))
            for customer, transfer in transfers.items():
                if stays[customer]:
                    self.assertTrue(transfer.is_alive(), transfer.error)
                    continue
                transfer.wait()
                self.assertIsInstance(transfer.error, ConnectionResetError)
                self.assertIsInstance(transfer.error_outside, ConnectionResetError)
                self.assertIn(self.public_of(customer), ("10.0.0.193", "10.0.0.194"))
            self.check_log()
            self.assertEqual({block[2] for block in self.held()}, {"10.0.0.193", "10.0.0.194"})
            [pool] = self.ask("GET /nat/pools")
            self.assertEqual((pool["addresses"], pool["held"]), (2, len(self.held())))
            for transfer in transfers.values():
                if transfer.public[0] == "10.0.0.193":
                    transfer.end()
                    self.assertIsNone(transfer.error)
            # A file that cannot be served changes nothing.
            self.write("f.toml", text(["10.0.0.194"]).replace("block_size = 64", "block_size = 65"))
            self.refused(422, ["block_size"], "POST /reload")
            self.assertEqual(self.ask("GET /nat/pools")[0]["addresses"], 2)
            self.stop()
            self.assertEqual(self.held(), set())
            os.remove(self.path("nat.jsonl"))
            self.listening.close()

    def test_a_pool_that_is_nearly_empty(self):
        """Its alarm is on standard error and in the statistics, until a reload gives it an address."""
        def text(addresses):
            return self.configuration("sharded", {"homes": (addresses, 'ports = "1024-2303"')}, {"198.51.100.0/24": "homes"}, log=False)

        self.serve_customers(text(["10.0.0.192"]))  # 20 blocks
        clients = [self.connect(customer) for customer in CUSTOMERS[:17]]
        self.assertFalse(self.ask("GET /nat/pools")[0]["nearly_empty"])
        clients.append(self.connect(CUSTOMERS[17]))
        [pool] = self.ask("GET /nat/pools")
        self.assertEqual((pool["nearly_empty"], pool["free_ports"], len(pool["nearest"])), (True, 2 * 64, 5))
        self.assertTrue(self.ask("GET /stats")["nat_pools"][0]["nearly_empty"])
        alarm = 'the pool "homes" of NAT is nearly empty: give it more addresses'
        with patience_with(self.process):
            self.assertEqual(self.process.stderr.readline(), f"millrace: warning: {alarm}\n")
        self.reload(text(["10.0.0.192", "10.0.0.193"]))
        self.assertFalse(self.ask("GET /nat/pools")[0]["nearly_empty"])
        with patience_with(self.process):
            self.assertEqual(self.process.stderr.readline(), f"millrace: no longer: {alarm}\n")
        for client, accepted in clients:
            client.sendall(b"goes on")
            self.assertEqual(accepted.recv(100), b"goes on")
            client.close()
            accepted.close()
        self.stop()

    def test_rules_change(self):
        """Rules and pools change their places; sessions that keep pool and customer go on."""
        def text(sharing, pools, rules):
            return self.configuration(sharing, {name: (addresses, "") for name, addresses in pools}, rules)

        for sharing in ("sharded", "lock-free-race"):
            one, other = ("one", ["10.0.0.192"]), ("other", ["10.0.0.200"])
            self.serve_customers(text(sharing, [one, other], {"198.51.100.96/28": "one", "198.51.100.112/28": "other"}))
            transfers = {int(customer.rpartition(".")[2]): self.begin(customer) for customer in CUSTOMERS}
            self.reload_ending([transfer for last, transfer in transfers.items() if last >= 120],
                               text(sharing, [other, ("new", ["10.0.0.201"]), one],
                                    {"198.51.100.112/29": "other", "198.51.100.120/29": "new", "198.51.100.96/30": "new",
                                     "198.51.100.100/30": "one", "198.51.100.104/29": "one"}))
            for last, transfer in transfers.items():
                self.assertEqual(transfer.public[0], "10.0.0.192" if last < 112 else "10.0.0.200")
                if last >= 120:
                    transfer.wait()
                    self.assertIsInstance(transfer.error, ConnectionResetError)
                    self.assertEqual(self.public_of(f"198.51.100.{last}"), "10.0.0.201")
                self.assertEqual(transfer.is_alive(), last < 120)
            # Two addresses are one customer from now on.
            staying = {last for last in transfers if last < 112 and last % 2 == 0}
            self.reload_ending([transfer for last, transfer in transfers.items() if last not in staying],
                               text(sharing, [one, other], {"198.51.100.0/24": "one"})
                               .replace('pool = "one"', 'pool = "one"\ncustomer_prefix = 31'))
            for last, transfer in transfers.items():
                if last in staying:
                    self.assertTrue(transfer.is_alive(), last)
                    transfer.end()
                    self.assertIsNone(transfer.error)
                else:
                    transfer.wait()
                    self.assertIsInstance(transfer.error, ConnectionResetError, last)
            self.stop()
            os.remove(self.path("nat.jsonl"))
            self.listening.close()


if __name__ == "__main__":
    main()
