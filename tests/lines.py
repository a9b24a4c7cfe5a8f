"""TCP connections that send lines and want them back, all the time."""

import selectors
import threading
import time


class Lines:
    """Sends on each of these sockets, connected to servers that answer what they get, a line after the answer to the last one, in a thread."""

    PAUSE_S, PATIENCE_S = 0.05, 30

    def __init__(self, sockets):
        self.sockets, self.errors, self.is_over = sockets, [], False
        self.exchanged = [0] * len(sockets)
        self.longest_s = 0  # that a line waited for its answer
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def text(self, number):
        return (b"%d %d " % (number, self.exchanged[number])) * 300 + b"\n"

    def run(self):
        selector, got, sent = selectors.DefaultSelector(), {}, {}
        due = dict.fromkeys(range(len(self.sockets)), 0)
        for number, one in enumerate(self.sockets):
            selector.register(one, selectors.EVENT_READ, number)
        while not self.is_over and not self.errors:
            now = time.monotonic()
            for number in [number for number, at in due.items() if at <= now]:
                try:
                    self.sockets[number].sendall(self.text(number))
                except OSError as error:
                    self.errors.append(f"{number}: {error}")
                del due[number]
                sent[number], got[number] = now, b""
            for key, _ in selector.select(0.01):
                self.receive(key.data, sent, got, due)
            if late := [number for number, at in sent.items() if time.monotonic() - at > self.PATIENCE_S]:
                self.errors.append(f"{late[0]}: no answer for {self.PATIENCE_S} s")
        selector.close()

    def receive(self, number, sent, got, due):
        try:
            data = self.sockets[number].recv(65536)
        except OSError as error:
            self.errors.append(f"{number}: {error}")
            return
        got[number] += data
        line = self.text(number)
        if not data or not line.startswith(got[number]):
            self.errors.append(f"{number}: {'other bytes came back' if data else 'the connection has ended'}")
        elif got[number] == line:
            now = time.monotonic()
            self.longest_s = max(self.longest_s, now - sent.pop(number))
            self.exchanged[number] += 1
            due[number] = now + self.PAUSE_S

    def go_on(self):
        """Returns a condition: each connection has got three more answers, or an error is known."""
        wanted = [count + 3 for count in self.exchanged]
        return lambda: self.errors or all(count >= most for count, most in zip(self.exchanged, wanted))

    def close(self):
        self.is_over = True
        self.thread.join()
        for one in self.sockets:
            one.close()
