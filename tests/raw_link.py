"""A raw end of a link to millrace, for made packets of hosts that no kernel has."""

import json
import select
import socket

from namespaces import ip

IPV4_FRAMES, SO_RCVBUFFORCE = 0x0800, 33


class RawLink:
    """The interface `wire` of a namespace. Its other end is millrace's interface `name` in the namespace `middle`."""

    def __init__(self, case, namespace, middle, name):
        self._socket = case.socket_in(namespace, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(IPV4_FRAMES))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        self._socket.bind(("wire", IPV4_FRAMES))
        with middle:
            [to] = json.loads(ip(f"-j link show {name}"))
        self.head = bytes.fromhex(to["address"].replace(":", "")) + self._socket.getsockname()[4] + IPV4_FRAMES.to_bytes(2, "big")

    def send(self, packet):
        self._socket.send(self.head + packet)

    def receive(self, patience):
        """Yields frames that have come, and waits so many seconds for each."""
        while select.select([self._socket], [], [], patience)[0]:
            frame, (_, _, kind, *_) = self._socket.recvfrom(2000)
            if kind != socket.PACKET_OUTGOING:
                yield frame
