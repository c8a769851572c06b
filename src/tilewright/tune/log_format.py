"""Records as JSON lines: AutoTVM's log, line by line.

``{"input": [target, template, args, {}], "config": {...}, "result": [costs, error, all_cost,
timestamp], "version": 0.2, "tvm_version": ...}``; those of version 0.1 are read too. Lines written
here also have "tilewright", with
the device, the driver, the version and the reason of a failure; readers of AutoTVM pass over it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tilewright.target import Target
from tilewright.tune import untrusted
from tilewright.tune.arguments import deserialize, serialize
from tilewright.tune.config import ConfigEntity
from tilewright.tune.entity import TuningError
from tilewright.tune.measure import Device, MeasureErrorNo, MeasureInput, MeasureResult
from tilewright.tune.task import Task

VERSION = 0.2
#: The cost that AutoTVM writes for a candidate that failed.
_FAILED = 1e10


def encode(inp: MeasureInput, result: MeasureResult, device: Device | None = None) -> str:
    """One line, without its end."""
    costs = list(result.costs) or [_FAILED]
    line: dict[str, Any] = {
        "input": [str(inp.target), inp.task.name, serialize(inp.task.args), {}],
        "config": inp.config.to_json_dict(),
        "result": [costs, int(result.error_no), result.all_cost, result.timestamp],
        "version": VERSION,
        "tvm_version": "tilewright",
    }
    ours = {"reason": result.reason} if result.reason else {}
    if device is not None:
        ours |= {"device": device.name, "driver": device.driver, "version": device.version}
    if ours:
        line["tilewright"] = ours
    return json.dumps(line)


def decode(line: str) -> tuple[MeasureInput, MeasureResult, Device | None]:
    """The inverse; raises :class:`TuningError` saying what is wrong with the line."""
    try:
        found = _renamed(untrusted.parse(line))
        target, name, args = found["input"][:3]
        costs, error, all_cost, timestamp = found["result"]
        config = ConfigEntity.from_json_dict(found["config"])
        no_error = int(error) == 0
        ours = found.get("tilewright", {})
        device = None
        if "device" in ours:
            device = Device(ours["device"], ours.get("driver", ""), ours.get("version", ""))
        result = MeasureResult(
            untrusted.seconds(costs) if no_error else (),
            MeasureErrorNo(int(error)),
            str(ours.get("reason", "")),
            float(all_cost),
            float(timestamp),
        )
        task = Task(str(name), tuple(deserialize(args)), _target(str(target)))
    except Exception as error:  # what wrong types lead to
        raise TuningError(f"not a line of a tuning log ({error}): {line.strip()[:80]}") from None
    return MeasureInput(task, config), result, device


def _renamed(line: dict[str, Any]) -> dict[str, Any]:
    """A line of version 0.1, of 2018, under the names of later ones."""
    if "i" not in line or "input" in line:
        return line
    *given, config = line["i"]
    config = {"index": config["i"], "entity": config["e"]}
    return {"input": given, "config": config, "result": line["r"], "version": line.get("v")}


def _target(text: str) -> Target:
    """A target of AutoTVM's, of whose options only the architecture matters here."""
    words = text.split()
    known = [w for w in words[1:] if w.lstrip("-").partition("=")[0] in ("arch", "mcpu", "threads")]
    if "-mcpu" in text and not text.startswith("cuda"):
        known = [w for w in known if "mcpu" not in w]  # processors here are feature sets
    return Target.parse(" ".join([words[0], *known]) if words else text)


def read_log(path: str | Path) -> Iterator[tuple[MeasureInput, MeasureResult]]:
    """The records of a file.

    A last line that a killed writer left incomplete is passed over; raises :class:`TuningError`
    with the line's number for any other that is none.
    """
    for inp, result, _ in read_lines(path):
        yield inp, result


def read_lines(path: str | Path) -> Iterator[tuple[MeasureInput, MeasureResult, Device | None]]:
    """:func:`read_log` with the devices, None where a line names none."""
    for number, line in _lines(path):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            yield decode(line)
        except TuningError as error:
            if not line.endswith("\n"):
                return
            raise TuningError(f"{path}, line {number}: {error}") from None


def pick_best(in_file: str | Path, out_file: str | Path) -> None:
    """Write the fastest record of each task and target of a file to another, under AutoTVM's name;
    of equal ones the last, and of tasks without one that worked none."""
    best: dict[tuple[str, Any], tuple[float, str]] = {}
    for inp, result, device in read_lines(in_file):
        key = str(inp.target), inp.task.workload
        cost = sum(result.costs) / len(result.costs) if result.costs else _FAILED
        if not result.error_no and cost <= best.get(key, (cost, ""))[0]:
            best[key] = cost, encode(inp, result, device)
    text = "".join(f"{line}\n" for _, line in best.values())
    Path(out_file).write_text(text, encoding="utf-8")


def _lines(path: str | Path) -> Iterator[tuple[int, str]]:
    try:
        with Path(path).open(encoding="utf-8") as file:
            yield from enumerate(file, 1)
    except OSError as error:
        raise TuningError(f"the log {path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise TuningError(f"{path} is no tuning log: it is not text") from None
