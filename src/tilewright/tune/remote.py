"""Kernels on another machine, where ``tilewright serve`` runs them: calls, times, and tuning."""

from __future__ import annotations

import ctypes
import hashlib
import platform
import socket
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from tilewright.ir.errors import ArgumentError
from tilewright.runtime.array import view
from tilewright.runtime.array_view import ArrayView, dense_strides
from tilewright.runtime.kernel import Kernel
from tilewright.runtime.timing import Timing
from tilewright.target import Target
from tilewright.target.devices import opencl_device
from tilewright.tune.entity import TuningError
from tilewright.tune.process import WorkerDied, WorkerTimeout
from tilewright.tune.wire import KEY, Wire, WrongKey, address_of, known_key

#: Seconds that connecting, and a call of a kernel, may take.
_CONNECT, _CALL = 10.0, 600.0
#: The length of names of files that are their contents' (SHA-256).
_DIGITS = 64


class RemoteError(TuningError):
    """Another machine that cannot be reached, or does not do what it was asked; the message says
    why."""


class RemoteWorker:
    """A process on another machine, as :class:`~tilewright.tune.process.Worker` is one of this.

    ``address`` is "HOST:PORT" of ``tilewright serve``. Raises :class:`RemoteError` where there is
    none, and where it has another key or version.
    """

    def __init__(self, address: str, key: bytes | None = None) -> None:
        self.address, self._key = address, known_key() if key is None else key
        self._wire: Wire | None = None
        self.machine = ""
        self._sent: dict[str, str] = {}
        self._lock = threading.Lock()

    def start(self) -> None:
        """Connect where there is no connection."""
        if self._wire is not None:
            return
        from tilewright import __version__

        if not self._key:
            raise RemoteError(
                f"the key of {self.address} is not known: set {KEY} to what `tilewright serve` says"
            )
        try:
            stream = socket.create_connection(address_of(self.address), _CONNECT)
        except (OSError, UnicodeError) as error:  # no host's name is such a text
            raise RemoteError(f"no `tilewright serve` answers at {self.address}: {error}") from None
        try:
            self._wire = Wire(stream, self._key, serves=False)
            said, _ = self._wire.receive()
        except (WrongKey, OSError, EOFError, ValueError) as error:
            stream.close()
            self._wire = None
            raise RemoteError(
                f"{self.address} does not take the key of {KEY}, or is no `tilewright serve` "
                f"({error or type(error).__name__})"
            ) from None
        self.machine = said["machine"]
        if said["version"] != __version__:
            self.stop()
            raise RemoteError(
                f"{self.address} has Tilewright {said['version']}, this is {__version__}: install "
                "the same on both"
            )

    def call(self, request: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """The answer to a request, whose files are sent first; see :meth:`Worker.call`."""
        made = dict(request)
        with self._lock, self._speaking() as wire:
            if "path" in made:
                made["path"] = self._put(wire, "kernel", Path(made["path"]).read_bytes())
            if "data" in made and made["data"] not in self._sent:
                name = f"data{len(self._sent)}"
                self._sent[made["data"]] = self._put(wire, name, Path(made["data"]).read_bytes())
            if "data" in made:
                made["data"] = self._sent[made["data"]]
            return self._ask(wire, made, timeout)

    def _speaking(self) -> _Speaking:
        self.start()
        assert self._wire is not None
        return _Speaking(self, self._wire)

    def _put(self, wire: Wire, name: str, data: bytes | memoryview) -> str:
        wire.send({"do": "put", "name": name}, data)
        wire.receive()
        return name

    def _get(self, wire: Wire, name: str) -> bytes:
        wire.send({"do": "get", "name": name})
        _, size = wire.receive()
        return b"".join(wire.parts(size))

    def _ask(self, wire: Wire, request: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        wire.send({"do": "call", "request": request, "timeout": timeout})
        found, _ = wire.receive()
        while "busy" in found:
            found, _ = wire.receive()
        if "died" in found:
            raise WorkerDied(found["died"])
        if "late" in found:
            raise WorkerTimeout(found["late"])
        answer: dict[str, Any] = found["answer"]
        return answer

    def stop(self) -> None:
        """End the connection, and the process there; the next call begins another one."""
        wire, self._wire = self._wire, None
        self._sent.clear()
        if wire is not None:
            wire.close()

    close = stop


class _Speaking:
    """A connection in use; where it breaks, it is closed, and that is :class:`WorkerDied`. It is
    closed, too, where its answer is not awaited, as by Ctrl-C: the next request would get it."""

    def __init__(self, worker: RemoteWorker, wire: Wire) -> None:
        self._worker, self._wire = worker, wire

    def __enter__(self) -> Wire:
        return self._wire

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, (WorkerDied, WorkerTimeout)):
            return
        self._worker.stop()
        if isinstance(error, (OSError, EOFError)):
            why = f"the connection to {self._worker.address} broke: {error}"
            raise WorkerDied(why) from None


@runtime_checkable
class Loadable(Protocol):
    """What knows how it is on another machine, as models do."""

    def remote(self, there: Remote) -> Any: ...


class Remote:
    """Another machine, as :func:`tilewright.connect` gives it."""

    def __init__(self, address: str, key: str | None = None) -> None:
        self._worker = RemoteWorker(address, None if key is None else key.encode())
        self._worker.start()
        self.address, self._closed = address, False

    def device(self, target: str | Target) -> str:
        """What it has for a target; raises :class:`RemoteError` where that is nothing."""
        return str(self.machine(target)["device"])

    def machine(self, target: str | Target) -> dict[str, Any]:
        """Its ``device`` for a target, that one's ``driver``, and the ``target`` with the device's
        architecture. Raises :class:`RemoteError` where it has none, and where code that is compiled
        here cannot run there."""
        found, _ = self.ask({"do": "device", "target": str(target)})
        _check_processor(self._worker, Target.parse(target))
        return {**found, "target": str(_named(found))}

    def load(self, kernel: Kernel | Loadable | str | Path) -> Any:
        """A kernel or a model there.

        A :class:`RemoteKernel` of a kernel that was built here, for that machine's target, or of
        the file that ``kernel.save`` wrote; a :class:`~tilewright.graph.remote.RemoteModel` of a
        model that :func:`tilewright.load` read for that machine's target. Raises
        :class:`RemoteError` where it cannot run there.
        """
        if isinstance(kernel, Loadable):
            return kernel.remote(self)
        if isinstance(kernel, Kernel):
            with tempfile.TemporaryDirectory() as folder:
                kernel.save(Path(folder) / "kernel.tw")
                return self.load(Path(folder) / "kernel.tw")
        data = Path(kernel).read_bytes()
        name = hashlib.sha256(data).hexdigest()
        found, _ = self.ask({"do": "signature", "path": name}, {name: data})
        return RemoteKernel(self, name, data, found)

    def ask(
        self,
        request: Mapping[str, Any],
        files: Mapping[str, bytes | memoryview] | None = None,
        wanted: Sequence[str] = (),
    ) -> tuple[dict[str, Any], list[bytes]]:
        """The answer to a request behind ``files``, and what those ``wanted`` contain then; one
        thread at a time. A file that is named by its contents is sent once."""
        if self._closed:
            raise RemoteError(f"{self.address}: the connection is closed, connect again")
        worker = self._worker
        try:
            with worker._lock, worker._speaking() as wire:
                for name, data in (files or {}).items():
                    if name not in worker._sent:
                        worker._put(wire, name, data)
                    if len(name) == _DIGITS:
                        worker._sent[name] = name
                found = worker._ask(wire, request, _CALL)
                contents = [worker._get(wire, n) for n in wanted if not found["error"]]
        except (WorkerDied, WorkerTimeout) as error:
            raise RemoteError(f"{self.address}: {error}") from None
        if found["error"]:
            raise RemoteError(f"{self.address}: {found['reason']}")
        return found, contents

    def close(self) -> None:
        """End the connection, with what was loaded."""
        self._closed = True
        self._worker.close()

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Remote {self.address}>"


class RemoteKernel:
    """A kernel on another machine, called with arrays of this one, which travel with each call."""

    def __init__(self, remote: Remote, file: str, data: bytes, said: Mapping[str, Any]) -> None:
        self._remote, self._file, self._data = remote, file, data
        self.name: str = said["name"]
        self.params: list[str] = said["params"]
        self._written = frozenset(said["written"])

    def __call__(self, *args: Any) -> None:
        """Run it once; outputs are written in place. Raises :class:`ArgumentError` for what is no
        dense array of the host, and :class:`RemoteError` for what the kernel says there."""
        self._run(args, 0, 0)

    def time(self, *args: Any, repeat: int = 10, number: int = 0) -> Timing:
        """Measure it there, as :meth:`Kernel.time` does; nothing travels within the time."""
        if repeat < 1 or number < 0:
            raise ArgumentError(f"repeat={repeat} and number={number} must be positive")
        found = self._run(args, repeat, number)
        return Timing(tuple(found["costs"]), found["number"])

    def _run(self, args: tuple[Any, ...], repeat: int, number: int) -> dict[str, Any]:
        if len(args) != len(self.params):
            listed = ", ".join(self.params)
            raise ArgumentError(
                f"kernel {self.name} takes {len(self.params)} arguments ({listed}), got {len(args)}"
            )
        arrays: list[Any] = []
        views: dict[int, ArrayView] = {}
        for k, arg in enumerate(args):
            if isinstance(arg, int):
                arrays.append(arg)
                continue
            found = views[k] = self._view(k, arg)
            arrays.append([list(found.shape), str(found.dtype)])
        request = {
            "do": "call", "path": self._file, "folder": "", "arrays": arrays,
            "repeat": repeat, "number": number,
        }  # fmt: skip
        # An output's contents travel, too: a kernel may leave elements as they are.
        files = {self._file: self._data} | {f"array{k}": _memory(v) for k, v in views.items()}
        written = sorted(self._written & views.keys())
        answer, made = self._remote.ask(request, files, [f"array{k}" for k in written])
        for k, data in zip(written, made, strict=True):
            ctypes.memmove(views[k].pointer, data, views[k].size * views[k].dtype.bytes)
        return answer

    def _view(self, k: int, arg: Any) -> ArrayView:
        where = f"kernel {self.name}, argument {k} ({self.params[k]})"
        try:
            found = view(arg)
        except ArgumentError as error:
            raise ArgumentError(f"{where}: {error}") from None
        if found.device != "cpu":
            raise ArgumentError(f"{where}: it is on {found.device}, pass an array of the host")
        pairs = zip(found.shape, found.strides, dense_strides(found.shape), strict=True)
        if any(extent > 1 and a != b for extent, a, b in pairs):
            raise ArgumentError(f"{where}: it is not dense, pass np.ascontiguousarray(it)")
        if found.readonly and k in self._written:
            raise ArgumentError(f"{where} is written, but the array is read-only: pass a copy")
        return found

    def __repr__(self) -> str:
        return f"<RemoteKernel {self.name}({', '.join(self.params)}) on {self._remote.address}>"


def _memory(found: ArrayView) -> memoryview:
    nbytes = found.size * found.dtype.bytes
    return memoryview((ctypes.c_char * nbytes).from_address(found.pointer)).cast("B")


def connect(address: str, key: str | None = None) -> Remote:
    """A machine on which ``tilewright serve`` runs kernels, at "HOST:PORT".

    ``key`` is the server's, by default that of the variable TILEWRIGHT_REMOTE_KEY. Raises
    :class:`RemoteError` where nobody answers, or the key or the version is another one.
    """
    return Remote(address, key)


def target_there(addresses: str, target: Target) -> Target:
    """A target with the architecture of the GPU that the first of other machines has, or the name
    of its OpenCL device where that is known, on which candidates depend.

    Raises :class:`RemoteError` where it has none."""
    made = workers(addresses, target)
    worker = made[0]
    try:
        found = worker.call({"do": "device", "target": str(target)}, _CALL)
    except (WorkerDied, WorkerTimeout) as error:
        raise RemoteError(f"{worker.address}: {error}") from None
    finally:
        for each in made:
            each.close()
    if found["error"]:
        raise RemoteError(f"{worker.address}: {found['reason']}")
    return _named(found)


def _named(machine: Mapping[str, Any]) -> Target:
    """The target of another machine; of an OpenCL device by its name, where it is one that is known
    so: what is written here is then for it, and not for a device of this machine."""
    target = Target.parse(machine["target"])
    if target.kind != "opencl" or target.arch:
        return target
    known = opencl_device(machine["device"])
    return target if known is None or " " in known.name else target.with_arch(known.name)


def workers(addresses: str, target: Target) -> list[RemoteWorker]:
    """Those of addresses with commas between them; raises :class:`RemoteError` where one does not
    answer, or kernels that are built here cannot run there."""
    made = [RemoteWorker(address.strip()) for address in addresses.split(",")]
    for worker in made:
        worker.start()
        _check_processor(worker, target)
    return made


def _check_processor(worker: RemoteWorker, target: Target) -> None:
    """Raises :class:`RemoteError` where a processor runs no code that is compiled here."""
    if target.kind == "llvm" and worker.machine != platform.machine():
        raise RemoteError(
            f"{worker.address} is {worker.machine}, and kernels that are built here are for "
            f"{platform.machine()}: run `tilewright` there, or use the target opencl"
        )
