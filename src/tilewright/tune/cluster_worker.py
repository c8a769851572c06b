"""What the workers of a Dask cluster do for a tuner: they build candidates, and measure them.

A worker's own process only starts others, as in :mod:`.local`, so that no candidate can end it.
All that comes in and goes out is made of JSON's types, and of bytes for compiled kernels.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.target import Target
from tilewright.tune.builders import Builders, LocalBuilder
from tilewright.tune.devices import Devices, LocalRunner
from tilewright.tune.task import Task

#: Seconds after which the processes of a session that nobody uses end: its tuner was killed.
IDLE = 120.0

_sessions: dict[str, Session] = {}
_lock = threading.Lock()


class Session:
    """The processes of one worker for one run of a tuner.

    Parameters
    ----------
    settings : "id", "task", "config" (any one), "hello" or "naive", "builder" and "runner" as
        their classes have them, "processes" that build, None for one a thread of the worker, and
        the "resource" that counts its devices.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self._folder = tempfile.TemporaryDirectory(
            prefix="tilewright-tune-", ignore_cleanup_errors=True
        )
        folder = Path(self._folder.name)
        task, worker = Task.from_json(settings["task"]), _worker().state
        processes = settings["processes"] or worker.nthreads
        builder = LocalBuilder(n_parallel=processes, **settings["builder"])
        hello = settings["hello"]
        request = hello and {k: v for k, v in hello.items() if k != "digest"}
        self.builders = Builders(task, builder, folder, request)
        devices = range(max(1, int(worker.total_resources.get(settings["resource"], 0))))
        self.runner = LocalRunner(devices=devices, **settings["runner"])
        self.devices = Devices(task.target, self.runner, folder)
        self._data: Path | None = None
        self._device: list[str] = []
        self._preparing = threading.Lock()
        self.users = 0
        self.idle: threading.Timer | None = None

    def build(self, candidate: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to "build", the kernel as bytes."""
        found = self.builders.build(candidate["config"], candidate.get("module"))
        path = Path(found.pop("path"))
        with contextlib.suppress(FileNotFoundError):
            found["kernel"] = path.read_bytes()
            path.unlink()
        return {**found, "index": candidate["config"]["index"]}

    def run(self, built: dict[str, Any]) -> dict[str, Any]:
        """The result of what :meth:`build` gave, with the device that it is of."""
        with self._preparing:
            if not self._device:
                found = self.devices.ask()
                self._device = [found["device"], found["driver"], found["version"]]
            if self._data is None:
                s = self.settings
                self._data = self.builders.prepare(s["config"], self.runner.seed, s["naive"])
        with tempfile.NamedTemporaryFile(dir=self._folder.name, suffix=".tw", delete=False) as file:
            file.write(built.pop("kernel", b""))
        result = self.devices.run({**built, "path": file.name}, self._data)
        return {
            "costs": list(result.costs), "error": int(result.error_no), "reason": result.reason,
            "all_cost": result.all_cost, "timestamp": result.timestamp, "extra": result.extra,
            "device": self._device,
        }  # fmt: skip

    def close(self) -> None:
        self.builders.close()
        self.devices.close()
        self._folder.cleanup()


@contextlib.contextmanager
def _session(text: str) -> Iterator[Session]:
    """The session of these settings; it ends when it was not used for a while."""
    settings = json.loads(text)
    with _lock:
        found = _sessions.get(settings["id"])
        if found is None:
            if not knows(settings["hello"]):
                raise TilewrightError("it has no such file as the tuner has its template from")
            found = _sessions[settings["id"]] = Session(settings)
        found.users += 1
        if found.idle is not None:
            found.idle.cancel()
    try:
        yield found
    finally:
        with _lock:
            found.users -= 1
            if not found.users:
                found.idle = threading.Timer(IDLE, end, [settings["id"]])
                found.idle.daemon = True
                found.idle.start()


def end(name: str) -> None:
    """End a session, unless it is in use."""
    with _lock:
        found = _sessions.get(name)
        if found is None or found.users:
            return
        del _sessions[name]
    if found.idle is not None:
        found.idle.cancel()
    found.close()


def knows(hello: Mapping[str, Any] | None) -> bool:
    """Whether the template that a request loads is the same here as there."""
    return hello is None or digest(hello) == hello["digest"]


def digest(hello: Mapping[str, Any]) -> str:
    """Of the source of a template; one of this package's by the package's version."""
    from tilewright import __version__

    if hello["module"].startswith("tilewright."):
        return str(__version__)
    try:
        return hashlib.sha256(Path(hello["path"]).read_bytes()).hexdigest()
    except OSError:
        return ""


def describe(target: str, hello: dict[str, Any] | None, has_device: bool) -> dict[str, Any]:
    """What a worker has: whether it "knows" the template, its "device", or an "error"."""
    found: dict[str, Any] = {"knows": knows(hello)}
    if not has_device:
        return found
    with tempfile.TemporaryDirectory(prefix="tilewright-tune-") as folder:
        devices = Devices(Target.parse(target), LocalRunner(), Path(folder))
        try:
            return found | devices.ask()
        except TilewrightError as error:
            return found | {"error": str(error)}
        finally:
            devices.close()


def build(settings: str, candidate: dict[str, Any]) -> dict[str, Any]:
    """Build a candidate on whatever worker this is."""
    return _fit(lambda: _with(settings, lambda s: s.build(candidate)))


def run(settings: str, built: dict[str, Any]) -> dict[str, Any]:
    """Measure what :func:`build` gave on a worker with a device."""
    if "unfit" in built:
        return built
    return _fit(lambda: _with(settings, lambda s: s.run(dict(built))))


def build_and_run(settings: str, candidate: dict[str, Any]) -> dict[str, Any]:
    """Both: building would disturb the times of others on this processor."""
    return run(settings, build(settings, candidate))


def _with(settings: str, act: Callable[[Session], dict[str, Any]]) -> dict[str, Any]:
    with _session(settings) as session:
        return act(session)


def _fit(act: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The answer, or why this worker is not fit to give one."""
    try:
        return act()
    except (TilewrightError, OSError) as error:
        return {"unfit": str(error), "worker": _worker().address}


def _worker() -> Any:
    """The worker that runs this."""
    from distributed import get_worker

    return get_worker()
