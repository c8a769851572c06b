"""The records of all tuning on this machine: one SQLite file in the user's cache folder.

Every measurement is one row, committed as soon as it is known. The file is in WAL mode, so that
several processes read and write at once and a process that is killed leaves all that it committed.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.target import Target
from tilewright.tune.arguments import deserialize, serialize
from tilewright.tune.config import ConfigEntity
from tilewright.tune.measure import Device, MeasureErrorNo, MeasureInput, MeasureResult
from tilewright.tune.task import Task

#: "Tile", so that another program's database is not taken for one of these.
_APPLICATION = 0x54696C65
#: Of the table below; a file with a greater one is from a newer version, and left alone.
SCHEMA = 1
_TABLE = """
CREATE TABLE measurements (
    id INTEGER PRIMARY KEY,
    problem TEXT NOT NULL,
    target TEXT NOT NULL,
    device TEXT NOT NULL,
    driver TEXT NOT NULL,
    version TEXT NOT NULL,
    template TEXT NOT NULL,
    args TEXT NOT NULL,
    config TEXT NOT NULL,
    cost REAL,
    costs TEXT NOT NULL,
    error INTEGER NOT NULL,
    reason TEXT NOT NULL,
    all_cost REAL NOT NULL,
    timestamp REAL NOT NULL,
    extra TEXT NOT NULL,
    UNIQUE (problem, target, device, driver, version, config, timestamp)
)
"""
_COLUMNS = (
    "problem, target, device, driver, version, template, args, config, cost, costs, error, "
    "reason, all_cost, timestamp, extra"
)


class RecordsError(TilewrightError):
    """Records that cannot be read or written; the message says where they are and what to do."""


@dataclass(frozen=True)
class Record:
    """One row."""

    id: int
    problem: str
    device: Device
    input: MeasureInput
    result: MeasureResult

    @property
    def name(self) -> str:
        """The problem for people to read."""
        return _name(self.input.task.name, json.dumps(serialize(self.input.task.args)))


@dataclass(frozen=True)
class Summary:
    """What is on record for one problem, target and device.

    ``name`` is the problem for people to read; ``best`` is in seconds.
    """

    name: str
    problem: str
    target: str
    device: Device
    measured: int
    failed: int
    best: float | None
    last: float


def default_path() -> Path | None:
    """``records.sqlite`` in the cache folder; None where keeping is switched off."""
    from tilewright.runtime.cache import folder

    root = folder()
    return None if root is None else root / "records.sqlite"


class Records:
    """The records in one file; made where it is not there yet.

    Parameters
    ----------
    path : the file, by default :func:`default_path`; where that is None, records are kept in
        memory and forgotten.
    create : whether to make a file that is not there; without it there are then no records.

    Raises :class:`RecordsError` where the file is damaged (it is moved aside, so that the next
    run starts a new one), where it comes from a newer version, and where it cannot be opened.
    """

    def __init__(self, path: str | Path | None = None, create: bool = True) -> None:
        found = default_path() if path is None else Path(path)
        self.path = found
        with self._guarded():
            if found is None or not (create or found.exists()):
                self._db = sqlite3.connect(":memory:")
            else:
                found.parent.mkdir(parents=True, exist_ok=True)
                self._db = sqlite3.connect(found, timeout=60, isolation_level=None)
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def _prepare(self) -> None:
        db = self._db
        db.isolation_level = None
        version = self._pragma("user_version")
        if version > SCHEMA:
            raise RecordsError(
                f"{self.path} was written by a newer version of tilewright (its format is "
                f"{version}, this version knows {SCHEMA}): update tilewright, or name another "
                "file. Nothing was changed in it"
            )
        if version == SCHEMA and self._pragma("application_id") == _APPLICATION:
            db.execute("PRAGMA synchronous = FULL")
            return
        db.execute("BEGIN IMMEDIATE")
        try:
            tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if self._pragma("application_id") != _APPLICATION:
                if tables:
                    raise RecordsError(
                        f"{self.path} is the database of another program: name another file"
                    )
                db.execute(_TABLE)
                db.execute(
                    "CREATE INDEX by_problem ON measurements (problem, target, device, cost)"
                )
                db.execute(f"PRAGMA application_id = {_APPLICATION}")
                db.execute(f"PRAGMA user_version = {SCHEMA}")
            db.execute("COMMIT")
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("PRAGMA journal_mode = WAL")  # the file remembers this one
        db.execute("PRAGMA synchronous = FULL")

    def _pragma(self, name: str) -> int:
        return int(self._db.execute(f"PRAGMA {name}").fetchone()[0])

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """SQLite's errors as ours."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            name = getattr(error, "sqlite_errorname", "")
            if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
                raise RecordsError(self._set_aside(error)) from None
            if name.startswith("SQLITE_FULL"):
                raise RecordsError(
                    f"the disk is full: {self.path} could not take another record ({error}). What "
                    "was recorded before is safe; free some space and go on with --resume"
                ) from None
            raise RecordsError(
                f"{self.path}: {error}. Is the folder there and writable, and the file not "
                "locked by a process that hangs?"
            ) from None
        except OSError as error:
            raise RecordsError(f"{self.path} cannot be opened: {error}") from None

    def _set_aside(self, error: Exception) -> str:
        """Move a damaged file away; the message about it."""
        if hasattr(self, "_db"):
            self._db.close()
        assert self.path is not None
        aside = self.path.with_name(f"{self.path.name}.damaged-{time.time_ns()}")
        try:
            os.replace(self.path, aside)
            for suffix in ("-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.replace(f"{self.path}{suffix}", f"{aside}{suffix}")
        except OSError as problem:
            return f"{self.path} is damaged ({error}), and cannot be moved aside: {problem}"
        return (
            f"{self.path} is damaged ({error}). It was kept as {aside}; the next run starts a new "
            "file, into which `tilewright records import` takes what was exported"
        )

    def check(self) -> None:
        """Read every page; raises :class:`RecordsError` where one is damaged."""
        with self._guarded():
            found = self._db.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if found != "ok":
                raise RecordsError(self._set_aside(sqlite3.DatabaseError(found)))

    # -- writing -----------------------------------------------------------------------------

    def add(self, found: Iterable[tuple[MeasureInput, MeasureResult]], device: Device) -> int:
        """Commit measurements, all or, where that fails, none; those known already are passed
        over. Returns how many were new."""
        rows = [_row(inp, result, device) for inp, result in found]
        marks = ", ".join("?" * len(_COLUMNS.split(",")))
        with self._guarded():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                before = self._db.total_changes
                self._db.executemany(
                    f"INSERT OR IGNORE INTO measurements ({_COLUMNS}) VALUES ({marks})", rows
                )
                self._db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # a full disk rolls back by itself
                    self._db.execute("ROLLBACK")
                raise
            return self._db.total_changes - before

    def prune(
        self,
        keep: int | None = None,
        older_than: float | None = None,
        failed: bool = False,
        problem: str | None = None,
    ) -> int:
        """Remove records; how many.

        Parameters
        ----------
        keep : leave the fastest so many of each problem, target, device, driver and version.
        older_than : remove those older than so many seconds.
        failed : remove the candidates that failed.
        problem : only of this problem.
        """
        rules: list[tuple[str, list[Any]]] = []
        if keep is not None:
            rules.append((
                "id IN (SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY problem, "
                "target, device, driver, version ORDER BY cost IS NULL, cost, id) AS place "
                "FROM measurements) WHERE place > ?)",
                [keep],
            ))  # fmt: skip
        if older_than is not None:
            rules.append(("timestamp < ?", [time.time() - older_than]))
        if failed:
            rules.append(("error != 0", []))
        removed = 0
        with self._guarded():
            for rule, values in rules:
                text = f"DELETE FROM measurements WHERE {rule}"
                if problem is not None:
                    text, values = f"{text} AND problem = ?", [*values, problem]
                removed += self._db.execute(text, values).rowcount
            if removed:
                self._db.execute("VACUUM")
        return removed

    # -- reading -----------------------------------------------------------------------------

    def find(
        self,
        problem: str | None = None,
        target: str | None = None,
        device: str | None = None,
        *,
        template: str | None = None,
        exact: Device | None = None,
        only_right: bool = False,
        limit: int | None = None,
        fastest_first: bool = False,
    ) -> list[Record]:
        """Records, in the order of their measuring or fastest first."""
        where, values = _where({
            "problem": problem,
            "target": target,
            "device": exact.name if exact else device,
            "driver": exact.driver if exact else None,
            "version": exact.version if exact else None,
            "template": template,
        })  # fmt: skip
        if only_right:
            where.append("error = 0")
        text = f"SELECT id, {_COLUMNS} FROM measurements"
        if where:
            text += " WHERE " + " AND ".join(where)
        text += " ORDER BY cost IS NULL, cost, id" if fastest_first else " ORDER BY id"
        if limit is not None:
            text, values = f"{text} LIMIT ?", [*values, limit]
        with self._guarded():
            return [_record(row) for row in self._db.execute(text, values).fetchall()]

    def best(
        self, problem: str, target: str | None = None, device: str | None = None
    ) -> Record | None:
        """The fastest candidate of a problem that was right, None where there is none."""
        found = self.find(problem, target, device, only_right=True, limit=1, fastest_first=True)
        return found[0] if found else None

    def summaries(self) -> list[Summary]:
        """What there is, the latest first."""
        text = (
            "SELECT template, args, problem, target, device, driver, version, count(*), "
            "sum(error != 0), min(cost), max(timestamp) AS last FROM measurements "
            "GROUP BY problem, target, device, driver, version ORDER BY last DESC"
        )
        with self._guarded():
            return [
                Summary(_name(row[0], row[1]), row[2], row[3], Device(*row[4:7]), *row[7:])
                for row in self._db.execute(text).fetchall()
            ]

    def __len__(self) -> int:
        with self._guarded():
            return int(self._db.execute("SELECT count(*) FROM measurements").fetchone()[0])

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _name(template: str, args: str) -> str:
    """A problem as it writes itself, or a template with its arguments."""
    found = deserialize(json.loads(args))
    if len(found) == 1 and hasattr(found[0], "key"):
        return str(found[0])
    return f"{template}({', '.join(map(str, found))})"


def _where(wanted: dict[str, str | None]) -> tuple[list[str], list[Any]]:
    given = {name: value for name, value in wanted.items() if value is not None}
    return [f"{name} = ?" for name in given], list(given.values())


def _row(inp: MeasureInput, result: MeasureResult, device: Device) -> tuple[Any, ...]:
    task = inp.task
    return (
        task.key, str(task.target), device.name, device.driver, device.version, task.name,
        json.dumps(serialize(task.args)), json.dumps(inp.config.to_json_dict()),
        result.cost if result.ok else None, json.dumps(list(result.costs)),
        int(result.error_no), result.reason, result.all_cost, result.timestamp,
        json.dumps(result.extra),
    )  # fmt: skip


def _record(row: tuple[Any, ...]) -> Record:
    (number, problem, target, name, driver, version, template, args, config, _, costs, error,
     reason, all_cost, timestamp, extra) = row  # fmt: skip
    task = Task(template, tuple(deserialize(json.loads(args))), Target.parse(target))
    entity = ConfigEntity.from_json_dict(json.loads(config))
    result = MeasureResult(
        tuple(json.loads(costs)), MeasureErrorNo(error), reason, all_cost, timestamp,
        json.loads(extra),
    )  # fmt: skip
    return Record(
        number, problem, Device(name, driver, version), MeasureInput(task, entity), result
    )
