"""The short launch of PyTorch's calls passes on what a launch needs, and leaves the rest to the
long one. The driver is a stand-in: no GPU is needed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.support.cuda_stand_in import Driver, StandIn
from tests.support.gpu_programs import PROGRAMS

pytest.importorskip("cuda.bindings.driver")

from tilewright.runtime import cuda_call, cuda_driver, cuda_launch, cuda_quick

STREAM, WORKSPACE = 4321, 0x7000_0000


@pytest.fixture
def stand_in(monkeypatch):
    made, driver = StandIn(), Driver()
    for module in (cuda_driver, cuda_launch):
        monkeypatch.setattr(module, "load_driver", lambda: driver)
    monkeypatch.setattr(cuda_call, "_driver_function", lambda: made.address)
    monkeypatch.setattr(cuda_quick, "device_count", lambda: 2)
    workspace = SimpleNamespace(data_ptr=lambda: WORKSPACE)
    monkeypatch.setattr(cuda_quick, "allocator", lambda *_: lambda: workspace)
    return made


class FastLaunch:
    """A short launch on device 0 of two; the calls that it left to the long one."""

    def __init__(self, name, scalars=(), alignment=16):
        program = PROGRAMS[name]()
        symbols = [f.name for f in program.module.funcs]
        place = cuda_driver.Device(0, "stand-in", 90, 0, 77, 77)
        self.loaded = cuda_launch.Loaded(
            program.module, place, b"", symbols, [0] * len(symbols), alignment=alignment
        )
        self.current, self.left = 0, []
        bits = SimpleNamespace(
            _cuda_getCurrentRawStream=lambda ordinal: STREAM + ordinal,
            _cuda_getDevice=lambda: self.current,
        )
        torch = SimpleNamespace(_C=bits, uint8=None, device=lambda *_: None)
        self.launch = self.loaded.quick(scalars, torch, self.left.append)


def test_addresses_and_extents_are_passed_on_on_the_current_stream(stand_in):
    quick = FastLaunch("symbolic_batch", (5,))
    quick.launch((0x9000_0100, 0x9000_0200))
    ((how, _, function, values),) = stand_in.notes
    assert (int.from_bytes(how[32:40], "little"), function) == (STREAM, 100)
    assert values == [0x9000_0100, 0x9000_0200, 5]
    assert quick.left == []


def test_a_workspace_is_memory_of_pytorchs(stand_in):
    stand_in.counts = [2, 3]
    quick = FastLaunch("two_kernels")
    quick.launch((0x9000_0100, 0x9000_0200))
    assert [function for *_, function, _ in stand_in.notes] == [100, 101]
    first, second = (set(values) for *_, values in stand_in.notes)
    assert (first, second) == ({0x9000_0100, WORKSPACE}, {0x9000_0100, 0x9000_0200, WORKSPACE})
    assert quick.left == []


@pytest.mark.parametrize("name", ["symbolic_batch", "two_kernels"])
def test_what_it_cannot_do_is_left_to_the_long_way(name, stand_in):
    stand_in.counts = [2]
    quick = FastLaunch(name, (5,) if name == "symbolic_batch" else ())
    quick.launch((0x9000_0100, 0x9000_0208))  # not aligned
    quick.current = 1
    quick.launch((0x9000_0100, 0x9000_0210))  # on a device that is not current
    assert stand_in.notes == []
    quick.current, stand_in.answers = 0, [201]  # without a context
    quick.launch((0x9000_0100, 0x9000_0220))
    assert quick.left == [
        (0x9000_0100, 0x9000_0208),
        (0x9000_0100, 0x9000_0210),
        (0x9000_0100, 0x9000_0220),
    ]


def test_the_long_way_says_which_kernel_the_driver_refused(stand_in):
    stand_in.counts, stand_in.answers = [2, 3], [0, 719]
    quick = FastLaunch("two_kernels")
    torch = SimpleNamespace(
        uint8=None, empty=lambda *_, **__: SimpleNamespace(data_ptr=lambda: WORKSPACE)
    )
    name = quick.loaded._module.funcs[1].name
    with pytest.raises(Exception, match=f"launching {name}, grid .*LAUNCH_FAILED"):
        quick.loaded.launch((0x9000_0100, 0x9000_0200), (), STREAM, torch)


def joined():
    """Doubling 5 rows of 40, and what that made, over the sums of its rows; with one launch."""
    first, second = FastLaunch("symbolic_batch", (5,)), FastLaunch("two_kernels")
    bits = SimpleNamespace(_cuda_getCurrentRawStream=lambda k: STREAM + k, _cuda_getDevice=int)

    def empty(*_, **__):
        return SimpleNamespace(data_ptr=lambda: 0x9000_5000)

    torch = SimpleNamespace(_C=bits, uint8=None, device=lambda *_: None, empty=empty)
    takes = [(0, 2), (2, 1)]  # the third lies between them
    launch = cuda_quick.join([first.launch, second.launch], takes, 2, torch, [100])
    return launch, first, second


def test_launches_that_follow_each_other_are_one(stand_in):
    stand_in.counts = [3, 2, 3]
    launch, first, second = joined()
    launch((0x9000_0100, 0x9000_0200))
    double, sums, divide = (values for *_, values in stand_in.notes)
    between, space = WORKSPACE, WORKSPACE + 512
    assert double == [0x9000_0100, between, 5]
    assert (sums, divide) == ([between, space], [between, space, 0x9000_0200])
    assert first.left == second.left == []


def test_what_they_cannot_do_at_once_is_left_to_each(stand_in):
    launch, first, second = joined()
    launch((0x9000_0100, 0x9000_0208))  # not aligned
    assert [len(values) for *_, values in stand_in.notes] == [3]  # the first can
    assert stand_in.notes[0][3] == [0x9000_0100, 0x9000_5000, 5]
    assert (first.left, second.left) == ([], [(0x9000_5000, 0x9000_0208)])


def test_only_short_launches_on_one_device_are_joined(stand_in):
    _, first, second = joined()
    assert cuda_quick.join([first.launch, print], [(0,), (0,)], 1, None) is None
    part = cuda_quick.part_of(second.launch)
    vars(second.launch)["part"] = replace(part, ordinal=1)
    assert cuda_quick.join([first.launch, second.launch], [(0, 1), (0, 1)], 2, None) is None
