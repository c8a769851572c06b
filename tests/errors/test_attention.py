"""What is no attention."""

from __future__ import annotations

import pytest

from tilewright.topi import Attention, ProblemError

Q, K = (2, 3, 5, 8), (2, 3, 7, 8)


def refused(text, *shapes, **values):
    with pytest.raises(ProblemError, match=text):
        Attention.of_shapes(*shapes, **values)


def test_a_tensor_is_missing():
    refused("3 tensors and a mask at most, not 2", Q, K)


def test_a_tensor_is_too_many_where_one_has_all():
    refused("1 tensors and a mask at most, not 3", Q, K, K, layout="BS3HD")


def test_tensors_have_other_dimensions():
    refused("BHSD have 4 dimensions", Q[1:], K[1:], K[1:])


def test_one_tensor_is_of_two_parts():
    refused("are 3 of .*, not 2", (1, 5, 2, 3, 8), layout="BS3HD")


def test_keys_are_of_another_depth_than_queries():
    refused("do not fit", Q, (2, 3, 7, 9), (2, 3, 7, 9))


def test_there_are_more_values_than_keys():
    refused("do not fit", Q, K, (2, 3, 8, 8))


def test_heads_are_not_shared_evenly():
    refused("3 heads of queries do not share 2", Q, (2, 2, 7, 8), (2, 2, 7, 8))


def test_one_tensor_has_shared_heads():
    with pytest.raises(ProblemError, match="of one tensor are of one shape"):
        Attention(heads=4, kv_heads=2, rows=5, keys=5, depth=8, layout="BS3HD")


def test_a_mask_is_of_other_rows():
    refused("is not broadcast to", Q, K, K, (6, 7))


def test_a_mask_has_too_many_dimensions():
    refused("is not broadcast to", Q, K, K, (1, 1, 1, 5, 7))


def test_a_mask_is_of_integers():
    refused("type of the mask", Q, K, K, (5, 7), mask_dtype="int32")


def test_the_scale_is_a_word():
    refused("scale is a number", Q, K, K, scale="small")


def test_the_layout_is_another():
    with pytest.raises(ProblemError, match="unknown layout 'SBHD'"):
        Attention(rows=5, keys=5, depth=8, layout="SBHD")


def test_it_has_an_epilogue():
    with pytest.raises(ProblemError, match="attention has no epilogue"):
        Attention(rows=5, keys=5, depth=8, epilogue=("relu",))


def test_it_has_no_keys():
    with pytest.raises(ProblemError, match="keys is at least 1"):
        Attention(rows=5, keys=0, depth=8)
