"""Differences between millrace's firewall and the kernel's that are explained, for kernel_firewall_test.py.

Functions and tables named in a reason are in Linux's net/netfilter/nf_conntrack_proto_tcp.c, unless the reason names another file.
`I` and `III` are the bounds of its function tcp_in_window.
"""

import re
from typing import NamedTuple


class Difference(NamedTuple):
    """A rule that explains a difference if the patterns are found in the conversation's name and in the text of the packet (of
    fragments: in an empty text), and both outcomes match theirs."""

    why: str
    name: str
    step: str = ""
    kernel: str = "nothing"
    ours: str = "delivered"
    where: str = ""  # a pattern of the comparison's name

    def explains(self, where, unlike):
        texts = ((self.where, where), (self.name, unlike.conversation.name), (self.step, unlike.step))
        outcomes = ((self.kernel, unlike.kernel[unlike.at]), (self.ours, unlike.ours[unlike.at]))
        return all(re.search(pattern, text) for pattern, text in texts) and all(re.fullmatch(pattern, text) for pattern, text in outcomes)


# The differences that are intended, or do no harm.
KNOWN = [
    Difference(
        "checksums of layer 4 are the receiver's task: millrace checks none, so what is corrupt can begin a connection or move its "
        "numbers",
        "checksum( is wrong)?$| that is bad$| is_bad$", where="^(?!unchecked)"),
    Difference(
        "a refusal is answered even if the checksum of the refused packet is wrong: millrace checks none",
        "checksum$| is_bad$", ours="answered: .*"),
    Difference(
        "nf_conntrack_proto_udp.c checks UDP-Lite by UDP's protocol number in the pseudo-header, so that each right checksum is wrong to "
        "it",
        "UDP-Lite", where="^others$"),
    Difference(
        "TCP, III: a packet that acknowledges more than was sent is dropped; millrace keeps one number a side, and lets up to a window "
        "more pass (docs/states.md)",
        "^half open, an ACK of nothing sent|^an ACK of (the server of )?(1|8192) bytes|^data with an ACK of (1|8192) bytes", r"^[<>]A \d+ (?!111)"),
    Difference(
        "TCP, III: a RST that acknowledges what was never sent is dropped; its receiver judges a RST by its sequence number (RFC 9293, "
        "3.10.7.4), so millrace lets it pass, and closes the connection",
        "^a RST with an ACK of ", "^>RA "),
    Difference(
        "TCP, I: a segment that ends more than a window above the receiver's window is dropped; to millrace a window is 65,535 bytes, "
        "scaled, whatever a packet announces",
        "above the window( of the SYN)?$", r"^[<>]F?A \d{4,6} "),
    Difference(
        "TCP, I: the same; the client's window is scaled by 7, the server's by 8",
        "^scaled: data (of the server )?that begins 2000000 above", r"^[<>]A \d{7} "),
    Difference(
        "TCP, I: a RST above the window is dropped; to millrace a window is 65,535 bytes, scaled; the connection goes on (RFC 5961, 3.2)",
        r"^a RST (of the server )?(8193|16383|16384) above"),
    Difference(
        "TCP: the kernel has ignored data or an ACK out of its bounds, so it drops the other side's ACK of that data; millrace counts the "
        "data",
        r"^data with an ACK of \d+ bytes never sent|^an ACK (66001|2000000) below", "^<A 201 111 10"),
    Difference(
        "TCP, III: SACK counts as an acknowledgement to the kernel; millrace reads no SACK",
        "^SACK of data never sent", "end=5001"),
    Difference(
        "TCP: a RST below what its receiver has acknowledged is dropped; millrace keeps no acknowledgements and lets it pass without "
        "heeding it",
        r"^a RST \d+ below the next byte"),
    Difference(
        "TCP, tcp_conntracks: the kernel drops what it holds for impossible in a state (the server's SYN, the client's SYN and ACK, an "
        "ACK or FIN that follows an unanswered SYN); millrace's table leaves the state, and lets the packet pass to ends that know better",
        "^a SYN of the server on|^a SYN and ACK of the client on|^a new SYN of the server after"
        "|^a SYN, then (an ACK without|data without|the client's FIN|a good ACK of|data of the server|a FIN of the server)"),
    Difference(
        "TCP: a RST that ends a connection before any other reply makes the kernel forget it at once; millrace keeps it for tcp_close",
        "^the SYN is refused, and something follows|^the SYN is answered by a bare RST|^a SYN, then the client's RST"),
    Difference(
        "a first fragment without its whole transport header is dropped (docs/fragments.md); the kernel joins fragments first",
        "^fragments: (TCP's header|a SYN) cut in two", kernel=".* bytes at .*", ours=".*"),
    Difference(
        "inet_frag_queue_insert: a fragment within another one is dropped as a duplicate, whatever its bytes; millrace drops its datagram, "
        "too, unless both have the same place (RFC 5722)",
        "^fragments: overlap, within the first", kernel=".* bytes at .*", ours="nothing"),
    Difference(
        "a land packet (its reply has its own key) is dropped (docs/firewall.md)",
        "^land: ", kernel="delivered", ours="nothing"),
    Difference(
        "ICMP redirects are no errors to millrace: what they say holds on the sender's link only",
        "^ICMP redirect: ", kernel="delivered", ours="nothing"),
    Difference(
        "ICMP, nf_conntrack_proto_icmp.c: types above 18, and ICMPv6 160, are invalid; millrace knows extended echo (RFC 8335)",
        "^ICMP extended echo: "),
    Difference(
        "ICMPv6, nf_conntrack_proto_icmpv6.c knows node information queries (RFC 4620); millrace does not",
        "^ICMP node information: ", kernel="delivered", ours="nothing"),
    Difference(
        "ICMP, icmp_pkt_to_tuple: the code is a part of the kernel's key; millrace's key has no code",
        "^ICMP echo: reply with another code$"),
    Difference(
        "AH before TCP: for IPv6 the kernel's tracking looks behind AH; millrace tracks AH by its addresses, as the kernel does for IPv4",
        "^AH, then TCP without a connection", where="^others$"),
    Difference(
        "SCTP: a COOKIE ECHO with another tag than that of the INIT ACK; it may answer an earlier INIT ACK, so millrace lets it pass "
        "without heeding it",
        "^SCTP: COOKIE ECHO with a wrong tag$"),
    Difference(
        "SCTP, do_basic_checks: COOKIE ACK comes first (RFC 9260, 3.3.12); to millrace one behind another chunk says nothing",
        "^SCTP: COOKIE ACK behind another chunk$"),
    Difference(
        "SCTP: before INIT ACK nobody knows the server's tag, so that the kernel drops what uses it; millrace drops only tags that it knows to "
        "be wrong",
        "^SCTP: INIT, data at once$", "^> DATA"),
    Difference(
        "ICMP errors with a wrong checksum are dropped (RFC 5508, REQ-3), also by a kernel that checks checksums",
        "^ICMP error: its checksum is wrong$", kernel="delivered", ours="nothing", where="^unchecked$"),
    Difference(
        "SCTP: a SHUTDOWN ACK begins an association of the kernel's; to millrace it is a packet in mid-association",
        "^SCTP: first seen: SHUTDOWN ACK", kernel="delivered", ours="nothing"),
    Difference(
        "IPv6 with no next header: the kernel's tracking calls it invalid; to millrace it is a protocol without ports, which a rule "
        "accepts",
        "^no next header: "),
    Difference(
        "nf_reject_verify_csum: the kernel answers a protocol that it does not know only if an Internet checksum over it holds",
        "^rules: a refused unknown protocol$", ours="answered: ICMP .*"),
    Difference(
        "a chain of more than eight extension headers is dropped (header_chain)",
        "^IPv6 with nine headers", kernel="delivered", ours="nothing"),
    Difference(
        "an atomic fragment (RFC 6946) passes as it is; the kernel takes the fragment header away",
        "^IPv6 with an atomic fragment$", kernel="delivered otherwise.*"),
    Difference(
        "a router's timestamp (RFC 791): millrace forwards packets with IP options as they are",
        "^IPv4 with a timestamp$", kernel="delivered otherwise.*"),
]
