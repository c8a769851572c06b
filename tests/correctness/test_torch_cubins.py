"""Kernels that tilewright.torch builds for GPUs, looked at without one."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_torch, pytest.mark.needs_nvrtc]

from tilewright.ir.errors import TargetError  # noqa: E402
from tilewright.target import Target  # noqa: E402
from tilewright.topi.operators.conv import Conv  # noqa: E402
from tilewright.torch import kernels  # noqa: E402

TARGET = Target.parse("cuda -arch=sm_90a")


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    monkeypatch.setattr(kernels, "_state", kernels._State())


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("pass_", ["forward", "dgrad", "wgrad"])
def test_a_kernel_for_all_batches_counts_in_32_bits_as_one_for_a_batch_does(pass_, layout):
    problem = Conv(  # no small launch, whose threads take as many registers as there are
        batch=64, channels=512, height=28, width=28, kernel_h=3, kernel_w=3, padding=1,
        dtype="float16", layout=layout, pass_=pass_,
    )  # fmt: skip
    own, every = (kernels._build(problem, TARGET, symbolic)[0] for symbolic in (False, True))
    assert not re.search("(?<!unsigned )long long", every.source)  # mbarriers are unsigned
    for name, of_own in own.resources.items():
        of_all = every.resources[name]
        assert of_all.spills <= 1.1 * of_own.spills
        assert of_all.registers <= of_own.registers + 16


def test_batches_and_images_do_not_make_a_kernel_each(monkeypatch):
    built = []
    monkeypatch.setattr(
        kernels, "_build", lambda p, target, symbolic, *_: built.append((p, symbolic)) or _nothing()
    )
    for image in range(20, 20 + 2 * kernels.IMAGE_SIZES):
        for batch in range(1, 20):
            problem = Conv(
                batch=batch, channels=64, height=image, width=image, kernel_h=3, kernel_w=3
            )
            found = kernels.find(problem, TARGET)
            few = image < 20 + kernels.IMAGE_SIZES
            assert (found.launch is not None) == few, found.reason
    assert len(built) == kernels.OWN_SHAPES + kernels.IMAGE_SIZES
    assert sum(not symbolic for _, symbolic in built) == kernels.OWN_SHAPES


def test_a_batch_that_32_bits_do_not_count_has_a_kernel_of_its_own(monkeypatch):
    built = []
    monkeypatch.setattr(
        kernels, "_build", lambda p, target, symbolic, *_: built.append(symbolic) or _nothing()
    )
    monkeypatch.setattr(kernels, "OWN_SHAPES", 0)
    small = Conv(batch=4, channels=64, height=56, width=56, kernel_h=3, kernel_w=3)
    most = small.most_batch
    assert most * 64 * 56 * 56 < 2**31 <= (most + 1) * 64 * 56 * 56
    for batch in (4, most, most + 1):
        kernels.find(small.replace(batch=batch), TARGET)
    assert built == [True, False]


def test_what_cannot_be_built_is_tried_once(monkeypatch):
    tried = []

    def fail(problem, target, symbolic, *_):
        tried.append(problem.batch)
        raise TargetError("too large")

    monkeypatch.setattr(kernels, "_build", fail)
    problem = Conv(batch=1, channels=64, height=9, width=9, kernel_h=3, kernel_w=3)
    for batch in range(1, 9):
        found = kernels.find(problem.replace(batch=batch), TARGET)
        assert found.launch is None
        assert found.reason == "too large"
    assert tried == [1]


class _nothing:
    """In the place of a kernel and of its choice."""

    program = property(lambda self: self)
    launch_raw = None
    signature = SimpleNamespace(params=())

    def __iter__(self):
        return iter((self, None))
