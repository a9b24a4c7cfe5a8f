"""Reads messages by IPFIX (RFC 7011) with tshark."""

import datetime
import json
import os
import subprocess

import captures
import nat_packets as make

_LOOPBACK = bytes((127, 0, 0, 1))


def messages_at(collector):
    """Returns the messages that have come to a UDP socket."""
    collector.setblocking(False)
    messages = []
    while True:
        try:
            messages.append(collector.recv(65536))
        except BlockingIOError:
            return messages


def flows_in(messages, path, member):
    """Returns tshark's members of each record that has `member`. A capture of the messages is written to `path`."""
    packets = [make.udp((_LOOPBACK, 5000), (_LOOPBACK, 4739), message) for message in messages]
    captures.write(path, captures.RAW, [(0, len(packet), packet) for packet in packets])
    done = subprocess.run(["tshark", "-r", path, "-d", "udp.port==4739,cflow", "-T", "json", "--no-duplicate-keys"], capture_output=True, text=True,
                          check=True, env=dict(os.environ, TZ="UTC"))
    for wrong in ("_ws.malformed", "_ws.expert", "No template found"):
        if wrong in done.stdout:
            raise AssertionError(f"tshark reports {wrong}")
    found = []

    def look(at):
        if isinstance(at, list):
            for one in at:
                look(one)
        elif isinstance(at, dict):
            if member in at and "cflow.template_ipfix_field_type" not in at:
                found.append(at)
            else:
                look(list(at.values()))

    look(json.loads(done.stdout))
    return found


def nat_events(messages, path):
    """Returns the records of NAT's log as its file has them, a dictionary each, with two members more: `source`, the customer's address
    or the far end of his tunnel, and his `number`."""
    events = []
    for flow in flows_in(messages, path, "cflow.nat_event"):
        at = {name.removeprefix("cflow."): value for name, value in flow.items()}
        moment = datetime.datetime.strptime(at["abs_timestamp" if "abs_timestamp" in at else "observation_time_milliseconds"][:26],
                                            "%b %d, %Y %H:%M:%S.%f")
        events.append({"time": moment.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z", "event": {16: "allocated", 17: "released"}[int(at["nat_event"])],
                       "customer": at["user_name"], "source": at["srcaddr"], "number": int(at["ingress_vrfid"], 0),
                       "address": at["post_natsource_ipv4_address"], "first_port": int(at["port_range_start"]),
                       "last_port": int(at["port_range_end"]), "pool": at["nat_pool_name"]})
    return events
