"""Which instructions store: ``vmovntps`` where a schedule asks for it and addresses allow it."""

from __future__ import annotations

import re
from typing import Any

from tests.support.cpu_code import SAPPHIRE_RAPIDS, machine_code, x86_only

from tilewright import te
from tilewright.codegen.llvm.module import generate
from tilewright.lower.pipeline import lower
from tilewright.topi import Conv
from tilewright.topi.declare import declare
from tilewright.topi.templates import TEMPLATES

pytestmark = x86_only
STREAM, FENCE = r"\bvmovnt(ps|dq|pd)\b", r"\bsfence\b"


def count(pattern: str, code: str) -> int:
    return len(re.findall(pattern, code))


def code(name: str, p: Conv, stream: int) -> str:
    template = TEMPLATES[name]
    config = template.parse({**vars(template.config()), "stream": stream})
    found = declare(p)
    return machine_code(template.schedule(found, config), found.args, SAPPHIRE_RAPIDS)


CHANNELS_LAST = Conv.parse("1x64x24x24", "64x1x3x3", padding=1, layout="NHWC")
CHANNELS_FIRST = Conv.parse("1x4x24x64", "4x1x3x3", padding=1)


def test_templates_stream_their_results_and_fence_them() -> None:
    layouts = {"cpu.blocks": CHANNELS_LAST, "cpu.channels": CHANNELS_LAST}
    for name, p in (layouts | {"cpu.lines": CHANNELS_FIRST}).items():
        streamed, plain = code(name, p, 1), code(name, p, 0)
        assert count(STREAM, streamed) > 0
        assert count(FENCE, streamed) > 0
        assert count(STREAM, plain) == count(FENCE, plain) == 0


def test_arrays_that_begin_elsewhere_have_the_ordinary_loop_beside_it() -> None:
    """Nothing else is known of an array, and a streaming store at another address is a fault."""
    ordinary = r"vmovups\s+%zmm\d+, -?\d*\(%r(?!sp)"
    streamed, plain = (code("cpu.channels", CHANNELS_LAST, stream) for stream in (1, 0))
    assert count(ordinary, streamed) >= count(ordinary, plain) > 0


def test_rows_whose_vectors_begin_between_lines_are_not_streamed() -> None:
    assert count(STREAM, code("cpu.channels", CHANNELS_LAST.replace(channels=37), 1)) == 0


def pragma(stage: Any, axis: Any) -> None:
    stage.pragma(axis, "stream_stores", True)


def sums(local: bool) -> str:
    """The LLVM IR of sums down the columns of a matrix, in the result itself or beside it."""
    a = te.placeholder((32, 64), name="A")
    k = te.reduce_axis((0, 32), "k")
    b = te.compute((64,), lambda j: te.sum(a[k, j], k), name="B")
    s = te.create_schedule(b.op)
    if local:
        held = s.cache_write(b, "local")
        j, lane = s[b].split(b.op.axis[0], factor=16)
        s[held].compute_at(s[b], j)
        pragma(s[b], j)
    else:
        j, lane = s[b].split(b.op.axis[0], factor=16)
        s[b].reorder(k, j, lane)
        pragma(s[b], k)
    s[b].vectorize(lane)
    return generate(lower(s, [a, b]), 1, frozenset(SAPPHIRE_RAPIDS), 512).text


def test_what_the_loop_reads_again_is_not_streamed() -> None:
    """LLVM's IR is read, since LLVM keeps sums of so few elements in registers."""
    assert "!nontemporal" in sums(local=True)
    assert "!nontemporal" not in sums(local=False)


def test_copies_that_a_task_makes_for_itself_are_not_streamed() -> None:
    """Their vectors would be aligned, those of the result, of 4,091 columns, are not."""
    a = te.placeholder((8, 4096), name="A")
    m = te.compute((8, 4096), lambda i, j: a[i, j] * 2.0, name="M")
    b = te.compute((8, 4091), lambda i, j: m[i, j] + m[i, 4095 - j], name="B")
    s = te.create_schedule(b.op)
    pragma(s[b], b.op.axis[0])
    s[m].compute_at(s[b], b.op.axis[0])
    s[m].vectorize(s[m].split(m.op.axis[1], factor=16)[1])
    assert count(STREAM, machine_code(s, [a, b], SAPPHIRE_RAPIDS)) == 0


def test_a_processor_without_them_has_none() -> None:
    a = te.placeholder((8, 64), name="A")
    b = te.compute((8, 64), lambda i, j: a[i, j] * 2.0, name="B")
    s = te.create_schedule(b.op)
    pragma(s[b], b.op.axis[0])
    s[b].vectorize(s[b].split(b.op.axis[1], factor=4)[1])
    assert count(r"movnt", machine_code(s, [a, b], ())) == 0
    assert count(STREAM, machine_code(s, [a, b], ("avx2",))) > 0
