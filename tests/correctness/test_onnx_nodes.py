"""ONNX's own cases of single operators give the results that they come with."""

from __future__ import annotations

import pytest
from tests.support import onnx_nodes

pytestmark = [pytest.mark.needs_onnx, pytest.mark.usefixtures("plain_code")]


def test_nearly_all_cases_of_the_list_are_those_of_onnx():
    """Whose next version may rename some, which are then skipped."""
    names = set(onnx_nodes.passing())
    assert len(names & set(onnx_nodes.cases())) > 0.95 * len(names)


@pytest.mark.spread
@pytest.mark.parametrize("name", onnx_nodes.passing())
def test_the_case_passes(name):
    case = onnx_nodes.cases().get(name)
    if case is None:
        pytest.skip("this version of onnx has no such case")
    onnx_nodes.check(case)


def test_functions_of_constants_are_folded_to_the_same():
    """A declaration on NumPy gives what its kernel gives; products are not folded."""
    folded = 0
    for name in onnx_nodes.passing()[::3]:
        case = onnx_nodes.cases().get(name)
        folded += case is not None and onnx_nodes.check_folding(case)
    assert folded > 150
