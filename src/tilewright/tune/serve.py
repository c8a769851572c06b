"""Runs and times kernels for other machines, as a board does that has the device.

Each connection has a folder, and a process that runs what it sends (:mod:`.worker`): one that
crashes or hangs is replaced. One runs at a time, so that none disturbs the times of another.
"""

from __future__ import annotations

import contextlib
import platform
import re
import socket
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Unfinished
from pathlib import Path
from typing import Any

from tilewright.tune.builders import NO_CACHE, NOTHING
from tilewright.tune.process import Worker, WorkerDied, WorkerTimeout
from tilewright.tune.wire import BUSY, SILENCE, Wire, WrongKey

_NAME = re.compile("[0-9a-z]{1,64}")
#: What may be asked of the process.
_ASKED = ("device", "run", "signature", "call", "model", "infer")


class Server:
    """Listens at an address; ``port`` 0 takes one that is free, which :attr:`port` then is.

    ``module`` is that of the processes, whose ``main`` answers what is asked. Raises
    :class:`OSError` where it cannot listen, and :class:`ValueError` without a key.
    """

    def __init__(
        self, host: str, port: int, key: bytes, module: str = "tilewright.tune.worker"
    ) -> None:
        if not key:
            raise ValueError("whoever has the key runs programs here: it is not empty")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listens = socket.create_server((host, port), family=family)
        self.port = int(self._listens.getsockname()[1])
        self._key, self._one, self._closed = key, threading.Lock(), False
        self._module = module
        self._open: dict[threading.Thread, socket.socket] = {}

    def run(self, said: Any = print) -> None:
        """Answer until it is closed; ``said`` is called with a line for each connection."""
        while True:
            try:
                stream, peer = self._listens.accept()
            except OSError as error:
                if self._closed:
                    return
                said(f"not connected, {error}")  # as by too many open files
                time.sleep(1)
                continue
            thread = threading.Thread(target=self._serve, args=(stream, peer[0], said), daemon=True)
            self._open[thread] = stream
            thread.start()

    def close(self) -> None:
        """End it, with the processes and folders of all connections."""
        self._closed = True
        _end(self._listens)
        self._listens.close()
        for thread, stream in list(self._open.items()):
            _end(stream)
            thread.join(2 * BUSY)

    def _serve(self, stream: socket.socket, peer: str, said: Any) -> None:
        try:
            self._answer(stream, peer, said)
        finally:
            del self._open[threading.current_thread()]

    def _answer(self, stream: socket.socket, peer: str, said: Any) -> None:
        begin = time.monotonic()
        try:
            wire = Wire(stream, self._key, serves=True)
        except (WrongKey, OSError, EOFError) as error:
            said(f"{peer}: refused, {error}")
            stream.close()
            return
        said(f"{peer}: connected")
        with tempfile.TemporaryDirectory(prefix="tilewright-serve-") as folder:
            session = _Session(wire, Path(folder), self._one, self._module)
            try:
                session.run()
            except Exception as error:  # whatever a message has
                if not isinstance(error, (EOFError, ConnectionError)):
                    said(f"{peer}: {type(error).__name__}: {error}")
            finally:
                session.close()
        said(f"{peer}: gone after {time.monotonic() - begin:.0f} s, {session.calls} requests")


def _end(stream: socket.socket) -> None:
    with contextlib.suppress(OSError):
        stream.shutdown(socket.SHUT_RDWR)


class _Session:
    def __init__(self, wire: Wire, folder: Path, one: threading.Lock, module: str) -> None:
        self._wire, self._folder, self._one = wire, folder, one
        self._worker = Worker(folder / "worker.log", NOTHING, NO_CACHE, module)
        self._pool = ThreadPoolExecutor(1)
        self.calls = 0

    def run(self) -> None:
        from tilewright import __version__

        self._wire.send({"version": __version__, "machine": platform.machine()})
        while True:
            self._wire.wait(None)
            message, size = self._wire.receive()
            self._wire.wait(SILENCE)
            if message["do"] == "put":
                with self._path(message["name"]).open("wb") as file:
                    for part in self._wire.parts(size):
                        file.write(part)
                self._wire.send({})
            elif message["do"] == "get":
                self._wire.send({}, self._path(message["name"]).read_bytes())
            else:
                self._call(message["request"], float(message["timeout"]))

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a file")
        return self._folder / name

    def _call(self, request: dict[str, Any], timeout: float) -> None:
        if request["do"] not in _ASKED:
            raise ValueError(f"{request['do']!r} is nothing that is done for others")
        self.calls += 1
        for key in ("path", "data"):
            if key in request:
                request[key] = str(self._path(request[key]))
        if "folder" in request:
            request["folder"] = str(self._folder)
        found: Future[dict[str, Any]] = self._pool.submit(self._answer, request, timeout)
        while True:
            try:
                self._wire.send(found.result(BUSY))
                return
            except Unfinished:
                self._wire.send({"busy": True})

    def _answer(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        with self._one:
            try:
                return {"answer": self._worker.call(request, timeout)}
            except WorkerDied as error:
                return {"died": str(error)}
            except WorkerTimeout as error:
                return {"late": str(error)}

    def close(self) -> None:
        self._worker.close()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._wire.close()
