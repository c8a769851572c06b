"""Launches by address say what the driver's own structures say; no GPU is needed to compare."""

from __future__ import annotations

import ctypes

import pytest

driver = pytest.importorskip("cuda.bindings.driver")


def words(address: int, size: int) -> list[int]:
    return list((ctypes.c_uint32 * (size // 4)).from_address(address))


@pytest.mark.parametrize("overlaps", [False, True])
def test_a_configuration_is_laid_out_as_the_driver_reads_it(overlaps: bool) -> None:
    from tilewright.runtime.cuda_call import Configuration

    ours = Configuration((5, 4, 3, 32, 2, 1), 1024, 0x7F00_1234_5678, overlaps)
    theirs = driver.CUlaunchConfig()
    theirs.gridDimX, theirs.gridDimY, theirs.gridDimZ = 5, 4, 3
    theirs.blockDimX, theirs.blockDimY, theirs.blockDimZ = 32, 2, 1
    theirs.sharedMemBytes, theirs.hStream = 1024, driver.CUstream(0x7F00_1234_5678)
    attribute = driver.CUlaunchAttribute()
    names = driver.CUlaunchAttributeID
    attribute.id = names.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    theirs.attrs, theirs.numAttrs = [attribute], int(overlaps)
    # Grid, block and bytes; the stream; behind the address of the attributes, how many there are.
    mine, wanted = words(ours.address, 56), words(theirs.getPtr(), 56)
    assert mine[:7] == wanted[:7]
    assert mine[8:10] == wanted[8:10]
    assert mine[12] == wanted[12]
    at = ctypes.c_uint64.from_address(ours.address + 40).value
    found = words(at, 16)
    assert (found[0], found[2]) == (int(attribute.id), 1)
