"""Rows of the tables of docs/benchmarks.md, each of one benchmark's results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import grouped

from tilewright.report.results import geometric_mean

RATIO, FLOOR = "best peer / tilewright", "tilewright / floor"
PASSES = ("forward", "dgrad", "wgrad")

Results = Mapping[str, Any]
Row = Mapping[str, Any]
#: A benchmark, and the rows that its results have in a table.
Rows = tuple[str, Callable[[Results], Iterator[dict[str, str]]]]


def line(what: str, ratios: Sequence[float | None], beside: str, command: str) -> dict[str, str]:
    """One row: how many times as fast as what."""
    found = [ratio for ratio in ratios if ratio]
    return {
        "what": what, "problems": str(len(found)), "mean": number(geometric_mean(found) or 0),
        "least": number(min(found)), "beside": beside, "command": f"`{command}`",
    }  # fmt: skip


def number(value: float) -> str:
    """A ratio with two digits, one below 1 with two decimals."""
    return f"{value:.0f}" if value >= 20 else f"{value:.1f}" if value >= 2 else f"{value:.2f}"


def split_by(rows: Sequence[Row], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def ratios_of(rows: Sequence[Row], column: str = RATIO) -> list[float | None]:
    return [row.get(column) for row in rows]


def peer_of(results: Results) -> str:
    return f"PyTorch {results['environment']['torch']}"


def depthwise(results: Results) -> Iterator[dict[str, str]]:
    def kind(row: Row) -> str:
        network, *others = row["section"].split(", ")
        if network == "batch 1":
            return f"{row['kernel']}x{row['kernel']}, {network}, {row['pass']}"
        return f"{row['kernel']}x{row['kernel']}, {others[1]}, {row['pass']} ({network})"

    for what, rows in split_by(results["rows"], kind).items():
        yield line(what, ratios_of(rows), peer_of(results), "gpu_depthwise.py")


def large(results: Results) -> Iterator[dict[str, str]]:
    half = [row for row in results["rows"] if row["dtype"] == "float16"]
    for batch in ("64", "1"):
        for pass_ in PASSES:
            rows = [r for r in half if r["pass"] == pass_ and r["shape"].startswith(f"{batch}x")]
            if not rows:
                continue
            kernels = sorted({row["kernel"] for row in rows})
            span = f"{kernels[0]}x{kernels[0]} to {kernels[-1]}x{kernels[-1]}"
            what = f"{span}, float16, batch {batch}, {pass_}"
            yield line(what, ratios_of(rows), peer_of(results), "large_kernels.py")
    others = [r for r in results["rows"] if r["section"].startswith("K 31,")]
    for section, rows in split_by(others, lambda row: str(row["section"])).items():
        what = f"31x31, {section.removeprefix('K 31, ')}, batch 64, forward, dgrad, wgrad"
        yield line(what, ratios_of(rows), peer_of(results), "large_kernels.py")


def stacks(results: Results) -> Iterator[dict[str, str]]:
    def kind(row: Row) -> str:
        _, dtype, passes = row["section"].split(", ")
        return f"MegEngine's table, stacks of {results['layers']} layers, {dtype}, {passes}"

    for what, rows in split_by(results["rows"], kind).items():
        yield line(what, ratios_of(rows), peer_of(results), "megengine_table.py")


def fused(results: Results) -> Iterator[dict[str, str]]:
    for section, rows in grouped.sections(results["rows"]).items():
        if found := [row for row in rows if row.get(RATIO)]:
            what, peer = f"3x3 and {section}, one kernel", f"torch.compile {version_of(results)}"
            yield line(what, ratios_of(found), peer, "fused_epilogues.py")


def version_of(results: Results) -> str:
    return str(results["environment"]["torch"])


def model(results: Results) -> Iterator[dict[str, str]]:
    settings = results["settings"]
    for row in results["best"]:
        if "faster" in row:
            what = f"RepLKNet-{settings['model']}, batch {settings['batch']}, {row['pass']}"
            yield line(what, [row["faster"]], peer_of(results), "replknet.py")


def models(results: Results) -> Iterator[dict[str, str]]:
    def kind(row: Row) -> str:
        return (
            f"{row['model']}, batch {results['settings']['batch']}, {row['pass']}, {row['engine']}"
        )

    for what, rows in split_by(results["rows"], kind).items():
        yield line(what, ratios_of(rows, "faster"), peer_of(results), "models.py")


DENSE = {
    "resnet": "ResNet-50's dense layers", "groups": "ResNeXt's layers in groups",
    "few": "Stems and few channels", "volumes": "Dense layers in three dimensions, batch 4",
    "depthwise_volumes": "Depthwise layers in three dimensions, batch 8",
    "lines": "Layers in one dimension, batches 8 and 16",
    "linear": "Linear layers of ViT and ConvNeXt",
}  # fmt: skip


def dense(results: Results) -> Iterator[dict[str, str]]:
    """Layers by where they are from, type and pass."""

    def kind(row: Row) -> str:
        what, settings = DENSE[row.get("layers", "resnet")], results["settings"]
        half = ", sums left to tensor cores" if settings.get("precision") == "half" else ""
        batch = "" if "batch" in what else f", batch {settings['batch']}"
        return f"{what}, {settings['dtype']}{half}{batch}, not tuned, {row['pass']}"

    for what, rows in split_by(results["rows"], kind).items():
        yield line(what, ratios_of(rows, "best peer / untuned"), peer_of(results), "gpu_dense.py")
        if "float16 / tried" in rows[0]:  # of float8, which PyTorch computes in float16
            theirs = "Tilewright, float16"
            yield line(what, ratios_of(rows, "float16 / tried"), theirs, "gpu_dense.py")


def untuned_dense(results: Results) -> Iterator[dict[str, str]]:
    """Random layers by pass."""
    for what, rows in split_by(results["rows"], lambda row: str(row["pass"])).items():
        name = f"Random dense and grouped layers, 16 bits, batch 1 to 64, not tuned, {what}"
        yield line(name, ratios_of(rows, "best peer / untuned"), peer_of(results),
                   "untuned_dense.py")  # fmt: skip


def dense_epilogues(results: Results) -> Iterator[dict[str, str]]:
    """What an epilogue costs behind ResNet-50's layers: the convolution alone by it."""
    for name in ("normalisation", "residual"):
        ratios = [1 / row[f"{name} / alone"] for row in results["rows"]]
        what = "scale, shift and ReLU" if name == "normalisation" else "these and a residual"
        yield line(
            f"ResNet-50's dense layers, float16, batch {results['settings']['batch']}, with {what}",
            ratios, "our convolution alone", "dense_epilogues.py",
        )  # fmt: skip


