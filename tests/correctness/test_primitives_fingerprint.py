"""The fingerprint of a schedule: the same in every process, another for every other program."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tilewright import te
from tilewright.schedule.fingerprint import fingerprint
from tilewright.target.instructions import dot, gemm


def program(
    change: Callable[..., Any] | None = None,
    n: int = 24,
    dtype: str = "float32",
    scale: float = 2.0,
    where: bool = False,
    reducer: Any = te.sum,
    name: str = "C",
) -> str:
    """A scaled matrix product; ``change`` is what its schedule does."""
    a, b = te.placeholder((n, n), dtype, name="A"), te.placeholder((n, n), dtype, name="B")
    d = te.compute((n, n), lambda i, j: a[i, j] * scale, name="D")
    k = te.reduce_axis((0, n), "k")
    c = te.compute(
        (n, n),
        lambda i, j: reducer(d[i, k] * b[k, j], axis=k, where=k > 1 if where else None),
        name=name,
    )
    s = te.create_schedule(c.op)
    if change is not None:
        change(s, a, d, c)
    return fingerprint(s, [a, b, c])


def i(s: Any, c: Any) -> Any:
    return s[c].op.axis[0]


def thread(tag: str = "threadIdx.x", extent: int | None = None) -> Any:
    return te.thread_axis(None if extent is None else (0, extent), tag)


CHANGES: dict[str, Callable[..., Any]] = {
    "split 4": lambda s, a, d, c: s[c].split(i(s, c), 4),
    "split 8": lambda s, a, d, c: s[c].split(i(s, c), 8),
    "split nparts": lambda s, a, d, c: s[c].split(i(s, c), nparts=4),
    "split j": lambda s, a, d, c: s[c].split(c.op.axis[1], 4),
    "split k": lambda s, a, d, c: s[c].split(c.op.reduce_axis[0], 4),
    "split of D": lambda s, a, d, c: s[d].split(i(s, d), 4),
    "skew": lambda s, a, d, c: s[c].skew(c.op.reduce_axis[0], by=i(s, c)),
    "skew by j": lambda s, a, d, c: s[c].skew(c.op.reduce_axis[0], by=c.op.axis[1]),
    "skew scale": lambda s, a, d, c: s[c].skew(c.op.reduce_axis[0], by=i(s, c), scale=2),
    "skew step": lambda s, a, d, c: s[c].skew(c.op.reduce_axis[0], by=i(s, c), step=2),
    "skew offset": lambda s, a, d, c: s[c].skew(c.op.reduce_axis[0], by=i(s, c), offset=2),
    "pad_to 8": lambda s, a, d, c: s[c].pad_to(i(s, c), 8),
    "pad_to 16": lambda s, a, d, c: s[c].pad_to(i(s, c), 16),
    "reindex": lambda s, a, d, c: s.reindex(a, d, list(d.op.axis)),
    "fuse": lambda s, a, d, c: s[c].fuse(*c.op.axis),
    "fuse nothing": lambda s, a, d, c: s[c].fuse(),
    "reorder": lambda s, a, d, c: s[c].reorder(*reversed(c.op.axis)),
    "tile": lambda s, a, d, c: s[c].tile(*c.op.axis, 4, 4),
    "bind": lambda s, a, d, c: s[c].bind(i(s, c), thread()),
    "bind with extent": lambda s, a, d, c: s[c].bind(i(s, c), thread(extent=24)),
    "bind y": lambda s, a, d, c: s[c].bind(i(s, c), thread("threadIdx.y")),
    "bind block": lambda s, a, d, c: s[c].bind(i(s, c), thread("blockIdx.x")),
    "vthread": lambda s, a, d, c: s[c].bind(i(s, c), thread("vthread")),
    "env_threads": lambda s, a, d, c: s[c].env_threads([thread(extent=4)]),
    "env_threads 8": lambda s, a, d, c: s[c].env_threads([thread(extent=8)]),
    "parallel": lambda s, a, d, c: s[c].parallel(i(s, c)),
    "vectorize": lambda s, a, d, c: s[c].vectorize(i(s, c)),
    "unroll": lambda s, a, d, c: s[c].unroll(i(s, c)),
    "pragma": lambda s, a, d, c: s[c].pragma(i(s, c), "auto_unroll_max_step", 8),
    "pragma 16": lambda s, a, d, c: s[c].pragma(i(s, c), "auto_unroll_max_step", 16),
    "pragma trim": lambda s, a, d, c: s[c].pragma(i(s, c), "trim", False),
    "pragma stream": lambda s, a, d, c: s[c].pragma(i(s, c), "stream_stores", True),
    "compute_at": lambda s, a, d, c: s[d].compute_at(s[c], i(s, c)),
    "compute_at j": lambda s, a, d, c: s[d].compute_at(s[c], c.op.axis[1]),
    "compute_inline": lambda s, a, d, c: s[d].compute_inline(),
    "set_scope": lambda s, a, d, c: s[d].set_scope("shared"),
    "set_scope local": lambda s, a, d, c: s[d].set_scope("local"),
    "storage_align": lambda s, a, d, c: s[d].storage_align(i(s, d), 32, 1),
    "storage_align 8": lambda s, a, d, c: s[d].storage_align(i(s, d), 8, 1),
    "align_bounds": lambda s, a, d, c: s[d].align_bounds(i(s, d), 4),
    "double_buffer": lambda s, a, d, c: s[d].double_buffer(),
    "set_store_predicate": lambda s, a, d, c: s[c].set_store_predicate(i(s, c).var > 3),
    "prefetch": lambda s, a, d, c: s[d].prefetch(a, i(s, d), 1),
    "prefetch 2": lambda s, a, d, c: s[d].prefetch(a, i(s, d), 2),
    "tensorize": lambda s, a, d, c: s[c].tensorize(c.op.reduce_axis[0], dot(24)),
    "tensorize gemm": lambda s, a, d, c: s[c].tensorize(c.op.reduce_axis[0], gemm(2, 4, 2)),
    "cache_read": lambda s, a, d, c: s.cache_read(a, "shared", [d]),
    "cache_read local": lambda s, a, d, c: s.cache_read(a, "local", [d]),
    "cache_write": lambda s, a, d, c: s.cache_write(c, "local"),
    "rfactor": lambda s, a, d, c: s.rfactor(c, c.op.reduce_axis[0]),
    "rfactor place": lambda s, a, d, c: s.rfactor(c, c.op.reduce_axis[0], 2),
    "partition": lambda s, a, d, c: s.partition(d, i(s, d), [2]),
    "partition 3": lambda s, a, d, c: s.partition(d, i(s, d), [3]),
    "in_tf32": lambda s, a, d, c: s.in_tf32(c, 3),
    "in_tf32 rounded": lambda s, a, d, c: s.in_tf32(c, 1),
}

DECLARATIONS: dict[str, dict[str, Any]] = {
    "as it is": {}, "extent": {"n": 25}, "type": {"dtype": "float64"}, "constant": {"scale": 3.0},
    "sign of zero": {"scale": 0.0}, "other sign of zero": {"scale": -0.0},
    "condition": {"where": True}, "reducer": {"reducer": te.max}, "name": {"name": "E"},
}  # fmt: skip


def all_fingerprints() -> dict[str, str]:
    found = {name: program(**what) for name, what in DECLARATIONS.items()}
    found.update({name: program(change) for name, change in CHANGES.items()})
    return found


def test_the_same_program_written_again_has_the_same_fingerprint() -> None:
    assert all_fingerprints() == all_fingerprints()


def test_every_change_of_a_program_or_its_schedule_changes_it() -> None:
    found = all_fingerprints()
    same = [(a, b) for (a, x), (b, y) in itertools.combinations(found.items(), 2) if x == y]
    assert not same


@pytest.mark.parametrize("seed", ["0", "12345"])
def test_another_process_agrees(seed: str) -> None:
    """Whatever the order of its sets and the objects that it made before."""
    code = (
        "import sys; sys.path.insert(0, '.')\n"
        "from tests.correctness.test_primitives_fingerprint import all_fingerprints\n"
        "from tilewright import te\n"
        "kept = [te.var('n') for _ in range(100)]\n"
        "print(sorted(all_fingerprints().items()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONHASHSEED": seed},
    )  # fmt: skip
    assert done.stdout.strip() == str(sorted(all_fingerprints().items()))


class TestArguments:
    def test_their_order_and_number_are_part_of_it(self) -> None:
        n = te.var("n")
        a, b = (te.placeholder((8,), name=x) for x in "AB")
        c = te.compute((8,), lambda i: a[i] - b[i], name="C")
        s = te.create_schedule(c.op)
        found = {fingerprint(s, args) for args in ([a, b, c], [b, a, c], [n, a, b, c])}
        assert len(found) == 3

    def test_so_is_what_else_the_caller_names(self) -> None:
        a = te.placeholder((8,), name="A")
        c = te.compute((8,), lambda i: a[i] + 1.0, name="C")
        s = te.create_schedule(c.op)
        assert fingerprint(s, [a, c], "llvm") != fingerprint(s, [a, c], "cuda")

    def test_which_tensors_are_outputs_is_part_of_it(self) -> None:
        a = te.placeholder((8,), name="A")
        b = te.compute((8,), lambda i: a[i] + 1.0, name="B")
        c = te.compute((8,), lambda i: b[i] + 1.0, name="C")
        one, two = te.create_schedule(c.op), te.create_schedule([c.op, b.op])
        assert fingerprint(one, [a, b, c]) != fingerprint(two, [a, b, c])

    def test_two_variables_are_told_from_one(self) -> None:
        found = set()
        for same in (True, False):
            n = te.var("n")
            m = n if same else te.var("n")
            a, b = te.placeholder((n,), name="A"), te.placeholder((m,), name="B")
            c = te.compute((n,), lambda i, a=a, b=b: a[i] + b[i], name="C")
            found.add(fingerprint(te.create_schedule(c.op), [a, b, c]))
        assert len(found) == 2
