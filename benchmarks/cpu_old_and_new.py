"""The depthwise layers of `cpu_layers.py` as another version computes them, and as this one does.

    PYTHONPATH=src python benchmarks/cpu_old_and_new.py --old 07c6067 [--threads 1] [--cpu-time]

``--old`` is a commit, or a folder with a checkout, which is named after its commit. Each version
runs in a process of its own and chooses its kernels by ``--policy``; the two take turns batch by
batch, so that what disturbs one disturbs both. Their results have to agree. A row has the time of
each version's faster layout, in the best of some places in memory; a ratio is the new time by the
old one. Code is equal where the operations of the machine are; ratios of such layers are noise.
With ``--cpu-time`` times are of the processes, on one thread of a machine in use.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tarfile
import time
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

_SIDES = ("old", "new")
LAYOUTS = ("NCHW", "NHWC")
#: How often arrays are placed in memory again, which changes what of them caches hold; rounds of
#: each, and seconds of a batch, about.
_PLACES, _ROUNDS, _SPAN = 3, 9, 0.01
#: The relative error up to which results agree.
_CLOSE = 1e-5


def serve() -> None:
    """Answer requests, a line of JSON each: a version of its own, in a process of its own.

    What names a layer chooses its kernel and writes the result into a file; what has a number runs
    the kernel as often, and answers with the seconds of one.
    """
    import numpy as np

    from tilewright import select
    from tilewright.target import Target

    make: Any
    try:
        from tilewright.topi.operators.conv import Conv

        make = Conv.parse
    except ImportError:  # before operators had declarations of their own
        from tilewright.topi import problem

        make = problem.Problem.parse  # type: ignore[attr-defined]
    call: Any = None
    clock = time.perf_counter
    for line in sys.stdin:
        ask = json.loads(line)
        if "number" in ask:
            call()  # wakes the threads
            begin = clock()
            for _ in range(ask["number"]):
                call()
            print(json.dumps((clock() - begin) / ask["number"]), flush=True)
            continue
        n, c, h, w = map(int, ask["shape"].split("x"))
        k, last = ask["k"], ask["layout"] == "NHWC"
        groups = [c] if make.__qualname__.startswith("Conv") else []
        p = make(
            ask["shape"], f"{c}x1x{k}x{k}", *groups, stride=ask["stride"], padding=k // 2,
            layout=ask["layout"], dtype="float32",
        )  # fmt: skip
        rng = np.random.default_rng(0)
        x = rng.standard_normal((n, c, h, w)).astype(np.float32)
        filter = rng.standard_normal((c, 1, k, k)).astype(np.float32)
        if last:
            x, filter = x.transpose(0, 2, 3, 1).copy(), filter.transpose(2, 3, 0, 1).copy()
        y = np.full(p.result_shape, np.nan, np.float32)
        target = Target.parse(f"llvm -threads={ask['threads']}")
        chosen = next(iter(select.options(p, target, ask["policy"])))
        given: list[Any] = [x, filter.reshape(p.filter_shape), y]
        kernel: Any = chosen.build().kernel  # type: ignore[attr-defined]
        call = kernel.bind(*given)
        call()
        np.save(ask["file"], y)
        clock = time.process_time if ask["cpu"] else time.perf_counter
        lines = (line.partition("#")[0].split() for line in kernel.assembly.splitlines())
        code = [line[0] for line in lines if line and line[0][0] not in "._"]
        print(json.dumps([f"{chosen.algorithm.name} {chosen.config}", code]), flush=True)


class Version:
    """A version in a process of its own, which measures its candidates into a folder of its own."""

    def __init__(self, root: Path, cache: Path) -> None:
        found = {**os.environ, "PYTHONPATH": str(root / "src"), "TILEWRIGHT_CACHE": str(cache)}
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve"], env=found, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def ask(self, **what: Any) -> Any:
        """The answer to a request; raises :class:`RuntimeError` where the process is gone."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(what) + "\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise RuntimeError(f"no answer to {what}")
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def measured(
    versions: dict[str, Version], layer: tuple[str, int, int], folder: Path, options: Any
) -> dict[str, Any]:
    """The row of a layer."""
    import numpy as np

    shape, k, stride = layer
    best: dict[str, tuple[float, str, list[str]]] = {}
    for layout in [x for x in LAYOUTS for _ in range(_PLACES)]:
        chosen, counts, results = {}, {}, {}
        for side, version in versions.items():
            file = str(folder / f"{side}.npy")
            chosen[side] = version.ask(
                shape=shape, k=k, stride=stride, layout=layout, policy=options.policy, file=file,
                threads=options.threads, cpu=options.cpu_time,
            )  # fmt: skip
            counts[side] = max(1, int(_SPAN / max(version.ask(number=3), 1e-7)))
            results[side] = np.load(file)
        error = np.linalg.norm(results["new"] - results["old"]) / np.linalg.norm(results["old"])
        if not error < _CLOSE:
            raise AssertionError(f"{layer} {layout}: results differ by {error:.1e}")
        times: dict[str, list[float]] = {side: [] for side in versions}
        for turn in range(_ROUNDS):
            for side in _SIDES[:: 1 if turn % 2 else -1]:
                times[side].append(versions[side].ask(number=counts[side]))
        for side, found in times.items():
            kernel, code = chosen[side]
            what = statistics.median(found), f"{layout} {kernel}", code
            best[side] = min(best.get(side, what), what)
    (old, old_kernel, old_code), (new, new_kernel, new_code) = (best[side] for side in _SIDES)
    return {
        "layer": f"{shape} K{k} s{stride}", "threads": options.threads, "old us": old * 1e6,
        "new us": new * 1e6, "ratio": new / old, "equal code": old_code == new_code,
        "old instructions": len(old_code), "new instructions": len(new_code),
        "old kernel": old_kernel, "new kernel": new_kernel,
    }  # fmt: skip


