"""Messages between this machine and one that runs kernels for it: JSON, and bytes behind it.

Both sides prove that they have the same key before anything else is read (HMAC-SHA-256 of numbers
that the other has drawn). Nothing is encrypted, and nothing is pickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import socket
from collections.abc import Iterator
from typing import Any

#: The variable of the environment that has the key.
KEY = "TILEWRIGHT_REMOTE_KEY"
#: The port where none is named.
PORT = 9190
#: Seconds without a word after which the other side is gone; a busy one says so more often.
SILENCE, BUSY = 30.0, 5.0
_GREETING = b"tilewright remote 1\n"
_DRAWN, _HEAD, _MOST_JSON, _PART = 32, 8, 1 << 28, 1 << 20


class WrongKey(Exception):
    """The other side has another key, or is no such server."""


def address_of(text: str) -> tuple[str, int]:
    """A host and a port.

    >>> address_of("board"), address_of("[::1]:5000")
    (('board', 9190), ('::1', 5000))
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit():
        host, port = text, str(PORT)
    return host.strip("[]"), int(port)


def known_key() -> bytes:
    """The key that the environment has; empty where it has none."""
    return os.environ.get(KEY, "").encode()


class Wire:
    """A connection, whose other side has the same key."""

    def __init__(self, stream: socket.socket, key: bytes, serves: bool) -> None:
        self._stream = stream
        stream.settimeout(SILENCE)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        own, names = secrets.token_bytes(_DRAWN), (b"client", b"server")
        if serves:
            stream.sendall(_GREETING + own)
        elif self._read(len(_GREETING)) != _GREETING:
            raise WrongKey("it speaks another language")
        other = self._read(_DRAWN)
        if serves:  # the other side proves first
            self._check(key, names[0], own, other)
            stream.sendall(_proof(key, names[1], other, own))
        else:
            stream.sendall(own + _proof(key, names[0], other, own))
            self._check(key, names[1], own, other)

    def _check(self, key: bytes, name: bytes, own: bytes, other: bytes) -> None:
        try:
            said = self._read(hashlib.sha256().digest_size)
        except EOFError:
            said = b""
        if not hmac.compare_digest(said, _proof(key, name, own, other)):
            raise WrongKey("it has another key")

    def send(self, message: dict[str, Any], data: bytes | memoryview = b"") -> None:
        """Send a message, and bytes behind it."""
        text = json.dumps({**message, "bytes": len(data)}).encode()
        self._stream.sendall(len(text).to_bytes(_HEAD, "little") + text)
        parts = memoryview(data)
        for begin in range(0, len(parts), _PART):  # each of which may take SILENCE
            self._stream.sendall(parts[begin : begin + _PART])

    def receive(self) -> tuple[dict[str, Any], int]:
        """A message, and how many bytes are behind it, for :meth:`parts`."""
        size = int.from_bytes(self._read(_HEAD), "little")
        if size > _MOST_JSON:
            raise OSError(f"a message of {size} bytes")
        message = json.loads(self._read(size))
        return message, int(message.pop("bytes"))

    def parts(self, size: int) -> Iterator[bytes]:
        """The bytes behind a message."""
        while size:
            part = self._stream.recv(min(size, _PART))
            if not part:
                raise EOFError("the connection ended")
            size -= len(part)
            yield part

    def _read(self, size: int) -> bytes:
        return b"".join(self.parts(size))

    def wait(self, seconds: float | None) -> None:
        """How long the next message may take; None for whatever it takes."""
        self._stream.settimeout(seconds)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)  # another thread may be reading
        self._stream.close()


def _proof(key: bytes, name: bytes, drawn: bytes, own: bytes) -> bytes:
    return hmac.digest(key, name + drawn + own, "sha256")
