"""What every test may ask for: capabilities, golden files, kernels for every call from PyTorch,
and how long hypothesis looks."""

from __future__ import annotations

import functools
import gc
import importlib.util
import os
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.support.plain_code import use_plain_code
from tests.support.pocl import name_processor

# HYPOTHESIS_PROFILE=long for a night's search. A test of the whole compiler, where one example is
# cheap to draw and much is to be found, multiplies: @settings(max_examples=5 *
# settings().max_examples).
_COMMON = {
    "deadline": None,  # the first example of a kind compiles, the next ones find the cache
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
settings.register_profile("dev", max_examples=20, **_COMMON)
settings.register_profile("ci", max_examples=40, derandomize=True, print_blob=True, **_COMMON)
settings.register_profile("long", max_examples=5000, print_blob=True, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

# Threads of PyTorch's operators sleep where they wait for one another: workers of a run share few
# cores, which those that spin would take from those that compute.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Inductor compiles in the process: each of the others it would start imports all of PyTorch.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

# Tests start from an empty cache of kernels; the workers of one run share it.
_cache = None
if "TILEWRIGHT_CACHE" not in os.environ:
    _cache = tempfile.TemporaryDirectory(prefix="tilewright-tests-", ignore_cleanup_errors=True)
    os.environ["TILEWRIGHT_CACHE"] = _cache.name


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a parent package
        return False


def _no_cuda() -> str:
    if not _importable("cuda.bindings"):
        return "cuda-bindings is not installed"
    from cuda.bindings import driver

    try:
        if int(driver.cuInit(0)[0]) == 0 and driver.cuDeviceGetCount()[1] > 0:
            return ""
    except RuntimeError:
        return "no CUDA driver on this machine"
    return "no CUDA device on this machine"


def _no_opencl() -> str:
    if not _importable("pyopencl"):
        return "pyopencl is not installed"
    import pyopencl

    try:
        found = [d for platform in pyopencl.get_platforms() for d in platform.get_devices()]
    except pyopencl.Error as error:
        return f"OpenCL: {error}"
    for device in found:
        name_processor(device)
    return "" if found else "no OpenCL device on this machine"


def _no_nvrtc() -> str:
    if not _importable("cuda.bindings"):
        return "cuda-bindings is not installed"
    from cuda.bindings import nvrtc

    try:
        nvrtc.nvrtcVersion()
    except RuntimeError:
        return "nvidia-cuda-nvrtc is not installed"
    return ""


#: By marker: why a test that carries it cannot run here; "" when it can.
_LACKS: dict[str, Callable[[], str]] = {
    "needs_cuda": _no_cuda,
    "needs_opencl": _no_opencl,
    "needs_nvrtc": _no_nvrtc,
    "needs_torch": lambda: "" if _importable("torch") else "torch is not installed",
    "needs_onnx": lambda: "" if _importable("onnx") else "onnx is not installed",
    "needs_onnxruntime": lambda: (
        "" if _importable("onnxruntime") else "onnxruntime is not installed"
    ),
}


@functools.cache
def _why_not(marker: str) -> str:
    return _LACKS[marker]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In continuous integration, on two cores and without a GPU, of the cases of a test that is
    marked ``spread`` every second one runs, of those that can; elsewhere all do."""
    if not os.environ.get("CI") or os.environ.get("HYPOTHESIS_PROFILE") == "long":
        return
    seen: Counter[str] = Counter()
    left: list[pytest.Item] = []
    for item in items:
        test = item.nodeid.partition("[")[0]
        marks = {mark.name for mark in item.iter_markers()}
        if "spread" in marks and not any(_why_not(name) for name in marks & _LACKS.keys()):
            seen[test] += 1
            if seen[test] % 2 == 0:
                left.append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        gone = set(left)
        items[:] = [item for item in items if item not in gone]


def pytest_collection_finish() -> None:
    """What is there now stays: the collector of garbage need not look at it after each test."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 10)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers():
        if mark.name in _LACKS and (reason := _why_not(mark.name)):
            pytest.skip(reason)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the golden files again instead of checking",
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """``golden(text, ".cu")`` compares with ``golden/TEST_FILE/TEST_NAME.cu`` beside the test.

    ``pytest --update-golden`` writes the files.
    """
    file = Path(request.node.path)
    folder = file.parent / "golden" / file.stem.removeprefix("test_")
    name = request.node.name.removeprefix("test_").translate(str.maketrans("[", "-", "]"))

    def check(text: str, suffix: str = ".txt") -> None:
        path = folder / f"{name}{suffix}"
        text = text.rstrip("\n") + "\n"
        if request.config.getoption("--update-golden"):
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif not path.exists():
            pytest.fail(f"{path} does not exist: run pytest --update-golden and read it")
        else:
            assert text == path.read_text(), f"differs from {path} (pytest --update-golden)"

    return check


@pytest.fixture
def plain_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels for CPUs are translated without being optimised, which is most of compiling them."""
    use_plain_code(monkeypatch)


@pytest.fixture
def only_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever ``tilewright.torch`` would leave to PyTorch is an error."""
    from tilewright.torch import kernels

    kernels.set_policy("heuristic")
    monkeypatch.setattr(kernels, "IMAGE_SIZES", 10**6)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "tilewright leaves")
        yield
