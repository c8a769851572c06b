"""A launch tells the driver what its own structures would say; the driver here is a stand-in that
writes down what it receives, so no GPU is needed."""

from __future__ import annotations

import ctypes
import os
import threading

import pytest
from tests.support.cuda_stand_in import StandIn

driver = pytest.importorskip("cuda.bindings.driver")

from tilewright.ir.errors import TargetError  # noqa: E402
from tilewright.runtime import cuda_call  # noqa: E402
from tilewright.runtime.cuda_call import UNALIGNED, Kernel, failure, make_call  # noqa: E402

STREAM = 0x7F00_1234_5678
ADDRESSES = (0x7F00_0000_0040, 0x7FFF_FFFF_FFF0, 0x10)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn()
    monkeypatch.setattr(cuda_call, "_driver_function", lambda: made.address)
    return made


def kernel(**more: object) -> Kernel:
    return Kernel(**{  # type: ignore[arg-type]
        "function": 99, "sizes": (5, 4, 3, 32, 2, 1), "shared": 1024, "parameters": (0, 1, 2),
        **more,
    })  # fmt: skip


@pytest.mark.parametrize("overlaps", [False, True])
def test_a_configuration_is_laid_out_as_the_driver_reads_it(stand_in, overlaps):
    assert make_call([kernel(overlaps=overlaps)], 3, (), 16)(STREAM, ADDRESSES) == 0
    ((ours, attributes, function, values),) = stand_in.notes
    theirs = driver.CUlaunchConfig()
    theirs.gridDimX, theirs.gridDimY, theirs.gridDimZ = 5, 4, 3
    theirs.blockDimX, theirs.blockDimY, theirs.blockDimZ = 32, 2, 1
    theirs.sharedMemBytes, theirs.hStream = 1024, driver.CUstream(STREAM)
    attribute = driver.CUlaunchAttribute()
    names = driver.CUlaunchAttributeID
    attribute.id = names.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    theirs.attrs, theirs.numAttrs = [attribute], int(overlaps)
    wanted = ctypes.string_at(theirs.getPtr(), 56)
    # Grid, block, bytes and stream; behind the address of the attributes, how many there are.
    assert (ours[:28], ours[32:40], ours[48:52]) == (wanted[:28], wanted[32:40], wanted[48:52])
    words = ctypes.cast(attributes, ctypes.POINTER(ctypes.c_uint32))
    assert (words[0], words[2], any(attributes[12:])) == (int(attribute.id), 1, False)
    assert (function, tuple(values)) == (99, ADDRESSES)


def test_each_kernel_takes_its_own_of_the_addresses_and_scalars_in_order(stand_in):
    stand_in.counts = [2, 2, 2]
    scalars = (7, 2**64 - 1)
    kernels = [kernel(parameters=p) for p in ((2, 0), (3, 1), (1, 4))]
    assert make_call(kernels, 3, scalars, 16)(0, ADDRESSES) == 0
    assert [values for *_, values in stand_in.notes] == [
        [ADDRESSES[2], ADDRESSES[0]], [7, ADDRESSES[1]], [ADDRESSES[1], scalars[1]],
    ]  # fmt: skip


def test_a_structure_is_read_where_its_address_says(stand_in):
    stand_in.counts = [2]
    structure = (ctypes.c_uint64 * 16)(12345)
    call = make_call([kernel(parameters=(0,), structures=(1,))], 2, (), 8)
    assert call(0, (ADDRESSES[0], ctypes.addressof(structure))) == 0
    assert stand_in.notes[0][-1] == [ADDRESSES[0], 12345]


def test_nothing_is_launched_on_addresses_that_are_not_aligned(stand_in):
    assert make_call([kernel()], 3, (), 16)(0, (64, 64, 72)) == UNALIGNED
    assert stand_in.notes == []
    assert make_call([kernel()], 3, (), 8)(0, (64, 64, 72)) == 0
    assert make_call([], 3, (), 8)(0, (64, 64, 72)) == 0


def test_a_call_ends_where_the_driver_refuses_and_says_which_kernel_it_was(stand_in):
    stand_in.answers = [0, 719]
    answer = make_call([kernel()] * 3, 3, (), 16)(0, ADDRESSES)
    assert failure(answer) == (719, 1)
    assert len(stand_in.notes) == 2


@pytest.mark.parametrize(
    "arguments",
    [(), (0,), (0, ADDRESSES[:2]), (0, list(ADDRESSES)), ("0", ADDRESSES), (0, (64, 64, None)),
     (0, (64, 64, -64)), (0, ADDRESSES, 1)],
)  # fmt: skip
def test_other_arguments_are_errors(stand_in, arguments):
    with pytest.raises((TypeError, OverflowError)):
        make_call([kernel()], 3, (), 16)(*arguments)
    assert stand_in.notes == []


def test_more_arguments_than_can_be_passed_on_are_an_error(stand_in):
    with pytest.raises(TargetError, match="512 at most"):
        make_call([kernel(parameters=tuple(range(513)))], 513, (), 16)


@pytest.mark.skipif(os.name != "posix", reason="needs nanosleep")
def test_other_threads_run_while_the_driver_waits(monkeypatch):
    # The C library's nanosleep stands for a driver whose queue is full: it takes the seconds from
    # the first two words of the configuration, the nanoseconds from the next two.
    sleep = ctypes.cast(ctypes.CDLL(None).nanosleep, ctypes.c_void_p).value
    monkeypatch.setattr(cuda_call, "_driver_function", lambda: sleep)
    call = make_call([kernel(function=0, sizes=(0, 0, 200_000_000, 0, 0, 0))], 3, (), 16)
    done, ticks = threading.Event(), []

    def tick():
        while not done.wait(0.001):
            ticks.append(1)

    thread = threading.Thread(target=tick)
    thread.start()
    before = len(ticks)
    assert call(0, ADDRESSES) == 0
    during = len(ticks) - before
    done.set()
    thread.join()
    assert during > 5
