"""Templates whose configurations are right, wrong, slow, deadly."""

from __future__ import annotations

import os
import signal

from tilewright import te
from tilewright.schedule import Schedule
from tilewright.tune.dispatch import get_config
from tilewright.tune.measure import Device, MeasureErrorNo, MeasureInput, MeasureResult
from tilewright.tune.task import create
from tilewright.tune.template import template

DEVICE = Device("a device", "driver 1", "0.1")


@template("tests/scaled")
def scaled(n: int) -> tuple[Schedule, list[te.Tensor]]:
    """``B = 2 A`` with a split and a vector: every configuration is right."""
    cfg = get_config()
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2.0, name="B")
    s = te.create_schedule(B.op)
    cfg.define_split("i", s[B].op.axis[0], num_outputs=3)
    cfg.define_annotate("mark", ["ii"], "try_unroll_vec")
    _, _, ii = cfg["i"].apply(s, B, s[B].op.axis[0])
    cfg["mark"].apply(s, B, [ii])
    return s, [A, B]


FATES = ["right", "refused", "crash_build", "hang_build", "wrong", "unwritten", "crash", "hang"]


@template("tests/fated", reference=lambda a: a + 1)
def fated(n: int) -> tuple[Schedule, list[te.Tensor]]:
    """``B = A + 1``, or what the knob says."""
    cfg = get_config()
    cfg.define_knob("fate", FATES)
    fate = cfg["fate"].val
    A = te.placeholder((n,), name="A")
    if fate == "crash_build":
        os.kill(os.getpid(), signal.SIGSEGV)
    if fate == "hang_build":
        signal.pause()
    if fate in ("crash", "hang"):
        call = "abort" if fate == "crash" else "pause"
        B = te.extern((n,), [A], lambda i, o: te.call_extern("int32", call), name="B")
        return te.create_schedule(B.op), [A, B]
    added = 1.0 if fate != "wrong" else 1.5
    B = te.compute((n,), lambda i: A[i] + added, name="B")
    s = te.create_schedule(B.op)
    if fate == "refused":
        s[B].split(s[B].op.axis[0], factor=0)
    if fate == "unwritten":
        s[B].set_store_predicate(s[B].op.axis[0].var < n - 1)
    return s, [A, B]


def pairs(count: int, n: int = 64, start: int = 0) -> list[tuple[MeasureInput, MeasureResult]]:
    """Measurements of "tests/scaled", made up; every fourth failed. Timestamps count them."""
    task = create("tests/scaled", (n,), "llvm")
    found = []
    for k in range(start, start + count):
        config = task.config_space.get(k % len(task.config_space))
        result = MeasureResult((1e-6 * (k + 1), 2e-6 * (k + 1), 3e-6 * (k + 1)), timestamp=float(k))
        if k % 4 == 3:
            reason = "it hung"
            result = MeasureResult((), MeasureErrorNo.RUN_TIMEOUT, reason, 1.0, float(k))
        found.append((MeasureInput(task, config), result))
    return found


@template("tests/sleepy", reference=lambda a: a)
def sleepy(shortest: int) -> tuple[Schedule, list[te.Tensor]]:
    """``B = A`` for one element, in as many microseconds as the knobs say: the best is certain."""
    cfg = get_config()
    cfg.define_knob("some", [5, 1, 4, 0, 3, 2])
    cfg.define_knob("many", [2, 0, 1])
    micros = shortest * (1 + 4 * cfg["some"].val + 24 * cfg["many"].val)
    A = te.placeholder((1,), name="A")
    B = te.compute(
        (1,), lambda i: A[i] + te.call_extern("int32", "usleep", micros).astype("float32"), name="B"
    )
    return te.create_schedule(B.op), [A, B]
