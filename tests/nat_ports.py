"""The public ports in the NAT's model (nat_model.py): each customer's blocks, the ends of their rests, and the ports that a mapping may get."""

import collections

SECOND = 1_000_000_000
REST = 120 * SECOND  # RFC 6888, REQ-8


class Wrong(Exception):
    """The error if a packet leaves, or does not leave, against the model."""


class Block:
    """A customer's block. From `free`'s first moment on another customer may have it, from its second on he must be able to."""

    __slots__ = ("owner", "mappings", "in_use", "free")

    def __init__(self, owner):
        self.owner, self.mappings, self.free = owner, 0, None
        self.in_use = collections.Counter()  # ports of (protocol, parity)

    def has_lapsed(self, now):
        return self.free is not None and now >= self.free[0]


class Ports:
    def __init__(self, settings, shares):
        self.settings, self.shares = settings, shares
        self.first, self.last = settings.ports
        self.size = settings.block_size
        self.blocks_of_address = (self.last + 1 - self.first) // self.size
        self.users = collections.defaultdict(list)  # mappings of (protocol, public end)
        # The ends of the sessions that a shared port has had since it was last free. One of them may get it again; or, if another session to the
        # same remote end has the port meanwhile, share a further one or be refused, although ports are free.
        self.had = collections.defaultdict(set)
        self.blocks = {}  # by (address, number)
        self.looked = None  # the millisecond of the latest look for blocks that have rested
        self.of_customer = collections.defaultdict(set)  # places in `blocks`

    def place(self, public):
        return public[0], (public[1] - self.first) // self.size

    def held(self, customer, now):
        """Returns the places of the blocks that are surely a customer's, and of those that another one might have had by now."""
        surely, perhaps = [], []
        for at in self.of_customer[customer]:
            (perhaps if self.blocks[at].has_lapsed(now) else surely).append(at)
        return surely, perhaps

    def free_ports(self, at, protocol, parity=None):
        in_use = self.blocks[at].in_use
        parities = (0, 1) if parity is None else (parity,)
        return sum(self.size // 2 - in_use[protocol, one] for one in parities)

    def can_get_block(self, address, customer, now):
        """Returns whether a customer can get a block of this address, and whether he must get one."""
        can = False
        for number in range(self.blocks_of_address):
            block = self.blocks.get((address, number))
            if block is None or (block.owner == customer and block.has_lapsed(now)):
                return True, True
            can = can or block.has_lapsed(now)
        # millrace looks for blocks that have rested once a millisecond at most.
        again, self.looked = self.looked == now // 1_000_000, now // 1_000_000
        must = any(self.blocks[address, n].has_lapsed(now) and now >= self.blocks[address, n].free[1] for n in range(self.blocks_of_address))
        return can, must and not again and not self.shares

    def outlook(self, protocol, inside, remote, now, sessions):
        """Returns whether a port for a new mapping can be found, and whether one must be found."""
        surely, _ = self.held(inside[0], now)
        if any(self.free_ports(at, protocol) for at in surely):
            return True, not (self.shares and self.had_one(protocol, inside, remote))
        if len(surely) < self.settings.blocks:
            addresses = {at[0] for at in surely} or self.settings.addresses
            outlooks = [self.can_get_block(address, inside[0], now) for address in addresses]
            if any(must for _, must in outlooks):
                return True, True
            can = any(can for can, _ in outlooks)
        else:
            can = False
        shared = self.shares and any(
            (protocol, remote, (address, port)) not in sessions
            for address, number in surely
            for port in range(self.first + number * self.size, self.first + (number + 1) * self.size)
        )
        return can or shared, False  # docs/nat.md: they may share

    def take(self, protocol, inside, remote, public, now, sessions):
        """Notes that a new mapping has this public end, after checking that it may have it."""
        address, port = public
        if address not in self.settings.addresses or not self.first <= port <= self.last:
            raise Wrong(f"{public} is not of the pool")
        at = self.place(public)
        surely, _ = self.held(inside[0], now)
        if any(one[0] != address for one in surely):
            raise Wrong(f"{public}: the customer has another address (RFC 4787, REQ-2)")
        if self.users.get((protocol, public)):
            self.check_shared(protocol, public, inside, remote, surely, sessions)
        if self.shares:
            self.had[protocol, public].add((inside, remote))
        block = self.blocks.get(at)
        if block is not None and block.owner != inside[0]:
            if not block.has_lapsed(now):
                raise Wrong(f"{public}: another customer has the block, or had it within 120 s (RFC 6888, REQ-8)")
            self.of_customer[block.owner].discard(at)
            block = None
        if at not in surely and len(surely) >= self.settings.blocks:
            raise Wrong(f"{public} is in one block too many")
        parity = port % 2
        if not self.users.get((protocol, public)) and parity != inside[1] % 2 and at in surely and self.free_ports(at, protocol, 1 - parity):
            raise Wrong(f"{public} for port {inside[1]}: a port of its parity is free (RFC 4787, REQ-4)")
        if block is None:
            block = self.blocks[at] = Block(inside[0])
            self.of_customer[inside[0]].add(at)
        block.mappings += 1
        block.free = None
        if not self.users.get((protocol, public)):
            block.in_use[protocol, parity] += 1

    def had_one(self, protocol, inside, remote):
        return any((inside, remote) in had for (which, _), had in self.had.items() if which == protocol)

    def check_shared(self, protocol, public, inside, remote, surely, sessions):
        if not self.shares:
            raise Wrong(f"{public} is in use (RFC 4787, REQ-3)")
        if (protocol, remote, public) in sessions:
            raise Wrong(f"{public} already has a session to {remote}")
        if not self.had_one(protocol, inside, remote) and any(self.free_ports(one, protocol) for one in surely):
            raise Wrong(f"{public} is shared, although a port is free")

    def give_back(self, protocol, mapping, when, now):
        """Notes the end of a mapping: at `when` by its deadline, `now` at the latest."""
        users = self.users[protocol, mapping.public]
        users.remove(mapping)
        block = self.blocks[self.place(mapping.public)]
        if not users:
            del self.users[protocol, mapping.public]
            self.had.pop((protocol, mapping.public), None)
            block.in_use[protocol, mapping.public[1] % 2] -= 1
        block.mappings -= 1
        if block.mappings == 0:
            block.free = (when + REST, now + REST)
