"""A candidate that crashes, hangs or is wrong costs that candidate alone."""

import time

import pytest
from tests.support import tuned

from tilewright.tune.local import LocalBuilder, LocalRunner, measure_option
from tilewright.tune.measure import MeasureErrorNo as Error
from tilewright.tune.measure import MeasureInput
from tilewright.tune.task import create

OPTION = measure_option(
    LocalBuilder(timeout=4, n_parallel=2), LocalRunner(timeout=2, number=1, repeat=3)
)


def measured(task, indices, option=OPTION):
    """Results in the order of ``indices``."""
    measurer = option.open(task)
    try:
        inputs = [MeasureInput(task, task.config_space.get(i)) for i in indices]
        found = dict(measurer.measure(inputs))
        return [found[k] for k in range(len(inputs))], measurer.device
    finally:
        measurer.close()


def test_each_fate_has_its_reason_and_the_others_are_measured():
    task = create("tests/fated", (64,), "llvm")
    begin = time.monotonic()
    results, device = measured(task, [*range(len(tuned.FATES)), 0])
    fates = dict(zip([*tuned.FATES, "after"], results))
    assert {name: r.error_no for name, r in fates.items()} == {
        "right": Error.NO_ERROR,
        "refused": Error.INSTANTIATION_ERROR,
        "crash_build": Error.COMPILE_DEVICE,
        "hang_build": Error.BUILD_TIMEOUT,
        "wrong": Error.WRONG_ANSWER,
        "unwritten": Error.WRONG_ANSWER,
        "crash": Error.RUNTIME_DEVICE,
        "hang": Error.RUN_TIMEOUT,
        "after": Error.NO_ERROR,
    }
    assert len(fates["right"].costs) == 3
    assert 0 < fates["right"].cost < 1e-3
    assert "split by 0" in fates["refused"].reason
    assert "SIGSEGV" in fates["crash_build"].reason
    assert "relative error" in fates["wrong"].reason
    assert "1 elements are NaN" in fates["unwritten"].reason
    assert "SIGABRT" in fates["crash"].reason
    assert "2 s" in fates["hang"].reason
    assert device.name
    assert device.driver.startswith("LLVM")
    assert time.monotonic() - begin < 60


@pytest.mark.parametrize("target", ["llvm", "sim"])
def test_without_a_reference_the_declaration_is_one(target):
    if target == "llvm":
        task = create("tests/scaled", (32,), target)
        results, _ = measured(task, [0, 5, len(task.config_space) - 1])
    else:
        from tilewright.tune.article_003 import NAME

        task = create(NAME, (1, 2, 4, 8, 3), target)
        results, _ = measured(task, [0, 7])
    assert [r.reason for r in results] == [""] * len(results)
    assert all(len(r.extra["features"]) > 30 for r in results)
