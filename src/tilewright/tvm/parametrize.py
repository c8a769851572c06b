"""``tvm.testing``'s helpers for tests of pytest, and the plugin that carries them out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from tilewright.runtime import Device
from tilewright.tvm.machines import device, device_enabled, enabled, enabled_targets

#: What a test may require, under TVM's names, and the target that stands for it.
REQUIREMENTS = {
    "llvm": "llvm", "opencl": "opencl", "gpu": "cuda", "cuda": "cuda", "tensorcore": "cuda",
    "vulkan": "", "rocm": "", "metal": "", "hexagon": "", "cudagraph": "cuda", "package": "",
    "cudnn": "", "cublas": "", "nvptx": "", "arm_fp16": "", "aarch64_sve": "", "aarch64_sme": "",
    "openclml": "", "multi_gpu": "",
}  # fmt: skip


class Requirement:
    """A decorator that skips tests where this machine has no such device."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, *given: Any, **_: Any) -> Any:
        import pytest

        mark = pytest.mark.skipif(not self.run_time_check(), reason=f"needs {self.kind}")
        return mark(given[0]) if given and callable(given[0]) else mark

    def run_time_check(self) -> bool:
        """Whether the device is there."""
        return bool(REQUIREMENTS[self.kind] and device_enabled(REQUIREMENTS[self.kind]))


def get_dtype_range(dtype: str) -> tuple[float, float]:
    """The least and the largest value of a type."""
    limits: Any = np.iinfo(dtype) if np.dtype(dtype).kind in "iu" else np.finfo(dtype)
    return limits.min, limits.max


def run_tests() -> None:
    """Run the tests of the file that calls it."""
    import pytest

    raise SystemExit(pytest.main([sys._getframe(1).f_globals["__file__"]]))


def parameter(*values: Any, ids: Any = None, by_dict: Any = None) -> Any:
    """A fixture that takes each of ``values`` in turn, as ``tvm.testing.parameter``."""
    import pytest

    if by_dict is not None:
        ids, values = list(by_dict), tuple(by_dict.values())

    @pytest.fixture(params=values, ids=ids)
    def fixture(*_: Any, request: Any) -> Any:
        return request.param

    return fixture


@dataclass(frozen=True, eq=False)
class _Column:
    """What a fixture of :func:`parameters` takes its values from."""

    rows: tuple[Any, ...]
    values: tuple[Any, ...]
    ids: Any


_columns: WeakKeyDictionary[Callable[..., Any], _Column] = WeakKeyDictionary()


def parameters(*rows: Any, ids: Any = None) -> Any:
    """One fixture a column; a test that takes several of them takes the rows in turn.

    Needs :func:`pytest_generate_tests`: ``pytest_plugins = ["tilewright.tvm.testing.plugin"]``.
    """
    import pytest

    def column(values: tuple[Any, ...]) -> Any:
        def value(*_: Any, request: Any) -> Any:
            return request.param

        _columns[value] = _Column(rows, values, ids)
        return pytest.fixture(value)

    return tuple(map(column, zip(*rows, strict=True)))


def fixture(*given: Any, **_: Any) -> Any:
    """``pytest.fixture``."""
    import pytest

    return pytest.fixture(*given) if given else pytest.fixture


def parametrize_targets(*targets: Any) -> Any:
    """A decorator that gives a test the argument ``target``, of those that run here: of all that do
    where none is named. ``dev`` is its device."""
    import pytest

    if len(targets) == 1 and callable(targets[0]):
        return parametrize_targets()(targets[0])
    return pytest.mark.parametrize("target", _running(targets))


def exclude_targets(*kinds: str) -> Any:
    """A decorator that leaves targets of these kinds out."""

    def decorate(test: Any) -> Any:
        test.excluded_targets = kinds
        return test

    return decorate


def known_failing_targets(*kinds: str) -> Any:
    """A decorator of TVM's that says nothing of the targets here."""
    return lambda test: test


def _running(targets: Any = ()) -> list[Any]:
    if not targets:
        return [t for t, _ in enabled_targets()]
    kinds = ("llvm", "c", "cuda", "opencl")
    return [t for t in targets if str(t).split()[0] in kinds and enabled(str(t))]


def pytest_generate_tests(metafunc: Any) -> None:
    """Give a test the rows of :func:`parameters`, and the targets that run where it names none."""
    groups: dict[int, list[tuple[str, _Column]]] = {}
    for name, found in metafunc.definition._fixtureinfo.name2fixturedefs.items():
        column = _columns.get(getattr(found[-1].func, "__func__", found[-1].func))
        if column is not None:
            groups.setdefault(id(column.rows), []).append((name, column))
    for columns in groups.values():
        names = [name for name, _ in columns]
        values = list(zip(*(column.values for _, column in columns), strict=True))
        metafunc.parametrize(names, values, indirect=True, ids=columns[0][1].ids)
    marks = metafunc.definition.iter_markers("parametrize")
    given = {name.strip() for mark in marks for name in _names(mark.args[0])}
    if "target" in metafunc.fixturenames and "target" not in given:
        left_out = getattr(metafunc.function, "excluded_targets", ())
        kept = [t for t in _running() if str(t).split()[0] not in left_out]
        metafunc.parametrize("target", kept)


def _names(given: Any) -> list[str]:
    return given.split(",") if isinstance(given, str) else list(given)


def device_fixture() -> Any:
    """The fixture ``dev`` of ``tvm.testing.plugin``: the device of the target of a test."""
    import pytest

    @pytest.fixture
    def dev(target: Any) -> Device:
        return device(str(target))

    return dev


def check_numerical_grads(
    function: Callable[..., Any],
    input_values: Any,
    grad_values: Any,
    function_value: Any = None,
    delta: float = 1e-3,
    atol: float = 1e-2,
    rtol: float = 0.1,
) -> None:
    """Compare gradients of a function's sum with differences of its values.

    ``input_values`` are arrays that ``function`` takes one after the other, or by name, and
    ``grad_values`` the gradients with respect to them. Raises :class:`AssertionError` where the
    error of one exceeds ``atol * sqrt(n) + rtol`` times its norm, of ``n`` elements.
    """
    named = isinstance(input_values, dict)
    inputs = dict(input_values) if named else dict(enumerate(input_values))
    grads = dict(grad_values) if named else dict(enumerate(grad_values))

    def total(changed: dict[Any, Any]) -> float:
        found = function(**changed) if named else function(*changed.values())
        return float(np.sum(found))

    for name in grads:
        whole = np.asarray(inputs[name])
        expected = np.zeros(whole.shape)
        for place in np.ndindex(whole.shape):
            ends = []
            for step in (delta, -delta):
                moved = whole.copy()
                moved[place] += step
                ends.append(total({**inputs, name: moved}))
            expected[place] = (ends[0] - ends[1]) / (2 * delta)
        error = float(np.linalg.norm(np.asarray(grads[name]) - expected))
        allowed = atol * np.sqrt(whole.size) + rtol * float(np.linalg.norm(expected))
        if not error <= allowed:
            raise AssertionError(
                f"the gradient of {name!r} is {error:.3g} from the differences, more than "
                f"{allowed:.3g}"
            )
