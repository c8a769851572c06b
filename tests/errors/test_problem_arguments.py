"""Misuses of the options that name problems, in ``tilewright bench`` and ``tilewright tune``."""

import re

import pytest

from tilewright.cli.main import main

ONE = ["depthwise_conv2d", "--input", "1x4x9x9", "--filter", "4x1x3x3"]


@pytest.mark.parametrize("command", ["bench", "tune"])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "which problem? Give --input 64x384x32x32 --filter 384x1x7x7, --set mobilenetv2"),
        (["depthwise_conv2d", "--input", "1x4x9x9"], "--input needs --filter"),
        (["depthwise_conv2d", "--filter", "4x1x3x3"], "--filter needs --input"),
        (ONE[1:], "which operator? Name it first: attention, depthwise_conv2d, depthwise_conv1d"),
        ([*ONE, "--input", "1x4x8x8", "--input", "1x4x7x7", "--filter", "4x1x3x3"],
         "3 times --input and 2 times --filter"),
        ([ONE[0], "--input", "1x4x9", "--filter", "4x1x3"],
         "--input 1x4x9 has 3 dimensions: it is one of depthwise_conv1d"),
        ([ONE[0], "--input", "1x4x9x9x9", "--filter", "4x1x3x3x3"],
         "--input 1x4x9x9x9 has 5 dimensions: it is one of conv3d"),
        (["conv3d", "--input", "1x4x9x9x9", "--filter", "4x4x3x3x3", "--layout", "NHWC"],
         "unknown layout 'NHWC': use NCDHW, NDHWC"),
        ([ONE[0], "--input", "1x4xninexnine", "--filter", "4x1x3x3"],
         "the shape of the input is written like 64x384x32x32"),
        ([ONE[0], "--input", "1x4x9x9", "--filter", "3x1x3x3"], "does not fit 4 channels"),
        ([*ONE, "--stride", "fast"], "stride is an integer, got 'fast'"),
        ([*ONE, "--padding", "1,2,3"], "padding is an integer, a pair, (top, left, bottom, right)"),
        ([*ONE, "--padding", "SOME"], "unknown padding 'SOME': use VALID, SAME"),
        ([*ONE, "--pass", "backward"], "unknown pass 'backward': use forward, dgrad, wgrad"),
        ([*ONE, "--dtype", "float16,int4"], "unknown dtype 'int4'"),
        ([*ONE, "--layout", "CHWN"], "unknown layout 'CHWN': use NCHW, NHWC"),
        ([*ONE, "--epilogue", "bias+tanh"], "no epilogue has a step 'tanh'"),
        ([*ONE, "--accumulate", "float16", "--dtype", "float16"], 'allow precision="half"'),
        ([*ONE, "--batch", "4"], "--batch is for --set"),
        (["--set", "resnet"], "--set resnet: there are mobilenetv2, convnext"),
        (["--set", "convnext", "--stride", "2"], "has strides of its own"),
        (["--problems", "no such file"], "--problems no such file cannot be read"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)  # fmt: skip
def test_a_problem_that_there_is_not_is_named_with_the_option(command, words, message, capsys):
    assert main([command, *words, "--target", "llvm"]) == 1
    text = capsys.readouterr().err
    assert re.fullmatch(r"tilewright: [^\n]*\n", text)
    assert message in text


def test_the_line_of_a_file_that_is_wrong_is_named(tmp_path, capsys):
    file = tmp_path / "layers.txt"
    for line, message in (
        ("--input 1x4x9x9 --filter 5x1x3x3", "does not fit"),
        ("--input 1x4x9x9 --filter 4x1x3x3 --fast", "unrecognized arguments: --fast"),
        ('{"batch": 1}', "a problem is incomplete"),
        ("--input '1x4", "No closing quotation"),
    ):
        file.write_text(f"# layers\n\n{line}\n")
        assert main(["bench", "depthwise_conv2d", "--problems", str(file)]) == 1
        text = capsys.readouterr().err
        assert text.startswith(f"tilewright: {file}:3: ")
        assert message in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--peers", "PyTorch,caffe"], "--peers caffe: there are PyTorch"),
        (["--rounds", "1"], "--rounds is at least 2"),
        (["--target", "sim"], "sim has no clock"),
        (["--target", "abacus"], "abacus"),
        (["--threads", "0"], "--threads 0: at least 1"),
    ],
)
def test_what_cannot_be_measured_is_said_before_anything_is(words, message, capsys):
    assert main(["bench", *ONE, "--target", "llvm", *words]) == 1
    assert message in capsys.readouterr().err


def test_figures_that_cannot_be_written_are_said_before_anything_is_measured(tmp_path, capsys):
    path = tmp_path / "absent" / "x.json"
    assert main(["bench", *ONE, "--target", "llvm", "--peers", "none", "--json", str(path)]) == 1
    captured = capsys.readouterr()
    assert "there is no folder" in captured.err
    assert captured.out == ""
