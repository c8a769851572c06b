"""Maps of tensors are made once for an address, and live as long as a call that uses them."""

from __future__ import annotations

import ctypes
import gc
from types import SimpleNamespace

import pytest
from tests.support.cuda_stand_in import Driver, StandIn
from tests.support.gpu_programs import PROGRAMS

from tilewright.codegen.arguments import variables
from tilewright.target.boxes import Box, TensorMap

pytest.importorskip("cuda.bindings.driver")

from tilewright.runtime import cuda_call, cuda_driver, cuda_launch, cuda_maps, cuda_quick

#: Boxes of the first parameter of ``symbolic_batch``, n rows of 40 numbers.
ROWS = TensorMap(0, Box((0, 1), (4, 8)))
STREAM = 4321


@pytest.fixture
def encoded(monkeypatch):
    """Addresses of tensors that the driver had to describe; it takes multiples of 16."""
    told = []

    def encode(storage, kind, rank, address, *rest):
        assert storage % 128 == 0
        if address % 16:
            return 1
        told.append(address)
        ctypes.memmove(storage, address.to_bytes(8, "little") * 16, 128)
        return 0

    monkeypatch.setattr(cuda_maps, "_driver_function", lambda _: encode)
    monkeypatch.setattr(cuda_maps, "load_driver", Driver)
    monkeypatch.setattr(cuda_quick, "lowest_address", lambda: 1)  # addresses here are small
    return told


def maps():
    program = PROGRAMS["symbolic_batch"]()
    n = variables(program.module)
    return cuda_maps.TensorMaps(program.module, [[ROWS]], program.params, n)


def described(storage):
    """The address of the tensor that the map in it is of."""
    return int.from_bytes(ctypes.string_at(storage.addresses[0], 8), "little")


def test_a_map_is_made_once_for_an_address_and_extents(encoded):
    made = maps()
    first = made.storage((0x100, 0x200), (5,))
    assert described(first) == 0x100
    assert made.storage((0x100, 0x900), (5,)) is first  # of the other array there is none
    assert described(made.storage((0x300, 0x200), (5,))) == 0x300
    assert made.storage((0x100, 0x200), (6,)) is not first
    assert made.storage((0x100, 0x200), (5,)) is first
    assert encoded == [0x100, 0x300, 0x100]


def test_storage_that_is_held_is_not_written_to_when_it_is_forgotten(encoded, monkeypatch):
    monkeypatch.setattr(cuda_maps, "_KEPT", 2)
    made = maps()
    held = made.storage((0x100, 0), (5,))
    for k in range(2, 40):
        made.storage((0x100 * k, 0), (5,))
    gc.collect()
    assert described(held) == 0x100
    assert len(made._storages) <= 2


@pytest.fixture
def quick(encoded, monkeypatch):
    """A short launch with a map, and the launches that it made and left to the long one."""
    stand_in, driver = StandIn(), Driver()
    stand_in.counts = [4] * 9
    for storage in (cuda_driver, cuda_launch, cuda_maps):
        monkeypatch.setattr(storage, "load_driver", lambda: driver)
    monkeypatch.setattr(cuda_call, "_driver_function", lambda: stand_in.address)
    monkeypatch.setattr(cuda_quick, "device_count", lambda: 1)
    monkeypatch.setattr(cuda_quick, "allocator", lambda *_: None)
    module = PROGRAMS["symbolic_batch"]().module
    place = cuda_driver.Device(0, "stand-in", 90, 0, 77, 77)
    loaded = cuda_launch.Loaded(module, place, b"", ["k"], [0], maps=[[ROWS]], alignment=16)
    torch = SimpleNamespace(
        _C=SimpleNamespace(_cuda_getCurrentRawStream=lambda _: STREAM, _cuda_getDevice=int),
        uint8=None, device=lambda *_: None,
    )  # fmt: skip
    left = []
    return loaded, loaded.quick((5,), torch, left.append), stand_in.notes, left


def test_a_launch_passes_the_map_of_its_tensor(quick, encoded):
    _, launch, notes, left = quick
    for address in (0x100, 0x300, 0x100):
        launch((address, 0x200))
    assert encoded == [0x100, 0x300]
    assert [values[0] for *_, values in notes] == [0x100, 0x300, 0x100]
    # The map itself stands where the fourth parameter points to.
    assert [values[3] for *_, values in notes] == [0x100, 0x300, 0x100]
    assert left == []


def test_what_has_no_map_is_left_to_the_long_way_which_says_why(quick):
    loaded, launch, notes, left = quick
    launch((0x108, 0x200))
    assert (notes, left) == ([], [(0x108, 0x200)])
    with pytest.raises(Exception, match="describing a tensor of extents"):
        loaded.launch((0x108, 0x200), (5,), STREAM, None)