def opencl(results: Results) -> Iterator[dict[str, str]]:
    """VGG-16's layers by spatial packing."""
    for column, peer in (
        ("im2col/packing", "im2col and a product"),
        ("CLBlast/packing", "CLBlast"),
    ):
        ratios = [row[column] for row in results["layers"] if column in row]
        place = "a GPU" if "NVIDIA" in results["environment"]["device"] else "PoCL"
        what = f"VGG-16's 3x3 layers, float32, batch 1, OpenCL on {place}, spatial packing"
        if ratios:
            yield line(what, ratios, peer, "opencl_dense.py")


def opencl_networks(results: Results) -> Iterator[dict[str, str]]:
    """Whole networks in OpenCL on a GPU beside CUDA there, which has float16 and tensor cores."""
    for dtype in ("float32", "float16"):
        column = f"cuda {dtype} ms"
        ratios = [row[column] / row["float32 ms"] for row in results["rows"] if column in row]
        if ratios:
            what = "Article 004's networks, float32, batch 1, OpenCL on a GPU"
            yield line(what, ratios, f"Tilewright's CUDA, {dtype}", "opencl_networks.py")


def of_bytes(results: Results) -> Iterator[dict[str, str]]:
    peers = {
        "PyTorch / int8": f"{peer_of(results)}, float16", "float16 / int8": "Tilewright, float16",
        "cuDNN / int8": "cuDNN, int8",
    }  # fmt: skip
    for column, peer in peers.items():
        found = [row for row in results["rows"] if column in row]
        for label, rows in split_by(found, lambda r: f"{r['layout']}, batch {r['batch']}").items():
            of = ", constant filters" if results["settings"].get("inference") else ""
            what = f"ResNet-50's dense layers, int8{of}, not tuned, {label}"
            yield line(what, ratios_of(rows, column), peer, "gpu_bytes.py")


def products(results: Results) -> Iterator[dict[str, str]]:
    if all(row["operator"] == "gemm" for row in results["rows"]):
        for kind, integers in (("16 bits", False), ("int8", True)):
            rows = [row for row in results["rows"] if (row["dtype"] == "int8") == integers]
            what = f"Products of matrices, {kind}, not tuned"
            if rows:
                yield line(what, ratios_of(rows), peer_of(results), "tilewright bench gemm")


