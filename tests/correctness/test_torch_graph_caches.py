"""Compiled graphs from the disk find what they call, in processes that compile nothing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.needs_torch


def test_code_from_the_disk_finds_what_it_calls(tmp_path):
    program = """if True:
        import torch, tilewright.torch as tt
        from torch._dynamo.utils import counters
        x, w = torch.ones(1, 4, 3, 3), torch.ones(4, 1, 3, 3)
        with torch.no_grad():
            y = torch.compile(lambda x: tt.depthwise_conv2d(x, w, None, 1, 1))(x)
        hits = counters["inductor"]["fxgraph_cache_hit"]
        print(hits or counters["aot_autograd"]["autograd_cache_hit"], y[0, 0].tolist())
    """
    env = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "TORCHINDUCTOR_FX_GRAPH_CACHE": "1"}
    printed = [
        subprocess.run(
            [sys.executable, "-c", program], env=os.environ | env, capture_output=True, text=True,
            check=True,
        ).stdout.split(maxsplit=1)
        for _ in range(2)
    ]  # fmt: skip
    assert [hit for hit, _ in printed] == ["0", "1"]
    assert printed[0][1] == printed[1][1]
    assert "[6.0, 9.0, 6.0]" in printed[0][1]


def test_who_does_not_compile_loads_no_compiler():
    program = "import sys, tilewright.torch; print('torch._inductor.lowering' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