def commit(root: Path) -> str:
    """The commit of a checkout; the name of the folder where it is none."""
    made = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True
    )
    return made.stdout.strip() or root.name


def main() -> None:
    import cpu_layers
    import measure

    from tilewright.report.results import geometric_mean

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--old", default="07c6067", help="a commit, or a folder with a checkout")
    parser.add_argument("--new", default="", help="what this version is called, where not by git")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--policy", default="heuristic", help="how kernels are chosen (heuristic)")
    parser.add_argument("--only", default="", help="layers that contain this: 1x384, K31")
    parser.add_argument("--cpu-time", action="store_true", help="of the process, for one thread")
    parser.add_argument("--name", default="cpu_old_and_new", help="of the results")
    parser.add_argument("--out", default="benchmarks/results")
    options = parser.parse_args()
    here, rows = Path(__file__).resolve().parents[1], []
    with TemporaryDirectory() as name:
        folder, old = Path(name), Path(options.old)
        if not (old / "src").is_dir():
            old = folder / options.old
            packed = subprocess.run(
                ["git", "archive", options.old, "src"], cwd=here, check=True, capture_output=True
            )
            with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
                archive.extractall(old, filter="data")
        with Version(old, folder / "old") as first, Version(here, folder / "new") as second:
            for layer in cpu_layers.LAYERS:
                if options.only in f"{layer[0]} K{layer[1]} s{layer[2]}":
                    versions = dict(zip(_SIDES, (first, second), strict=True))
                    rows.append(measured(versions, layer, folder, options))
                    print(json.dumps(rows[-1]), flush=True)
    ratios = [row["ratio"] for row in rows]
    summary = {
        "old": Path(options.old).name, "new": options.new or commit(here), "layers": len(rows),
        "equal code": sum(row["equal code"] for row in rows),
        "geometric mean": geometric_mean(ratios), "least": min(ratios), "most": max(ratios),
    }  # fmt: skip
    print(json.dumps(summary))
    where = measure.environment("llvmlite", gpu=False)
    result = {"environment": where, "summary": summary, "rows": rows}
    print(measure.save(options.name, result, options.out))


if __name__ == "__main__":
    if "--serve" in sys.argv:
        serve()
    else:
        main()
