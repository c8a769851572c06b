"""The records of all tuning on this machine: one SQLite file in the user's cache folder.

Every measurement is one row, committed as soon as it is known. The file is in WAL mode, so that
several processes read and write at once and a process that is killed leaves all that it committed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.runtime.files import disk_full
from tilewright.tune.entity import TuningError
from tilewright.tune.measure import Device, MeasureInput, MeasureResult
from tilewright.tune.record import COLUMNS, Record, Summary, from_row, problem_name, to_row

__all__ = ["Record", "Records", "RecordsError", "Summary", "default_path", "is_database"]

#: "Tile", so that another program's database is not taken for one of these.
_APPLICATION = 0x54696C65
#: Of the table below; a file with a greater one is from a newer version, and left alone.
SCHEMA = 1
#: What SQLite calls a write for which there is no room.
_NO_ROOM = (
    "SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHMSIZE", "SQLITE_IOERR_FSYNC",
    "SQLITE_IOERR_TRUNCATE",
)  # fmt: skip
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


#: Files about which was warned.
_warned: set[Path | None] = set()


class RecordsError(TilewrightError):
    """Records that cannot be read or written; the message says where they are and what to do."""


def is_database(path: str | Path) -> bool:
    """Whether a file is one of SQLite's."""
    try:
        with Path(path).open("rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    except OSError:
        return False


def default_path() -> Path | None:
    """``records.sqlite`` in the cache folder; None where nothing is kept."""
    from tilewright.runtime.cache_folder import folder

    root = folder()
    return None if root is None else root / "records.sqlite"


class Records:
    """The records in one file; made where it is not there yet.

    Parameters
    ----------
    path : the file, by default :func:`default_path`; where that is None, records are kept in
        memory and forgotten.
    create : whether to make a file that is not there; without it there are then no records, and
        those in a folder that cannot be written to are read.

    Raises :class:`RecordsError` where the file is damaged (it is moved aside, so that the next
    run starts a new one), where it is none by its contents and its name, where it comes from a
    newer version, and where it cannot be opened.
    """

    def __init__(self, path: str | Path | None = None, create: bool = True) -> None:
        found = default_path() if path is None else Path(path)
        self.path = found
        with self._guarded():
            if found is None or not (create or os.path.exists(found)):
                self._db = sqlite3.connect(":memory:")
            elif create or os.access(found.parent, os.W_OK):
                _make_parent(found)
                self._db = sqlite3.connect(found, timeout=60, isolation_level=None)
            else:  # without the files that SQLite makes beside it even to read
                self._db = sqlite3.connect(f"{found.absolute().as_uri()}?immutable=1", uri=True)
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
            with contextlib.suppress(sqlite3.Error):  # a full disk rolls back by itself
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
            if name.startswith("SQLITE_NOTADB") and not self._is_named_so():
                raise RecordsError(
                    f"{self.path} is no file of records ({error}), and is left as it is: name one "
                    "that ends in .sqlite"
                ) from None
            if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
                raise RecordsError(self._set_aside(error)) from None
            if name.startswith(_NO_ROOM) or self._is_full():
                raise RecordsError(
                    f"the disk is full, or a quota reached: {self.path} could not take another "
                    f"record ({error}). What was recorded before is safe; free some space and go "
                    "on with --resume"
                ) from None
            raise RecordsError(
                f"{self.path}: {error}. Is the folder there and writable, and the file not "
                "locked by a process that hangs?"
            ) from None
        except OSError as error:
            why = disk_full(error) or str(error)
            raise RecordsError(
                f"{self.path} cannot be opened: {why}. Set TILEWRIGHT_CACHE to a folder of your own"
            ) from None

    def _is_full(self) -> bool:
        """Whether the disk has no room for another page or two and the files beside."""
        try:
            return self.path is not None and shutil.disk_usage(self.path.parent).free < 1 << 14
        except OSError:
            return False

    def _is_named_so(self) -> bool:
        """Whether a file is a database by its name, and so damaged where it is none."""
        return self.path is not None and self.path.suffix in (".sqlite", ".db")

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
        rows = [to_row(inp, result, device) for inp, result in found]
        marks = ", ".join("?" * len(COLUMNS.split(",")))
        with self._guarded():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                before = self._db.total_changes
                self._db.executemany(
                    f"INSERT OR IGNORE INTO measurements ({COLUMNS}) VALUES ({marks})", rows
                )
                self._db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # a full disk rolls back by itself
                    self._db.execute("ROLLBACK")
                raise
            return self._db.total_changes - before

    def merge(self, path: str | Path) -> tuple[int, int]:
        """Take in the records of another file, which is not written to: how many were new, of how
        many."""
        with tempfile.TemporaryDirectory(prefix="tilewright-records-") as folder:
            copy = Path(folder) / "records.sqlite"
            for suffix in ("", "-wal"):
                with contextlib.suppress(FileNotFoundError):
                    shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
            try:
                with Records(copy) as other:
                    found = other.find()
            except RecordsError as error:
                raise RecordsError(
                    f"{path} cannot be imported: {str(error).replace(str(copy), 'it')}"
                ) from None
        by_device: dict[Device, list[Any]] = {}
        for record in found:
            by_device.setdefault(record.device, []).append((record.input, record.result))
        return sum(self.add(pairs, device) for device, pairs in by_device.items()), len(found)

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
        keep : leave the ``keep`` fastest of each problem, target, device, driver and version.
        older_than : remove those older than this, in seconds.
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
        """Records, in the order of their measuring or fastest first.

        Those of problems that this version does not know are passed over.
        """
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
        text = f"SELECT id, {COLUMNS} FROM measurements"
        if where:
            text += " WHERE " + " AND ".join(where)
        text += " ORDER BY cost IS NULL, cost, id" if fastest_first else " ORDER BY id"
        if limit is not None:
            text, values = f"{text} LIMIT ?", [*values, limit]
        records, strange, why = [], 0, ""
        for row in self._rows(text, values):
            try:
                record = from_row(row)
            except TuningError as error:
                strange, why = strange + 1, why or str(error)
                continue
            if record is not None:
                records.append(record)
        if strange and self.path not in _warned:
            _warned.add(self.path)
            warnings.warn(
                f"{self.path} has {strange} rows that are no records, and are passed over ({why}). "
                "`tilewright records export` writes the others to a file, from which a new "
                "database can be made",
                UserWarning,
                stacklevel=2,
            )
        return records

    def _rows(self, text: str, values: list[Any]) -> list[tuple[Any, ...]]:
        with self._guarded():
            try:
                return self._db.execute(text, values).fetchall()
            except sqlite3.OperationalError as error:
                if "UTF-8" not in str(error):
                    raise
            # a text that is none makes its row strange, not all of them
            self._db.text_factory = lambda data: data.decode(errors="replace")
            return self._db.execute(text, values).fetchall()

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
        found = []
        for template, args, *words, measured, failed, best, last in self._rows(text, []):
            problem, target, device, driver, version = map(str, words)
            seconds = best if isinstance(best, float) else None
            about = Device(device, driver, version)
            name = problem_name(str(template), args)
            when = last if isinstance(last, (int, float)) else 0.0
            found.append(
                Summary(name, problem, target, about, measured, int(failed), seconds, when)
            )
        return found

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


def _make_parent(path: Path) -> None:
    """The folder of records: where it is the cache's, nobody else may write to it."""
    from tilewright.runtime.cache_folder import make_folder, named

    if path.parent == named():
        make_folder()
    path.parent.mkdir(parents=True, exist_ok=True)


def _where(wanted: dict[str, str | None]) -> tuple[list[str], list[Any]]:
    given = {name: value for name, value in wanted.items() if value is not None}
    return [f"{name} = ?" for name in given], list(given.values())
