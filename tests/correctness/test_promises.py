"""What the structure promises: declarations without tiles, sketches that are small and general, and
operators' names in their places."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from tilewright.topi.declare import FORMS
from tilewright.topi.problem import OPERATORS
from tilewright.topi.templates import TEMPLATES

SOURCE = Path(__file__).parents[2] / "src" / "tilewright"
SKETCHES = [t for t in TEMPLATES.values() if ".topi.sketches." in t.schedule.__module__]
SKETCHED = [
    *(SOURCE / "topi" / "sketches").glob("*.py"),
    *(SOURCE / "topi" / "pieces").glob("*.py"),
]
#: Modules above the operators that still speak of one: the models of the depthwise templates, and
#: what is made for its tables. The lists may only become shorter.
NAMED: dict[str, set[str]] = {
    "select": {
        "cost.py", "features.py", "large_filter_model.py", "product_features.py", "products.py",
        "ranking.py",
    },
    "tune": {"article_003.py", "template.py"},
    "report": {"crossover.py", "overview.py", "results.py"},
    "cli": {
        "_demo/layers.py", "_demo/space.py", "_measure/onnx.py", "_measure/peers.py",
        "_problems.py",
    },
}  # fmt: skip


#: What the language cannot say yet has a declaration with parameters among the pieces: decision
#: 0015. Attention, and two products as one, are filled up to whole tiles, in stages that others
#: read too.
RESISTING = {"cpu.attention", "gpu.attention", "gpu.attention_groups", "gpu.mlp"}


def test_a_declaration_takes_no_tile():
    found = [sketch for sketch in SKETCHES if sketch.declares is not None]
    assert {sketch.name for sketch in found} <= RESISTING
    assert all(".topi.pieces." in sketch.declares.__module__ for sketch in found)
    for form in FORMS.values():
        assert list(inspect.signature(form).parameters) == ["p", "batch"]
    for operator in OPERATORS.values():
        assert list(inspect.signature(operator.declare).parameters) == ["self", "given"]


def test_a_depthwise_convolution_has_ten_sketches_on_a_gpu():
    found = [t for t in TEMPLATES.values() if t.gpu and "depthwise_conv2d" in t.operators]
    found = [t for t in found if t.kinds != ("opencl", "sim")]
    assert len({t.schedule for t in found if t.declares is None}) <= 10
    assert [t.name for t in found if t.declares is not None] == ["gpu.plane_products"]


def test_sketches_are_functions_of_a_declaration_and_a_tiling():
    for sketch in SKETCHES:
        _, tiling, _ = get_type_hints(sketch.schedule).values()
        assert sketch.config in (get_args(tiling) or (tiling,))


def test_a_sketch_may_be_loaded_before_the_list_of_templates():
    """Tiles are counted by modules that this list loads, and import sketches."""
    assert "import " not in (SOURCE / "topi" / "sketches" / "__init__.py").read_text("utf-8")


@pytest.mark.parametrize("path", SKETCHED, ids=lambda p: p.stem)
def test_sketches_are_small_and_name_no_operator(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    code = re.sub(r'"""(?s:.*?)"""|#.*', "", text)
    assert "topi.operators" not in code
    for name in OPERATORS:
        assert f'"{name}"' not in code


@pytest.mark.parametrize("package", NAMED)
def test_packages_above_speak_of_no_operator(package):
    named = re.compile(r"depthwise_conv|operators\.(conv|gemm)\b|\bConv\b|\bGemm\b")
    found = set()
    for path in (SOURCE / package).rglob("*.py"):
        code = re.sub(r'"""(?s:.*?)"""|#.*', "", path.read_text(encoding="utf-8"))
        if named.search(code):
            found.add(str(path.relative_to(SOURCE / package)))
    assert found <= NAMED[package]
