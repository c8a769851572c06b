"""Kernels on another machine, under the names of ``tvm.rpc``.

``tilewright serve`` is the server there; the key is the variable TILEWRIGHT_REMOTE_KEY's, and what
TVM calls a key is the name of a device, which is of no effect. Arrays are this machine's, and
travel with each call, so that devices of a session are its CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilewright import runtime
from tilewright.runtime import Device
from tilewright.runtime.timing import Timing
from tilewright.tune.remote import Remote

__all__ = ["LocalSession", "RPCSession", "RemoteModule", "TrackerSession", "connect",
           "connect_tracker"]  # fmt: skip


class RemoteModule:
    """A kernel of a session, called with arrays of this machine."""

    def __init__(self, kernel: Any) -> None:
        self.kernel, self.entry_name = kernel, kernel.name

    def __call__(self, *args: Any) -> None:
        self.kernel(*args)

    def __getitem__(self, name: str) -> RemoteModule:
        return self

    get_function = __getitem__

    def time_evaluator(
        self, func_name: str, dev: Any = None, number: int = 10, repeat: int = 1, **_: Any
    ) -> Callable[..., Timing]:
        """A function that runs the kernel and returns its times; ``.mean`` is in seconds."""
        return lambda *args: self.kernel.time(*args, repeat=repeat, number=number)


class RPCSession:
    """Another machine, or where ``load`` loads kernels."""

    def __init__(self, load: Callable[[str], Any]) -> None:
        self._load, self._files = load, dict[str, str]()

    def upload(self, data: Any, target: str | None = None) -> None:
        """Make a file known by its name, or by ``target``."""
        self._files[target or Path(data).name] = str(data)

    def load_module(self, path: str) -> RemoteModule:
        """The kernel of a file that was uploaded."""
        return RemoteModule(self._load(self._files.get(path, path)))

    def cpu(self, dev_id: int = 0) -> Device:
        """Where arrays for calls are, whatever the device: with this machine."""
        return Device("cpu", 0)

    cl = opencl = cuda = gpu = cpu

    def device(self, dev_type: Any, dev_id: int = 0) -> Device:
        """The same."""
        return self.cpu()


def connect(url: str, port: int, key: str = "", session_timeout: float = 0, **_: Any) -> RPCSession:
    """A session with the server at a host and a port; raises
    :class:`~tilewright.tune.remote.RemoteError` where there is none."""
    return RPCSession(Remote(f"{url}:{port}").load)


class LocalSession(RPCSession):
    """The same with kernels in this process."""

    def __init__(self, **_: Any) -> None:
        super().__init__(runtime.load)


class TrackerSession:
    """In the place of TVM's tracker, a server: ``request`` gives a session with it."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port

    def request(
        self, key: str, priority: int = 1, session_timeout: float = 0, **_: Any
    ) -> RPCSession:
        """A session with the server."""
        return connect(*self._address)


def connect_tracker(url: str, port: int) -> TrackerSession:
    """What gives sessions with the server at a host and a port."""
    return TrackerSession(url, port)
