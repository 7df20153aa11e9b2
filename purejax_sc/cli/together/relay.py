"""JAX's connection to its coordinator, by way of this process, so that the coordinator's end is not JAX's to see.

JAX aborts a process, with a stack of C++, as soon as its connection to the first process breaks. Here it talks to a
socket of its own process, which stays open whatever happens to the first one: `watch` finds that and ends the process
in its own words.
"""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from purejax_sc.cli.together.links import Address

LOOPBACK = "127.0.0.1"
RETRY_SECONDS = 0.1


def start_relay(address: Address) -> str:
    """Pass on, in the background, whatever connects here to `address`. Returns the HOST:PORT to connect to."""
    listener = socket.create_server((LOOPBACK, 0))
    _in_background(_serve, listener, address)
    return f"{LOOPBACK}:{listener.getsockname()[1]}"


def _serve(listener: socket.socket, address: Address) -> None:
    while True:
        near = listener.accept()[0]
        _in_background(_join, near, address)


def _join(near: socket.socket, address: Address) -> None:
    far = _connect(address)
    for connection in (near, far):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
    _in_background(_pump, far, near)  # and when the far end is gone, the near one stays
    _pump(near, far)
    far.close()


def _connect(address: Address) -> socket.socket:
    """The first process listens soon: it waits for us in `jax.distributed.initialize`."""
    while True:
        try:
            return socket.create_connection(address[1:])
        except OSError:
            time.sleep(RETRY_SECONDS)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)


def _in_background(function: Callable[..., None], *args: Any) -> None:
    threading.Thread(target=function, args=args, name="relay", daemon=True).start()
