"""Streaming stores compute what ordinary ones do, wherever arrays begin, and are used where a
result exceeds the caches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.depthwise import TOLERANCE, run

import tilewright
from tilewright import te
from tilewright.ir.stmt import For, ForKind
from tilewright.ir.visit import walk
from tilewright.runtime import caches
from tilewright.schedule import Schedule
from tilewright.select import choose
from tilewright.target import Target
from tilewright.topi import Conv
from tilewright.topi.declare import declare
from tilewright.topi.templates import TEMPLATES

TARGETS = ["llvm", "llvm -threads=1", "llvm -threads=3", "llvm -arch=baseline"]


def doubled(rows: Any, columns: int, stream: bool = True, parallel: bool = True) -> Any:
    """``B = 2 A`` in vectors of 16, then ``C = B + 1``, of which the stage B is streamed."""
    a = te.placeholder((rows, columns), name="A")
    b = te.compute((rows, columns), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((rows, columns), lambda i, j: b[i, columns - 1 - j] + 1.0, name="C")
    s = te.create_schedule([b.op, c.op])
    i, j = b.op.axis
    if parallel:
        s[b].parallel(i)
    s[b].pragma(i, "stream_stores", stream)
    s[b].vectorize(s[b].split(j, factor=16)[1])
    s[c].parallel(c.op.axis[0])
    return s, [a, b, c]


def from_byte(start: int, shape: tuple[int, ...]) -> np.ndarray:
    """An array of NaN that begins ``start`` bytes behind a multiple of 64."""
    nbytes = 4 * int(np.prod(shape))
    memory = np.empty(nbytes + 128, np.uint8)
    first = -memory.ctypes.data % 64 + start
    found = memory[first : first + nbytes].view(np.float32).reshape(shape)
    found[...] = np.nan
    return found


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("target", TARGETS)
def test_results_may_begin_anywhere_and_be_read_at_once(target: str, parallel: bool) -> None:
    """Rows of 64, whose vectors are aligned where the array is; of 40 and 37, where not all are."""
    for columns in (64, 40, 37):
        kernel = tilewright.build(*doubled(19, columns, parallel=parallel), target)
        values = np.random.default_rng(0).standard_normal((19, columns), np.float32)
        for start in (0, 4, 16, 32, 60):
            b, c = from_byte(start, values.shape), from_byte(0, values.shape)
            kernel(values, b, c)
            np.testing.assert_array_equal(b, values * 2)
            np.testing.assert_array_equal(c, values[:, ::-1] * 2 + 1)


def test_extents_that_come_with_the_call() -> None:
    n = te.var("n")
    kernel = tilewright.build(*doubled(n, 64), "llvm")
    for rows in (1, 7):
        values = np.random.default_rng(0).standard_normal((rows, 64), np.float32)
        b, c = from_byte(0, values.shape), from_byte(0, values.shape)
        kernel(values, b, c)
        np.testing.assert_array_equal(b, values * 2)
        np.testing.assert_array_equal(c, values[:, ::-1] * 2 + 1)


def on_gpu(stream: bool) -> tuple[Schedule, list[Any]]:
    a = te.placeholder((64, 64), name="A")
    b = te.compute((64, 64), lambda i, j: a[i, j] * 2.0, name="B")
    s = te.create_schedule(b.op)
    i, j = b.op.axis
    s[b].bind(i, te.thread_axis("blockIdx.x"))
    serial, thread = s[b].split(j, factor=32)
    s[b].bind(thread, te.thread_axis("threadIdx.x"))
    s[b].pragma(serial, "stream_stores", stream)
    return s, [a, b]


@pytest.mark.parametrize("target", ["cuda -arch=sm_80", "opencl"])
def test_gpus_leave_the_hint_out(target: str) -> None:
    from tilewright.codegen import cuda, opencl

    write = cuda.generate if target.startswith("cuda") else opencl.generate
    one, other = (write(tilewright.lower(*on_gpu(s), target)).text for s in (True, False))
    assert one == other


def test_the_simulator_leaves_the_hint_out() -> None:
    values, found = np.ones((64, 64), np.float32), np.empty((64, 64), np.float32)
    tilewright.build(*on_gpu(True), "sim")(values, found)
    np.testing.assert_array_equal(found, values * 2)


PROBLEMS = [
    Conv.parse("2x32x9x13", "32x1x3x3", padding=1, layout="NHWC"),
    Conv.parse("2x20x9x13", "20x1x5x3", padding=(2, 1, 2, 1), layout="NHWC"),
    Conv.parse("1x32x9x13", "32x1x3x3", padding=1, stride=2, layout="NHWC").replace(pass_="dgrad"),
    Conv.parse("2x3x9x32", "3x1x3x3", padding=1),
]


@pytest.mark.parametrize("p", PROBLEMS, ids=str)
def test_every_template_that_streams_computes_a_convolution(p: Conv) -> None:
    target = Target.parse("llvm")
    found = [t for t in TEMPLATES.values() if t.fits(p, target) and "stream" in _fields(t)]
    assert found
    for template in found:
        config = template.parse({**vars(template.candidates(p, target)[0]), "stream": 1})
        kernel = tilewright.build(*template.scheduled(p, config), target)
        assert run(p, kernel) < TOLERANCE[p.dtype]


def _fields(template: Any) -> tuple[str, ...]:
    return tuple(template.config.__dataclass_fields__)


class TestTheChoice:
    """By the size of the last-level cache, here given in bytes."""

    p = Conv.parse("1x256x16x16", "256x1x3x3", padding=1, layout="NHWC")
    nbytes = 4 * 256 * 16 * 16

    def streams(self, p: Conv, held: int, monkeypatch: Any, target: str = "llvm") -> set[int]:
        """Whether the first guesses of the templates stream."""
        monkeypatch.setattr(caches, "last_level", lambda threads: held)
        machine = Target.parse(target)
        fit = [t for t in TEMPLATES.values() if t.fits(p, machine) and "stream" in _fields(t)]
        return {t.candidates(p, machine)[0].stream for t in fit}

    @pytest.fixture(autouse=True)
    def vectors_of_a_line(self, monkeypatch: Any) -> None:
        monkeypatch.setattr("tilewright.topi.cpu.candidates.lanes", lambda p, target: 16)

    def test_only_a_result_that_the_cache_cannot_hold_is_streamed(self, monkeypatch: Any) -> None:
        assert self.streams(self.p, self.nbytes, monkeypatch) == {0}
        assert self.streams(self.p, self.nbytes - 1, monkeypatch) == {1}

    @pytest.mark.parametrize("pass_", ["forward", "dgrad"])
    @pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
    def test_so_it_is_for_shapes_that_nobody_tuned(
        self, layout: str, pass_: str, monkeypatch: Any
    ) -> None:
        p = self.p.replace(layout=layout, pass_=pass_)
        for held, streams in ((self.nbytes, 0), (self.nbytes - 1, 1)):
            monkeypatch.setattr(caches, "last_level", lambda threads, held=held: held)
            assert choose(p, "llvm", policy="heuristic").config.stream == streams

    def test_what_is_read_does_not_count(self, monkeypatch: Any) -> None:
        small = self.p.replace(stride=(2, 2))
        assert self.streams(small, self.nbytes // 2, monkeypatch) == {0}

    def test_rows_that_are_no_whole_lines_are_not_streamed(self, monkeypatch: Any) -> None:
        assert self.streams(self.p.replace(channels=250), 1, monkeypatch) == {0}

    def test_16_bit_results_whose_vectors_are_half_lines_are_not(self, monkeypatch: Any) -> None:
        assert self.streams(self.p.replace(dtype="float16"), 1, monkeypatch) == {0}

    def test_measuring_tries_the_first_guess_both_ways(self, monkeypatch: Any) -> None:
        monkeypatch.setattr(caches, "last_level", lambda threads: 1)
        first, second, *_ = TEMPLATES["cpu.blocks"].candidates(self.p, Target.parse("llvm"))
        assert (first.stream, second.stream) == (1, 0)
        assert vars(first) | {"stream": 0} == vars(second)


def test_the_last_level_cache_is_what_the_system_says(tmp_path: Path) -> None:
    def say(cpu: int, index: int, level: int, kind: str, size: str, shared: str) -> None:
        place = tmp_path / f"cpu{cpu}" / "cache" / f"index{index}"
        place.mkdir(parents=True)
        parts = {"level": str(level), "type": kind, "size": size, "shared_cpu_list": shared}
        for name, text in parts.items():
            (place / name).write_text(text + "\n")

    assert caches.last_level(1, tmp_path) == 32 << 20  # nothing is said
    caches.last_level.cache_clear()
    for cpu in range(4):
        say(cpu, 0, 1, "Data", "48K", str(cpu))
        say(cpu, 2, 2, "Unified", "512K", str(cpu))
        say(cpu, 3, 3, "Unified", "16384K", "0-1" if cpu < 2 else "2-3")
    assert [caches.last_level(n, tmp_path) for n in (1, 2, 4)] == [16 << 20, 32 << 20, 32 << 20]
    assert caches.second_level(tmp_path) == 512 << 10
    caches.last_level.cache_clear()


def test_templates_mark_the_loop_over_tasks() -> None:
    template = TEMPLATES["cpu.blocks"]
    config = template.parse({**vars(template.config()), "stream": 1})
    found = declare(PROBLEMS[0])
    (func,) = tilewright.lower(template.schedule(found, config), found.args).funcs
    (task,) = [s for s in walk(func.body) if isinstance(s, For) and dict(s.annotations)]
    assert task.kind is ForKind.PARALLEL
    assert dict(task.annotations) == {"stream_stores": True}
