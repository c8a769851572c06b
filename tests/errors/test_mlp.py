"""What are no two products as one."""

from __future__ import annotations

import pytest

from tilewright.topi import Mlp, ProblemError

A, B, C = (5, 3), (8, 3), (8, 4)


def refused(text, *shapes, **values):
    with pytest.raises(ProblemError, match=text):
        Mlp.of_shapes(*shapes, **values)


def test_a_matrix_is_missing():
    refused("two matrices, what .* reads, and another one", A, B)


def test_a_tensor_of_the_activation_is_missing():
    refused("two matrices, what .* reads, and another one", A, B, C, inner="bias")


def test_a_factor_is_a_batch_of_matrices():
    refused("two matrices", (2, *A), B, C)


def test_factors_do_not_fit():
    refused(r"products of \(5, 4\), \(8, 3\)", (5, 4), B, C)
    refused(r"products of .* and \(7, 4\)", A, B, (7, 4))


def test_the_activation_reads_a_tensor_of_the_shape_of_the_first_product():
    refused("compute the two products apart", A, B, (5, 8), C, inner="residual")


def test_the_activation_is_none():
    refused("no epilogue has a step 'swish'", A, B, C, inner="swish")


def test_it_has_no_gradients():
    refused("pass", A, B, C, pass_="dgrad")


@pytest.mark.parametrize("norm", ["-1", "nan", "x", "inf"])
def test_what_is_added_to_the_variance_is_no_small_number(norm):
    refused("norm is a small number", A, B, C, norm=norm)
