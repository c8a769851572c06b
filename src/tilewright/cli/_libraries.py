"""The libraries that Tilewright uses: which are here, and how to install the others."""

from __future__ import annotations

import importlib
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata


@dataclass(frozen=True)
class Library:
    """A library as it is on this machine.

    Attributes
    ----------
    name : of its distribution.
    purpose : what Tilewright does with it.
    required : whether Tilewright does nothing without it.
    version : "" where it is missing or broken.
    problem : "" where it works.
    words : what to give :func:`pip_install` for it.
    """

    name: str
    purpose: str
    required: bool
    version: str
    problem: str
    words: tuple[str, ...]


def _loads(module: str) -> Callable[[], str]:
    def probe() -> str:
        importlib.import_module(module)
        return ""

    return probe


def _nvrtc() -> str:
    from cuda.bindings import nvrtc

    error, major, minor = nvrtc.nvrtcVersion()
    return "" if int(error) == 0 and major else f"nvrtcVersion gives {error}, {major}.{minor}"


def _cuda_headers() -> str:
    from cuda.pathfinder import find_nvidia_header_directory

    return "" if find_nvidia_header_directory("cudart") else "cuda_fp16.h is not found"


def _unprobed() -> str:
    """For what takes seconds to import and is no part of Tilewright."""
    return ""


_LIBRARIES: list[tuple[str, str, bool, Callable[[], str]]] = [
    ("numpy", "arrays, and target sim", True, _loads("numpy")),
    ("llvmlite", "target llvm", True, _loads("llvmlite.binding")),
    ("islpy", "proofs", True, _loads("islpy")),
    ("rich", "tables and progress", True, _loads("rich")),
    ("nvidia-cuda-nvrtc", "target cuda: compiling", False, _nvrtc),
    ("nvidia-cuda-runtime", "target cuda: headers", False, _cuda_headers),
    ("cuda-bindings", "target cuda: the driver", False, _loads("cuda.bindings.driver")),
    ("cuda-core", "target cuda: launching", False, _loads("cuda.core")),
    ("nvidia-cuda-nvdisasm", "target cuda: SASS", False, _unprobed),
    ("nvidia-cuda-cuobjdump", "target cuda: resources", False, _unprobed),
    ("pyopencl", "target opencl", False, _loads("pyopencl")),
    ("onnx", "models from ONNX files", False, _loads("onnx")),
    ("xgboost-cpu", "tuning: its model", False, _unprobed),
    ("torch", "to compare with", False, _unprobed),
    ("onnxruntime", "to compare with", False, _unprobed),
]


def libraries() -> list[Library]:
    """Every library, in the order in which they matter."""
    return [_look(*row) for row in _LIBRARIES]


def _look(name: str, purpose: str, required: bool, probe: Callable[[], str]) -> Library:
    words: tuple[str, ...] = (requirement(name),)
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Library(name, purpose, required, "", "not installed", words)
    try:
        problem = probe()
    except Exception as error:  # a broken library may raise anything, and this is where to say so
        problem = f"{type(error).__name__}: {error}".partition("\n")[0]
    if problem:
        words = ("--force-reinstall", *words)
    return Library(name, purpose, required, version, problem, words)


def requirement(name: str) -> str:
    """``"nvidia-cuda-nvrtc==13.0.*"``: what Tilewright's metadata asks of a library.

    The bare name for one that it does not ask for, or where Tilewright runs uninstalled.
    """
    try:
        lines = metadata.requires("tilewright") or []
    except metadata.PackageNotFoundError:
        lines = []
    for line in lines:
        text = line.partition(";")[0].replace(" ", "")
        found = re.match(r"[A-Za-z0-9._-]+", text)
        if found and found[0].lower() == name:
            return text
    return name


def pip_install(*words: str) -> str:
    """A command line for the Python that runs."""
    return shlex.join([sys.executable, "-m", "pip", "install", *words])