def gpu_networks(results: Results) -> Iterator[dict[str, str]]:
    """Networks in inference on a GPU: one by one after `optimize_`, all of those of timm that
    `torch.compile(backend="tilewright")` took together."""
    found = [row for row in results["rows"] if "threads" not in row and "faster" in row]
    for column, beside in (("faster", ""), ("than compiled", ", `torch.compile`")):
        rows = [row for row in found if column in row]
        peer, command = peer_of(results) + beside, "networks.py --device cuda"
        if any("regions" in row for row in rows):
            what = f"{len(rows)} networks of timm, batch {rows[0]['batch']}, inference"
            ratios, called = ratios_of(rows, column), "mode" in rows[0]
            what = f"Calls by the clock: {what}" if called else what
            command += " --backend" + " --calls" * called
            yield line(f'{what}, `backend="tilewright"`', ratios, peer, command)
            continue
        for row in rows:
            what = f"{row['model']}, batch {row['batch']}, inference, `optimize_(dense=True)`"
            yield line(what, [row[column]], peer, command)


def attention(results: Results) -> Iterator[dict[str, str]]:
    kinds = {"vit": "of ViT and of Swin's windows", "long": "of 1,024 and 4,096 tokens"}
    kinds["swin"], kinds["masked"] = kinds["vit"], "with a mask of numbers"
    for what, found in split_by(results["rows"], lambda r: kinds[r["shapes"]]).items():
        ratios = ratios_of(found, "PyTorch / untuned")
        yield line(
            f"Attention {what}, float16, not tuned", ratios, peer_of(results), "attention.py"
        )


def onnx_networks(results: Results) -> Iterator[dict[str, str]]:
    """Networks from ONNX files, by batch; those that were not right count as missing."""
    device = results["environment"]["device"]
    place = "" if "NVIDIA" in device else f"{processor_of(device)}: "
    columns = {
        "PyTorch / ours": peer_of(results),
        "torch.compile / ours": f"{peer_of(results)}, `torch.compile`",
        "ONNX Runtime / ours": "ONNX Runtime",
    }
    threads = re.search(r"--threads (\d+)", results["environment"]["command"])
    on = f", {threads[1]} thread" + "s" * (threads[1] != "1") if threads else ""
    for column, peer in columns.items():
        rows = [row for row in results["rows"] if column in row]
        alone = len({row["model"] for row in rows}) == 1  # all batches of it are a line
        every = ", ".join(dict.fromkeys(str(row["batch"]) for row in rows))
        named = {id(row): every if alone else str(row["batch"]) for row in rows}

        def said(r: Row, of: dict[int, str] = named) -> str:
            return f"{r['dtype']}, batch {of[id(r)]}"

        for what, found in split_by(rows, said).items():
            names = ", ".join(dict.fromkeys(row["model"] for row in found))
            what = f"{place}{names}, {what}{on}, `tilewright.load`"
            yield line(what, ratios_of(found, column), peer, "graph_networks.py")
            fewer = [row for row in found if "ours winograd / ours" in row]
            if fewer and column == "ONNX Runtime / ours":
                ratios = [row[column] / row["ours winograd / ours"] for row in fewer]
                what += ', `precision="winograd"`'
                yield line(what, ratios, peer, "graph_networks.py --precision winograd")


def compiled_training(results: Results) -> Iterator[dict[str, str]]:
    """Training steps by the backend of torch.compile."""
    rows = [row for row in results["rows"] if "faster" in row]
    device = results["environment"]["device"]
    place = "" if "H200" in device else f"{device}: "
    if len(rows) < 2:  # a sentence says it
        return
    peers = {
        "faster": "", "than compiled": ", `torch.compile`",
        "than graphs": ', `torch.compile(mode="reduce-overhead")`',
    }  # fmt: skip
    for column, beside in peers.items():
        if not any(column in row for row in rows):
            continue
        names = place + ", ".join(row["model"] for row in rows)
        what = f'{names}, batch {rows[0]["batch"]}, training, `backend="tilewright"`'
        yield line(what, ratios_of(rows, column), peer_of(results) + beside, "compiled_training.py")


def cpu_networks(results: Results) -> Iterator[dict[str, str]]:
    rows = [row for row in results["rows"] if "threads" in row]
    for what, found in split_by(rows, lambda row: f"{row['layout']}, {row['threads']}").items():
        names = ", ".join(row["model"] for row in found)
        layout, threads = what.split(", ")
        what = f"{processor_of(results['environment']['device'])}: {names}, {layout}, inference"
        what += f", {threads} thread" + "s" * (threads != "1")
        yield line(what, ratios_of(found, "faster"), peer_of(results), "networks.py")


