"""ONNX's own cases of single operators give the results that they come with."""

from __future__ import annotations

import pytest
from tests.support import onnx_nodes

pytestmark = pytest.mark.needs_onnx


@pytest.mark.parametrize("name", onnx_nodes.passing())
def test_the_case_passes(name):
    case = onnx_nodes.cases().get(name)
    if case is None:
        pytest.skip("this version of onnx has no such case")
    onnx_nodes.check(case)
