"""Misuses of ``tilewright demo``: one line that says what to write, and exit status 1."""

import sys

import pytest

from tilewright.cli.main import main


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--layers", "resnet"], "--layers resnet: not a network (MobileNetV2, ConvNeXt-T"),
        (["--layers", "8x8x8"], "not a shape like 144x56x56k3s2"),
        (["--layers", "8x8x8k4"], "the filter's is odd"),
        (["--layers", "0x8x8k3"], "sizes are positive"),
        (["--layers", ""], "--layers : not a network"),
        (["--threads", "0"], "--threads 0: at least 1"),
        (["--target", "abacus"], "unknown target 'abacus'"),
    ],
)
def test_an_argument_that_means_nothing(args, message, capsys):
    assert main(["demo", *args]) == 1
    error = capsys.readouterr().err
    assert error.startswith("tilewright: ")
    assert message in error
    assert "Traceback" not in error


def test_opencl_without_its_library(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    from tilewright.runtime import opencl_device

    for cached in (opencl_device.load_opencl, opencl_device.devices, opencl_device.device):
        cached.cache_clear()
    assert main(["demo", "--target", "opencl"]) == 1
    assert "pyopencl" in capsys.readouterr().err