def calls(results: Results) -> Iterator[dict[str, str]]:
    ratios = [1 / row["tilewright / PyTorch"] for row in results["rows"]]
    yield line("host time of an eager call, CPU", ratios, peer_of(results), "torch_overhead.py")


#: Layers of a CPU by the option that asks for them.
_KINDS = {
    "transposed": "transposed layers of 2x2 to 4x4",
    "volumes": "layers in three dimensions of 16 to 128 channels",
}


def layers(results: Results) -> Iterator[dict[str, str]]:
    place = results["environment"]
    peer = f"PyTorch {place['torch']}, ONNX Runtime {place['onnxruntime']}"
    if "uint8" in place["command"]:  # which PyTorch is not timed in
        peer = f"ONNX Runtime {place['onnxruntime']}"
    if "--winograd" in place["command"]:
        yield from fewer_products(results, peer)
        return
    if "--dense" in place["command"]:
        yield from dense_layers(results, peer)
        return
    kind = next((k for k in _KINDS if f"--kind {k}" in place["command"]), "")
    for section, rows in grouped.sections(results["rows"]).items():
        if kind:
            what = f"{processor_of(place['device'])}: {_KINDS[kind]}, {section}, float32"
            yield line(what, ratios_of(rows), peer, f"cpu_layers.py --kind {kind}")
            continue
        filters = sorted({row["kernel"] for row in rows}, key=lambda k: int(k.split("x")[0]))
        span = " to ".join(dict.fromkeys((filters[0], filters[-1])))
        dtype = "" if "," in section else f", {rows[0]['dtype']}"
        large = " --large" if len(filters) == 1 else ""
        what = f"{processor_of(place['device'])}: {span}, {section}{dtype}"
        yield line(what, ratios_of(rows), peer, f"cpu_layers.py{large}")


def dense_layers(results: Results, peer: str) -> Iterator[dict[str, str]]:
    """Those with one group, and those with more."""
    for section, rows in grouped.sections(results["rows"]).items():
        for name, found in (
            ("ResNet-50's and VGG-16's dense layers", [r for r in rows if not in_groups(r)]),
            ("ResNeXt-50's 32 groups", [r for r in rows if in_groups(r)]),
        ):
            dtype = "" if rows[0]["dtype"] == "float32" else f", {rows[0]['dtype']}"
            what = f"{processor_of(results['environment']['device'])}: {name}, {section}{dtype}"
            yield line(what, ratios_of(found), peer, "cpu_layers.py --dense")


def fewer_products(results: Results, peer: str) -> Iterator[dict[str, str]]:
    """Of 3x3 layers those with Winograd's algorithm allowed; exact ones are among dense layers."""
    for section, rows in grouped.sections(results["rows"]).items():
        found = [r for r in rows if " winograd" in r["name"]]
        what = f"{processor_of(results['environment']['device'])}: 3x3 layers, winograd, {section}"
        yield line(what, ratios_of(found), peer, "cpu_layers.py --winograd")


def types(results: Results) -> Iterator[dict[str, str]]:
    """Layers in narrow types beside our own in float32."""
    rows, device = results["rows"], processor_of(results["environment"]["device"])
    batches = " and ".join(dict.fromkeys(str(row["batch"]) for row in rows))
    for kind in ("bfloat16", "int8"):
        what = f"{device}: ResNet-50's layers, batch {batches}, 1 thread, {kind}"
        yield line(what, ratios_of(rows, f"float32 / {kind}"), "our float32", "cpu_types.py")


def in_groups(row: Row) -> bool:
    return " groups" in row["name"]


def processor_of(device: str) -> str:
    return "AVX-512 and AMX (H200's host)" if "AMX" in device else device


def latency(results: Results) -> Iterator[dict[str, str]]:
    command = "compile_latency.py"
    for name, rows in results.items():
        if not isinstance(rows, list) or name == "runs":
            continue
        target, *arch = name.split(" -arch=")
        for row in rows:
            yield {
                "program": row["program"], "target": " ".join([target, *arch]),
                **{f"{k} ms": f"{row[k]:.1f}" for k in ("lower", "verify", "codegen", "compile",
                                                       "cold", "warm")},
                "command": f"`{command}{' --tensor-cores' if 'gpu.' in row['program'] else ''}`",
            }  # fmt: skip
