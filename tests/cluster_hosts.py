"""Hosts at the switches of a cluster (cluster.py): customers and an internet, which answers."""

import selectors

from namespaces import ip


def add_hosts(cluster, networks):
    """Adds a namespace at each switch. `networks`: by side, the address that the switch has there, and those of the hosts."""
    found = {}
    for side, (gateway, addresses) in networks.items():
        switch = cluster.switches[side].namespace
        hosts = cluster.add_namespace()
        with switch:
            ip(f"link add hosts type veth peer name wire netns {hosts.path}")
            ip("link set hosts up")
            ip(f"address add {gateway}/24 dev hosts")
        with hosts:
            ip("link set lo up")
            ip("link set wire up")
            for address in addresses:
                ip(f"address add {address}/24 dev wire")
            ip(f"route add default via {gateway}")
        found[side] = hosts
    return found


def answer(listening, datagrams):
    """Answers lines and datagrams with themselves, for ever."""
    selector = selectors.DefaultSelector()
    for one in listening:
        selector.register(one, selectors.EVENT_READ, "listen")
    for one in datagrams:
        selector.register(one, selectors.EVENT_READ, "datagram")
    while True:
        for key, _ in selector.select():
            if key.data == "listen":
                accepted, _ = key.fileobj.accept()
                selector.register(accepted, selectors.EVENT_READ, "line")
                continue
            try:
                if key.data == "datagram":
                    data, sender = key.fileobj.recvfrom(65536)
                    key.fileobj.sendto(data, sender)
                elif data := key.fileobj.recv(65536):
                    key.fileobj.sendall(data)
                else:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
            except OSError:
                pass
