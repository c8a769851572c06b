"""Strides with gaps have the remainder that was asked for, and waste as little as they can."""

import itertools

import pytest

from tilewright.ir.ops import const
from tilewright.lower.build.storage_align import aligned_strides


@pytest.mark.parametrize(("factor", "offset"), [(32, 1), (4, 0), (8, 4), (1, 0), (16, 15)])
def test_the_stride_is_the_least_with_that_remainder(factor: int, offset: int) -> None:
    for shape in itertools.product((1, 3, 32), (1, 5, 30), (1, 4)):
        for axis in range(3):
            extents = tuple(map(const, shape))
            strides = [int(s) for s in aligned_strides(extents, {axis: (factor, offset)})]
            assert strides[axis] % factor == offset
            below = strides[axis + 1] * shape[axis + 1] if axis < 2 else 1
            assert below <= strides[axis] < below + factor
            for dim in range(2):
                if dim != axis:
                    assert strides[dim] == strides[dim + 1] * shape[dim + 1]


def test_several_dimensions_at_once() -> None:
    shape = (const(2), const(3), const(5))
    assert [int(s) for s in aligned_strides(shape, {0: (8, 1), 1: (4, 0)})] == [25, 8, 1]
