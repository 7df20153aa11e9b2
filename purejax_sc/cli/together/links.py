"""Lines of JSON between the processes of a run, over TCP, and the addresses at which they meet."""

import json
import os
import socket
import threading
from typing import Any, NamedTuple

from purejax_sc.cli.setup import UserError

Message = dict[str, Any]

LONGEST = 1 << 20  # bytes of a line; a longer one is not of ours
SEND_SECONDS = 5.0  # a peer that takes nothing for so long is found silent soon


class Address(NamedTuple):
    """Where the first process listens. text: as the user wrote it."""

    text: str
    host: str
    port: int


class ClosedError(Exception):
    """The other end is gone, or is none of ours."""


class Link:
    """A connection to another process. Whoever reads asks first whether there is something (`select`)."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket, self._begun, self._sending = connection, b"", threading.Lock()
        connection.settimeout(SEND_SECONDS)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message) -> None:
        """Send, or leave it: that the other end is gone is for the reader to find."""
        try:
            with self._sending:
                self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            pass

    def receive(self) -> Message | None:
        """The next message, None if it is not complete yet. Raises ClosedError."""
        try:
            seen = self._socket.recv(1 << 16, socket.MSG_PEEK)
            self._begun += self._socket.recv(seen.find(b"\n") + 1 or len(seen))
            message = json.loads(self._begun) if self._begun.endswith(b"\n") else None
        except (OSError, ValueError):
            raise ClosedError from None
        if not seen or len(self._begun) > LONGEST or not isinstance(message, dict | None):
            raise ClosedError
        if message is not None:
            self._begun = b""
        return message

    def close(self) -> None:
        self._socket.close()


def parse_address(text: str) -> Address:
    """HOST:PORT. Raises UserError."""
    host, _, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not bare or (":" in host and bare == host):
        raise UserError(f"--coordinator {text}: give HOST:PORT, such as host0:1234 or [::1]:1234")
    if not (port.isascii() and port.isdecimal() and 1 <= int(port) <= 65_535):
        raise UserError(f"--coordinator {text}: {port!r} is not a port: give a number from 1 to 65535 after {host}:")
    try:
        socket.getaddrinfo(bare, int(port), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"--coordinator {text}: cannot find a machine called {bare} ({reason}): correct it") from None
    return Address(text, bare, int(port))


def listen(address: Address) -> socket.socket:
    """Listen at the port, on all interfaces, as JAX does after us. Raises UserError."""
    both = socket.has_dualstack_ipv6()
    try:
        family = socket.AF_INET6 if both else socket.AF_INET
        return socket.create_server(("", address.port), family=family, dualstack_ipv6=both)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        raise UserError(
            f"--coordinator {address.text}: process 0 cannot listen at port {address.port} ({reason}): choose another"
            " port, or end what uses this one"
        ) from None
