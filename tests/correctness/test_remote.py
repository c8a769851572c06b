"""Kernels run, are timed and tuned on another machine, here by a server of this process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import asdict

import numpy as np
import pytest

import tilewright
from tilewright import te
from tilewright.cli.main import main
from tilewright.ir.errors import ArgumentError
from tilewright.select import knn, options
from tilewright.target import Target
from tilewright.topi import Conv
from tilewright.topi.templates import candidates
from tilewright.tune import tuned
from tilewright.tune.remote import RemoteError, RemoteWorker
from tilewright.tune.serve import Server
from tilewright.tune.tuned import Ranked, Tuned
from tilewright.tune.wire import KEY, address_of


@pytest.fixture
def board(monkeypatch):
    """The address of a server, whose lines are in ``said``."""
    monkeypatch.setenv(KEY, "a key")
    server = Server("127.0.0.1", 0, b"a key")
    thread = threading.Thread(target=server.run, args=(lambda line: None,))
    thread.start()
    yield f"127.0.0.1:{server.port}"
    server.close()
    thread.join()


def shifted(name: str = "shifted") -> tilewright.Kernel:
    n, k = te.var("n"), te.var("k")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + te.cast("float32", k), name="B")
    return tilewright.build(te.create_schedule(b.op), [a, k, b], "llvm", name=name)


def test_a_kernel_is_called_and_timed_there(board, tmp_path):
    kernel, x = shifted(), np.arange(5, dtype="float32")
    y = np.zeros_like(x)
    with tilewright.connect(board) as there:
        assert there.device("llvm").endswith("threads")
        run = there.load(kernel)
        run(x, 3, y)
        np.testing.assert_array_equal(y, x + 3)
        timing = run.time(x, 4, y, repeat=2, number=3)
        assert (len(timing.times), timing.number) == (2, 3)
        np.testing.assert_array_equal(y, x + 4)
        with pytest.raises(ArgumentError, match=r"takes 3 arguments \(A, k, B\), got 1"):
            run(x)
        with pytest.raises(ArgumentError, match=r"0 \(A\): it is not dense, pass np.ascont"):
            run(np.arange(10, dtype="float32")[::2], 1, y)
        with pytest.raises(RemoteError, match="n is 5 by an earlier argument, but 4 by"):
            run(x, 1, y[:4])
        (tmp_path / "x.tw").write_bytes(b"no kernel")
        with pytest.raises(RemoteError, match="is not a saved kernel"):
            there.load(tmp_path / "x.tw")
        run(x, 1, y)  # it goes on
        np.testing.assert_array_equal(y, x + 1)


def test_a_call_after_one_that_broke_has_a_connection_of_its_own(board, monkeypatch):
    """What is given up, as by Ctrl-C, leaves no answer that the next call would take for its own;
    the kernel is sent again."""

    def given_up(self, wire, request, timeout):
        wire.send({"do": "call", "request": request, "timeout": timeout})
        raise KeyboardInterrupt

    x, y = np.arange(5, dtype="float32"), np.zeros(5, "float32")
    with tilewright.connect(board) as there:
        run = there.load(shifted())
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(RemoteWorker, "_ask", given_up)
            run(x, 1, y)
        run(x, 2, y)
        np.testing.assert_array_equal(y, x + 2)
        there._worker._wire.close()
        with pytest.raises(RemoteError, match=f"the connection to {board} broke"):
            run(x, 3, y)
        run(x, 4, y)
        np.testing.assert_array_equal(y, x + 4)
    with pytest.raises(RemoteError, match="is closed, connect again"):
        run(x, 5, y)


def test_who_has_no_key_is_refused(board, monkeypatch):
    with pytest.raises(RemoteError, match=f"does not take the key of {KEY}"):
        tilewright.connect(board, key="another")
    monkeypatch.delenv(KEY)
    with pytest.raises(RemoteError, match="is not known: set TILEWRIGHT_REMOTE_KEY"):
        tilewright.connect(board)
    with socket.create_connection(address_of(board)) as stranger:
        stranger.sendall(b"\xff" * 64)
        stranger.settimeout(10)
        said = b""
        while part := stranger.recv(1000):
            said += part
    assert said.startswith(b"tilewright remote 1\n")
    assert len(said) == 20 + 32  # the number that it has drawn, and nothing behind a wrong proof


def test_nothing_is_read_or_written_outside_of_a_folder(board):
    for message in (
        {"do": "put", "name": "../x"},
        {"do": "get", "name": "/etc/passwd"},
        {"do": "call", "request": {"do": "load", "name": "x"}, "timeout": 1},
        {"do": "call", "request": {"do": "run", "path": "../x"}, "timeout": 1},
    ):
        worker = RemoteWorker(board)
        worker.start()
        worker._wire.send(message)
        with pytest.raises((EOFError, OSError)):
            worker._wire.receive()
        worker.close()


@pytest.mark.skipif(os.name != "posix", reason="services of others are stopped otherwise")
def test_a_server_that_is_stopped_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv(KEY, "a key")
    command = [sys.executable, "-m", "tilewright", "serve", "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    ) as server:
        address = server.stdout.readline().rpartition(" ")[2].strip()
        there = tilewright.connect(address)
        there.device("llvm")
        assert list(tmp_path.iterdir())
        server.terminate()
        assert server.wait(60) == 128 + signal.SIGTERM
    assert not list(tmp_path.iterdir())
    there.close()


def test_tuning_measures_there(board, tmp_path, capsys):
    problem = ["depthwise_conv2d", "--input", "1x8x8x8", "--filter", "8x1x3x3"]
    how = ["--trials", "1", "--min-repeat-ms", "0", "--jobs", "1", "--tuner", "random"]
    how += ["--records", str(tmp_path / "records")]
    assert main(["tune", *problem, *how, "--remote", board]) == 0
    assert "GFLOP/s" in capsys.readouterr().out
    assert main(["tune", *problem, *how, "--remote", "127.0.0.1:1"]) == 1
    assert "no `tilewright serve` answers at 127.0.0.1:1" in capsys.readouterr().err


def test_programs_of_tvm_run_there(board, tmp_path):
    """The tutorial on cross compilation; https://tvm.apache.org/docs/v0.19.0, "tutorial"."""
    from tilewright import tvm
    from tilewright.tvm import autotvm, rpc

    host, _, port = board.rpartition(":")
    a = tvm.te.placeholder((16,), name="A")
    b = tvm.te.compute((16,), lambda i: a[i] + 1.0, name="B")
    func = tvm.build(tvm.te.create_schedule(b.op), [a, b], target="llvm", name="add_one")
    func.export_library(str(tmp_path / "lib.tar"))
    for remote in (rpc.connect_tracker(host, int(port)).request("board"), rpc.LocalSession()):
        remote.upload(str(tmp_path / "lib.tar"))
        there, dev = remote.load_module("lib.tar"), remote.cpu()
        x = tvm.nd.array(np.arange(16, dtype="float32"), dev)
        y = tvm.nd.array(np.zeros(16, dtype="float32"), dev)
        there(x, y)
        np.testing.assert_array_equal(y.numpy(), x.numpy() + 1)
        assert there.time_evaluator(there.entry_name, dev, number=2)(x, y).mean > 0
    assert autotvm.RPCRunner("board", host, int(port), number=5).remote == board


def test_kernels_for_a_board_take_what_was_tuned_there(monkeypatch):
    problem = Conv.parse("1x64x14x14", "64x64x3x3", groups=1, padding=1)
    target = Target.parse("opencl -device=mali")
    template, tile = list(candidates(problem, target))[7]
    best = Ranked(template.name, tuple(sorted(asdict(tile).items())), 1e-3)
    on_record = (Tuned(problem, str(target), "Mali-G52", (best,)),)
    for module in (tuned, knn):
        monkeypatch.setattr(module, "own", lambda kind: on_record)
    choice = next(iter(options(problem, target)))
    assert (choice.algorithm.name, choice.config, choice.seconds) == (template.name, tile, 1e-3)
