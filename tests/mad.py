"""A stranger among the servers of a cluster, and a member that has gone mad: datagrams and messages of any contents (src/replicate/seal.h, message.h)."""

import socket
import struct

try:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    CAN_SEAL = True
except ImportError:
    CAN_SEAL = False

OPEN, RECORDS, ACKNOWLEDGED, NEWER_EPOCH, HELLO, PACKET = range(1, 7)
PORT = 7471


def sum16(data):
    data += b"\0" * (len(data) % 2)
    words = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while words >> 16:
        words = (words & 0xFFFF) + (words >> 16)
    return ~words & 0xFFFF


def ip4(source, to, payload, protocol=17, flags=0, options=b"", ident=1, ttl=64, total=None, checksum=None):
    head = bytearray(struct.pack("!BBHHHBBH4s4s", 0x40 | (5 + len(options) // 4), 0,
                                 20 + len(options) + len(payload) if total is None else total, ident, flags, ttl, protocol, 0,
                                 socket.inet_aton(source), socket.inet_aton(to)) + options)
    head[10:12] = struct.pack("!H", sum16(bytes(head)) if checksum is None else checksum)
    return bytes(head) + payload


def udp(data, source=PORT, to=PORT, length=None, checksum=0):
    return struct.pack("!HHHH", source, to, 8 + len(data) if length is None else length, checksum) + data


def mac_of(namespace, name):
    with namespace, socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as of:
        of.bind((name, 0))
        return of.getsockname()[4]


class Seal:
    """Seals and opens datagrams of any member with the cluster's key."""

    def __init__(self, key):
        self.key, self.ciphers, self.numbers = key, {}, {}

    def cipher(self, sender):
        if sender not in self.ciphers:
            info = b"millrace replicate" + struct.pack("<Q", sender)
            self.ciphers[sender] = AESGCM(HKDF(hashes.SHA256(), 32, None, info).derive(self.key))
        return self.ciphers[sender]

    def seal(self, sender, receiver, content, number=None, version=1):
        if number is None:
            number = self.numbers[sender] = self.numbers.get(sender, 0) + 1
        head = struct.pack("<QQQI", sender, receiver, number, version)
        return head + self.cipher(sender).encrypt(struct.pack("<QI", number, 0), content, head)

    def open(self, datagram):
        sender, receiver, number, _ = struct.unpack("<QQQI", datagram[:28])
        return sender, receiver, number, self.cipher(sender).decrypt(struct.pack("<QI", number, 0), datagram[28:], datagram[:28])


def message(kind, payload=b"", flags=0, count=0, bytes_=None, shard=0, stream=0, epoch=0, number=0):
    return struct.pack("<BBHIIIQQ", kind, flags, count, len(payload) if bytes_ is None else bytes_, shard, stream, epoch, number) + payload


def messages_in(content):
    while len(content) >= 32:
        kind, flags, count, size, shard, stream, epoch, number = struct.unpack("<BBHIIIQQ", content[:32])
        yield {"kind": kind, "flags": flags, "count": count, "shard": shard, "stream": stream, "epoch": epoch, "number": number,
               "payload": content[32:32 + size]}
        content = content[32 + size:]


class Raw:
    """Sends and hears frames on an interface."""

    def __init__(self, test, namespace, name):
        with namespace:
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 21)
            self.socket.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE
            self.socket.bind((name, 3))
        test.addCleanup(self.socket.close)
        self.socket.settimeout(5)

    def send(self, frame):
        self.socket.send(frame)
