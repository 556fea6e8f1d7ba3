# SPDX-License-Identifier: BSD-3-Clause
"""The computation of a sweep's points, one after the other, and the persistent table of their results."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from openneutron.device import files
from openneutron.device.timings import remark_on
from openneutron.errors import BudgetError, InvalidOptionError
from openneutron.features.report.table import range_text
from openneutron.features.sweep.grid import Point
from openneutron.options import CompileOptions, Progress, QuantizationOptions

STEP = "Sweeping"


class Program(Protocol):
    """A compiled model that can be compiled again with other options of the compiler."""

    def can_recompile(self, options: CompileOptions) -> bool: ...

    def recompile(self, **changes: Any) -> Any: ...


Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Compiling:
    """The functions that compute a point of a sweep.

    ``check`` raises InvalidOptionError for options with which no model can be compiled. ``compile`` quantizes and
    compiles the model. ``figures`` returns the figures of a program; its second argument has the quantization options
    that the point varies. ``quantization`` has the quantization options that hold for all points; those of a point
    replace them.
    """

    compile: Callable[[CompileOptions, QuantizationOptions], Program]
    figures: Callable[[Any, Mapping[str, Any]], Figures]
    quantization: QuantizationOptions
    check: Callable[[CompileOptions], None] = lambda _options: None


def run(points: Sequence[Point], table: Table, work: Compiling, progress: Progress) -> dict[str, Row]:
    """Compute the points that the table does not have. Return the rows of all points by their keys.

    If the options of a point contradict each other, or its budget is too small or above the chip's memory, its row
    has the reason. Points that another process computes are skipped; their rows have the state ``running``. Raises
    what ``work`` raises for other reasons; points that are finished stay in the table.
    """
    program: Program | None = None
    quantization: Mapping[str, Any] | None = None
    done: list[Mapping[str, Any]] = []
    for place, point in enumerate(points):
        progress(STEP, place, len(points))
        remark_on(progress, STEP, _best(done))
        if not table.claim(point.key):
            continue
        try:
            if point.quantization != quantization:
                program, quantization = None, point.quantization
            row, made = _row(point, program, work)
        except BaseException:
            table.release(point.key)
            raise
        program = program or made
        table.finish(point.key, row)
        done += [row.result] if row.state == FINISHED else []
    progress(STEP, len(points), len(points))
    rows = table.rows()
    return {point.key: rows[point.key] for point in points}


def _best(done: Sequence[Mapping[str, Any]]) -> str:
    """Return the shortest latency and the least SRAM of the finished points in words; an empty string without any."""
    if not done:
        return ""
    fastest = min(done, key=lambda figures: figures["modelled_ms"])
    time = range_text(fastest["modelled_ms"], *fastest["expected_ms"])
    least = min(figures["sram_bytes"] for figures in done)
    return f"fastest {time}, least SRAM {-(-least // 1024)} KiB"


def _row(point: Point, program: Program | None, work: Compiling) -> tuple[Row, Program | None]:
    """Return the row of a point, and the program that was compiled for it; None in place of the program if the point
    has none. ``program`` is an earlier program with the same quantization, or None. If it can be compiled again with
    the point's options, that is done. Otherwise the model is quantized and compiled."""
    try:
        options = CompileOptions(**point.options)
        work.check(options)
        quantization = dataclasses.replace(work.quantization, **point.quantization)
    except InvalidOptionError as error:
        return Row(FAILED, {"error": str(error)}), None
    try:
        if program is not None and program.can_recompile(options):
            made = program.recompile(**options.to_dict())
        else:  # other operators may be in the programs, or other kernels on the CPU
            made = work.compile(options, quantization)
    except BudgetError as error:
        return Row(INFEASIBLE, {"least_sram_bytes": error.least_bytes, "error": str(error)}), None
    return Row(FINISHED, work.figures(made, point.quantization)), made


APPLICATION_ID = 0x4F4E5357
VERSION = 4
WAITING_SECONDS = 60
"""The time to wait for a file that another process has locked, in seconds. A process locks it for milliseconds."""

RUNNING, FINISHED, INFEASIBLE, FAILED = "running", "done", "infeasible", "failed"

