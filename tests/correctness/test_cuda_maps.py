"""Maps of tensors are made once for an address, and live as long as a call that uses them."""

from __future__ import annotations

import ctypes
import gc
from types import SimpleNamespace

import pytest
from tests.support.cuda_stand_in import Driver, StandIn
from tests.support.gpu_programs import PROGRAMS

from tilewright.arith import Analyzer
from tilewright.codegen.arguments import variables
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Var
from tilewright.ir.ops import const
from tilewright.ir.stmt import Access
from tilewright.target.boxes import Box, TensorMap, box_of, limits, start_problem

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
    loaded = cuda_launch.Loaded(
        module, place, b"", ["k"], [0], maps=[[ROWS]], alignment=16, written=(1,)
    )
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


def test_what_has_nothing_to_write_needs_no_map(quick, encoded):
    loaded, _, notes, _ = quick
    loaded.launch((0, 0), (0,), STREAM, None)
    assert (notes, encoded) == ([], [])


def test_zeros_stand_in_for_what_is_empty(quick, monkeypatch):
    """They are read from memory that is held: what is freed soon holds something else."""
    written = []

    class Zeros:
        pointer = 0x700

        def __init__(self, nbytes, ordinal):
            self.nbytes = nbytes

        def write(self, source, nbytes):
            others = [ctypes.create_string_buffer(b"\1" * nbytes, nbytes) for _ in range(1000)]
            written.append(ctypes.string_at(source, nbytes))
            del others

    monkeypatch.setattr(cuda_launch, "Memory", Zeros)
    loaded, *_ = quick
    nbytes = loaded._maps.stand_ins((0,))[1]
    plan = SimpleNamespace(empty=((0,), nbytes))
    assert loaded._described((0, 0x200), plan) == (0x700, 0x200)
    assert loaded._described((0, 0x300), plan) == (0x700, 0x300)
    assert written == [bytes(160)]


def test_digits_of_an_index_are_dimensions_of_a_map():
    """What counts 16 i + 2 j + k along a dimension has a stride of its own along each."""
    analyzer = Analyzer()
    i, j, k, c, n = (Var.make(name) for name in "ijkcn")
    analyzer.bind(n, 0, 5)
    shape = (const(96), const(3), const(3), const(48))
    filter = Buffer("filter", shape, dtype("int8"), "global")
    access = Access(filter, (n * 64 + i * 16 + j * 2 + k, const(1), n % 3, c))
    box = box_of(access, (j, i, k, c), (8, 4, 2, 32), analyzer)
    assert not isinstance(box, str), box
    begin = [str(x) for x in box.begin(access, (j, i, k, c), analyzer)]
    assert begin == ["n % 3 + 3", "0", "n * 4", "0", "0"]
    made = TensorMap(0, box)
    assert TensorMap.of(made.row) == made
    found = cuda_maps.tiled(made, filter, {})
    assert (found.extents, found.box) == ((48, 2, 6, 8, 9), (32, 2, 4, 8, 1))
    assert found.strides == (432, 16 * 432, 2 * 432, 48)


@pytest.mark.parametrize(
    ("extent", "first", "steps"), [(100, 0, (16, 2, 1)), (96, 8, (16, 2, 1)), (96, 0, (12, 2, 1))]
)
def test_digits_are_whole(extent, first, steps):
    i, j, k, c = (Var.make(name) for name in "ijkc")
    filter = Buffer("filter", (const(extent), const(32)), dtype("int8"), "global")
    index = const(first) + i * steps[0] + j * steps[1] + k
    assert isinstance(box_of(Access(filter, (index, c)), (j, i, k, c), (8, 4, 2, 32)), str)


@pytest.mark.parametrize(("step", "right"), [(20, False), (24, True)])
def test_digits_are_multiples_of_16_bytes_apart(step: int, right: bool) -> None:
    i, j = (Var.make(name) for name in "ij")
    rows = Buffer("rows", (const(8 * step),), dtype("float16"), "global")
    box = box_of(Access(rows, (i * step + j,)), (i, j), (8, 16))
    assert isinstance(box, Box) if right else f"along i elements are {2 * step} bytes" in box


def test_a_row_goes_through_the_last_two_dimensions():
    """Of pixels of 32 channels four lie side by side, from any pixel on; of 12 bytes none do."""
    rows, lanes, x = (Var.make(name) for name in ("rows", "lanes", "x"))
    analyzer = Analyzer()
    analyzer.bind(x, 0, 20)

    def at(pixel, channels, width=24):
        shape = (const(4), const(width), const(channels))
        image = Buffer("image", shape, dtype("int8"), "global")
        return Access(image, (rows, pixel + lanes // channels, lanes % channels))

    access = at(x - 1, 32)
    box = box_of(access, (rows, lanes), (4, 128), analyzer)
    assert not isinstance(box, str), box
    assert [str(i) for i in box.begin(access, (rows, lanes), analyzer)] == ["0", "x * 32 - 32"]
    found = cuda_maps.tiled(TensorMap(0, box), access.buffer, {})
    assert (found.extents, found.strides, found.box) == ((768, 4), (768,), (128, 4))
    assert not start_problem(access, (rows, lanes), box, analyzer)
    # Of 3 bytes to a pixel no map has the stride, nor needs it.
    access = at(x * 16, 3, 32)
    box = box_of(access, (rows, lanes), (4, 48), analyzer)
    assert isinstance(box, Box)
    assert box.within == {1}
    assert not limits(access.buffer, box)
    assert "3 bytes apart" in limits(access.buffer)
    found = cuda_maps.tiled(TensorMap(0, box), access.buffer, {})
    assert (found.extents, found.strides) == ((96, 4), (96,))
    narrow = at(x, 12)
    box = box_of(narrow, (rows, lanes), (4, 48), analyzer)
    assert "multiple of 16" in start_problem(narrow, (rows, lanes), box, analyzer)
