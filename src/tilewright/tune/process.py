"""A process that does what may crash or hang, and tells by lines of JSON over pipes.

It is started again, not forked, so that it holds no lock and no context of this one; nothing is
pickled. It ends when this process does: its input is then at an end, and an alarm of the system's
ends it where it does not listen.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "import importlib; importlib.import_module(sys.argv[2]).main()"
)
#: Seconds that importing what a template imports may take.
START = 300.0
_HEAD = 8  # bytes that hold the length of a message


class WorkerDied(Exception):
    """The process ended over a request; the message says how."""


class WorkerTimeout(Exception):
    """The process did not answer in time, and was ended."""


class Worker:
    """One such process, started when it is first asked, and again after it has died.

    Parameters
    ----------
    log : a file that takes what it writes on its standard output and error.
    hello : the request that it gets first, whenever it is started; its answer is ``greeting``.
    environment : variables on top of this process' own.
    module : whose ``main`` answers requests.
    """

    def __init__(
        self,
        log: Path,
        hello: Mapping[str, Any],
        environment: Mapping[str, str] | None = None,
        module: str = "tilewright.tune.worker",
    ) -> None:
        self._module = module
        self._log, self._hello = log, hello
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self.greeting: dict[str, Any] = {}
        self._closed = False
        self._reading = threading.RLock()

    def start(self) -> None:
        """Start it where it does not run."""
        if self._process is not None or self._closed:
            return
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, json.dumps(sys.path), self._module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **self._environment},
                start_new_session=True,  # Ctrl-C is ours to handle
            )
        if self._closed:  # by another thread, which had no process to end
            self.stop()
        self.greeting = self._ask(self._hello, START)

    def call(self, request: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """The answer to a request.

        Raises :class:`WorkerDied` and :class:`WorkerTimeout`; the next call then starts a new one.
        """
        self.start()
        return self._ask(request, timeout)

    def _ask(self, request: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise WorkerDied("the process is closed")
        data = json.dumps({**request, "alarm": timeout + 10}).encode()
        try:
            with self._reading:
                process.stdin.write(len(data).to_bytes(_HEAD, "little") + data)
                process.stdin.flush()
                pipe, deadline = process.stdout.fileno(), time.monotonic() + timeout
                size = int.from_bytes(self._read(pipe, _HEAD, deadline), "little")
                answer = json.loads(self._read(pipe, size, deadline))
        except TimeoutError:
            self.stop()
            raise WorkerTimeout(f"no answer within {timeout:g} s") from None
        except (OSError, EOFError, ValueError):
            raise WorkerDied(self._obituary()) from None
        assert isinstance(answer, dict)
        return answer

    def _read(self, pipe: int, size: int, deadline: float) -> bytes:
        data = b""
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while len(data) < size:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError
                part = os.read(pipe, size - len(data))
                if not part:
                    raise EOFError
                data += part
        return data

    def _obituary(self) -> str:
        """How it died, with the last that it wrote."""
        process = self._process
        code = None
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(2)
        self.stop()
        if code is None:
            how = "the process stopped answering"
        elif code < 0:
            how = f"the process was ended by {_signal_name(-code)}"
        else:
            how = f"the process ended with status {code}"
        lines = [line.strip() for line in self.said().splitlines() if line.strip()]
        return f"{how}: {' | '.join(lines[-4:])[-300:]}" if lines else how

    def said(self) -> str:
        """What it wrote on its standard output and error."""
        try:
            return self._log.read_bytes()[-4000:].decode(errors="replace")
        except OSError:
            return ""

    def stop(self) -> None:
        """End it at once, with the processes that it started."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        # Not before who reads them has seen that they end: it would wait for a pipe that is closed.
        with self._reading:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()

    def close(self) -> None:
        """End it for good."""
        self._closed = True
        self.stop()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