SCHEMA = """
CREATE TABLE identity (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE points (point TEXT PRIMARY KEY, state TEXT NOT NULL, owner TEXT NOT NULL, result TEXT NOT NULL);
CREATE TABLE evaluations (name TEXT PRIMARY KEY, result TEXT NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table, for one point: its state, and its figures or the reason why it has none."""

    state: str
    result: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Table:
    """An open table of a sweep's results, in a SQLite file. Several processes may use the file at once."""

    path: Path
    connection: sqlite3.Connection

    def rows(self) -> dict[str, Row]:
        """Return the rows by the keys of their points."""
        found = self.connection.execute("SELECT point, state, result FROM points").fetchall()
        return {point: Row(state, json.loads(result)) for point, state, result in found}

    def claim(self, point: str) -> bool:
        """Reserve a point for this process. Return whether it is reserved. Return False if the table has the row of
        the point, with figures or with the reason why it has none, or if another process computes it."""
        with self._change():
            found = self.connection.execute("SELECT state, owner FROM points WHERE point = ?", (point,)).fetchone()
            if found is not None and (found[0] != RUNNING or is_running(found[1])):
                return False
            self.connection.execute("REPLACE INTO points VALUES (?, ?, ?, '{}')", (point, RUNNING, me()))
        return True

    def finish(self, point: str, row: Row) -> None:
        """Write the row of a point."""
        with self._change():
            values = (point, row.state, me(), json.dumps(row.result))
            self.connection.execute("REPLACE INTO points VALUES (?, ?, ?, ?)", values)

    def release(self, point: str) -> None:
        """Release a point that this process has reserved and not finished."""
        with self._change():
            self.connection.execute(
                "DELETE FROM points WHERE point = ? AND state = ? AND owner = ?", (point, RUNNING, me())
            )

    def evaluation(self, name: str) -> Any:
        """Return the evaluation that is stored under this name, or None."""
        found = self.connection.execute("SELECT result FROM evaluations WHERE name = ?", (name,)).fetchone()
        return None if found is None else json.loads(found[0])

    def keep_evaluation(self, name: str, result: Any) -> None:
        """Store an evaluation under a name."""
        with self._change():
            self.connection.execute("REPLACE INTO evaluations VALUES (?, ?)", (name, json.dumps(result)))

    @contextmanager
    def _change(self) -> Iterator[None]:
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")


@contextmanager
def opened(path: Path, identity: Mapping[str, str]) -> Iterator[Table]:
    """Open the table of results in a file, for use in a ``with`` statement. The file is created if it is absent.

    ``identity`` has the facts that all points of the table have in common. Raises InvalidOptionError where the file
    is no table, has another identity, or can't be written.
    """
    files.check(path)
    # SQLite has Unicode alone; a file's name may be no text.
    identity = {name: value.encode(errors="replace").decode() for name, value in identity.items()}
    try:
        with closing(sqlite3.connect(path, timeout=WAITING_SECONDS, isolation_level=None)) as connection:
            table = Table(path, connection)
            _prepare(table, identity)
            yield table
    except sqlite3.DatabaseError as error:
        raise InvalidOptionError(
            f"table: '{path}' can't be used: {error}. Choose another file with --table."
        ) from error


def _prepare(table: Table, identity: Mapping[str, str]) -> None:
    connection = table.connection
    with table._change():
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if not tables:
            for statement in filter(None, map(str.strip, SCHEMA.split(";"))):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.executemany("INSERT INTO identity VALUES (?, ?)", list(identity.items()))
            return
    if (application, version) != (APPLICATION_ID, VERSION):
        raise InvalidOptionError(
            f"table: '{table.path}' is a SQLite file, and no table of a sweep of this version. Choose another file with --table."
        )
    there = dict(connection.execute("SELECT name, value FROM identity").fetchall())
    for name, value in identity.items():
        if there.get(name) != value:
            raise InvalidOptionError(
                f"table: '{table.path}' is the table of another sweep: its {name} is {_short(there.get(name))}, here it is "
                f"{_short(value)}. Choose another file with --table."
            )


def _short(value: str | None) -> str:
    return "none" if not value else f"'{value}'"


def me() -> str:
    """Return the text by which this process owns points: the computer's name, the process id and the start time."""
    return f"{platform.node()} {os.getpid()} {_started(os.getpid())}"


def is_running(owner: str) -> bool:
    """Return whether the process of an owner still runs. Return True for an owner on another computer, since its state
    is unknown."""
    node, pid, started = owner.rsplit(" ", 2)
    return node != platform.node() or _started(int(pid)) == started


def _started(pid: int) -> str:
    """Return the start time of a process in clock ticks since the computer started (proc(5), field 22 of stat). Return
    ``gone`` if there is no such process, or if it has ended and is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "gone"
    return "gone" if fields[0] == "Z" else fields[19]
