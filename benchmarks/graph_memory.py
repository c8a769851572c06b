"""Memory of intermediate values of whole networks: what is planned, what is needed, ONNX Runtime's.

Networks are those of `graph_networks.py`, as ONNX files in float32. Three columns, in megabytes:

- the largest set of intermediate values that are alive at once, counted by a walk over the nodes in
  their order, by how many readers each value still has (the planner counts intervals);
- the block that `graph/memory.py` plans, and its ratio to that;
- ONNX Runtime's: what its process has more in memory at its peak during three runs than before
  them (VmHWM less VmRSS, with the mark reset through /proc/self/clear_refs), with one thread:
  with its arena and memory pattern, as they are by default, and without them, where each value is
  allocated by itself and freed after its last reader. Weights lie outside of the arena, or what is
  left of packing them would hide what runs take. Inputs and outputs are there before. With
  --measure the same for ours, which first compiles all kernels.

    PYTHONPATH=src python benchmarks/graph_memory.py [--batch 1 8] [--models resnet50] [--measure]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import tilewright
from tilewright.graph.executor import lifetimes_of
from tilewright.graph.graph import Graph
from tilewright.graph.memory import plan
from tilewright.graph.pipeline import optimized
from tilewright.graph.views import VIEWS, views
from tilewright.ir.dtype import dtype

NAMES = (
    "resnet18", "resnet50", "vgg16", "mobilenet_v2", "efficientnet_b0", "convnext_tiny",
    "densenet121", "inception_v3",
)  # fmt: skip
PEERS = ("ONNX Runtime", "without arena")
MB = 1e6


def largest_alive(graph: Graph) -> int:
    """The bytes of the largest set of intermediate values that are needed at one time."""
    nodes = [n for n in graph.nodes if n.operator not in VIEWS]
    owner = {x: view.owner for x, view in views(graph).items()}
    given = {owner[x] for x in graph.outputs.values()}
    readers = Counter(x for n in nodes for x in {owner[y] for y in n.inputs})
    alive: dict[Any, int] = {}
    most = 0
    for n in nodes:
        own = owner[n]
        if own not in given:
            alive[own] = int(np.prod(own.shape, dtype=np.int64)) * dtype(own.dtype).bytes
        most = max(most, sum(alive.values()))
        for x in {owner[y] for y in n.inputs}:
            readers[x] -= 1
            if not readers[x]:
                alive.pop(x, None)
        if not readers[own]:
            alive.pop(own, None)
    return most


def _now(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024


def peak(side: str, path: str, images: tuple[int, ...], answer: Any) -> None:
    """What runs take at their peak, in this process."""
    x = np.random.default_rng(0).standard_normal(images).astype("float32")
    y = np.zeros((images[0], 1000), "float32")
    if side in PEERS:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.enable_cpu_mem_arena = options.enable_mem_pattern = side == PEERS[0]
        options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        binding.bind_cpu_input("x", x)
        value = onnxruntime.OrtValue.ortvalue_from_numpy(y)
        binding.bind_ortvalue_output("y", value)

        def call() -> None:
            session.run_with_iobinding(binding)
    else:
        model = tilewright.load(path)
        model.compile({"x": x})

        def call() -> None:
            model.run({"x": x}, outputs={"y": y})

    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins again
    before = _now("VmRSS")
    for _ in range(3):
        call()
    answer.put(_now("VmHWM") - before)


def measured(side: str, path: str, images: tuple[int, ...]) -> int:
    """:func:`peak` of a process of its own."""
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=peak, args=(side, path, images, answer))
    process.start()
    found: int = answer.get(timeout=900)
    process.join()
    return found


def row(name: str, batch: int, image: int, options: argparse.Namespace) -> dict[str, Any] | None:
    """What is known of one network."""
    import torch
    from graph_networks import exported, network

    made = network(name)
    if made is None:
        return None
    shape = (batch, 3, image, image)
    data = exported(made.float(), torch.zeros(shape))
    model = tilewright.load(data, target="llvm")
    graph = model.graph({"x": np.zeros(shape, "float32")})
    graph = optimized(graph, target=model.target)
    alive, planned = largest_alive(graph), plan(lifetimes_of(graph)).nbytes
    found = {"network": name, "batch": batch, "alive": alive, "planned": planned,
             "ratio": planned / alive}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        path.write_bytes(data)
        sides = [*PEERS, *["tilewright"][: options.measure]]
        found |= {side: measured(side, str(path), shape) for side in sides}
    return found


def main() -> None:
    # Large blocks go back to the system when they are freed, in this process's children.
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", default=NAMES)
    parser.add_argument("--batch", nargs="+", type=int, default=[1])
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--measure", action="store_true", help="our process, too")
    options = parser.parse_args()
    rows = []
    print(f"{'network':20}{'batch':>6}{'alive':>10}{'planned':>10}{'ratio':>8}{PEERS[0]:>14}{PEERS[1]:>15}"
          f"{'ours, measured' if options.measure else '':>16}")  # fmt: skip
    for name in options.models:
        for batch in options.batch:
            found = row(name, batch, options.image, options)
            if found is None:
                continue
            rows.append(found)
            numbers = [found[k] / MB for k in ("alive", "planned")]
            ours = f"{found['tilewright'] / MB:16.2f}" if options.measure else ""
            print(f"{name:20}{batch:6}{numbers[0]:10.2f}{numbers[1]:10.2f}{found['ratio']:8.3f}"
                  f"{found[PEERS[0]] / MB:14.2f}{found[PEERS[1]] / MB:15.2f}{ours}",
                  flush=True)  # fmt: skip
    print(f"largest ratio {max(r['ratio'] for r in rows):.3f}")


if __name__ == "__main__":
    main()
