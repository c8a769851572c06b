"""Write docs/benchmarks.md and the README's figures from the committed results.

    python benchmarks/page.py

The page has one table for each kind of reader and the list of the files that its figures come from.
Every figure is read from ``results/*.json``, one file a claim, as the benchmarks wrote it.
"""

from __future__ import annotations

import json
import re
import statistics
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import grouped
import measure

from tilewright.report.results import environment as surroundings
from tilewright.report.results import geometric_mean

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent / "docs/benchmarks.md"
README = FOLDER.parent / "README.md"

_HEAD = """# Benchmarks

Depthwise convolutions and their gradients run faster than in the libraries that most programs use:
on a GPU than in PyTorch with cuDNN, on CPUs than in PyTorch with oneDNN and in ONNX Runtime. The
gain grows with the filter. It is smallest, and now and then a loss, where memory bounds both sides.

## Method

- A figure is a ratio: the time of the fastest peer in its faster layout (NCHW or channels_last)
  over ours, for the same problem in the same process. 2.0 is twice as fast, 0.9 is slower.
- Candidates and peers take turns; a time is the median over the rounds. Kernels on a GPU are
  replayed from CUDA graphs, so the host's time is left out; models and calls are timed on the host.
- "Mean" is the geometric mean over the problems, "least" is the worst of them.
- Kernels are checked against float64, models against PyTorch's own output; what fails is left out.
- Kernels come from the shipped records or from a search in that run, except under "not tuned".
- A command is a file of `benchmarks`; the last table has its arguments and its date. Most runs were
  made once, on one machine: compare ratios, and expect a few percent more or less on a busy CPU.
"""

#: Where the README holds the claim.
_CLAIM = re.compile(r"(<!-- benchmarks/page.py -->\n).*?(\n<!-- end -->)", re.DOTALL)
#: What :func:`surroundings` reads of a file.
_AROUND = ("environment", "device", "date", "command", "versions")
_NAMES = {"python": "Python", "numpy": "NumPy", "torch": "PyTorch", "onnxruntime": "ONNX Runtime"}
_RATIO, _FLOOR = "best peer / tilewright", "tilewright / floor"
_PASSES = ("forward", "dgrad", "wgrad")

Results = Mapping[str, Any]
Row = Mapping[str, Any]
#: A benchmark, and the rows that its results have in a table.
Rows = tuple[str, Callable[[Results], Iterator[dict[str, str]]]]


def load(folder: Path = FOLDER / "results") -> dict[str, Results]:
    """The results in a folder by the names of their files."""
    paths = sorted(folder.glob("*.json"))
    return {p.stem: normal(json.loads(p.read_text()), p.stem) for p in paths}


def normal(results: Results, stem: str) -> Results:
    """Results with an "environment", also of a file that names its device and date by itself.

    Where it does not name its command, that is the benchmark whose name ends the file's.
    """
    around = surroundings(results)
    scripts = [p.name for p in FOLDER.glob("*.py") if f"_{stem}".endswith(f"_{p.stem}")]
    if "command" not in around and scripts:
        around["command"] = f"python benchmarks/{scripts[0]}"
    return {"environment": around} | {k: v for k, v in results.items() if k not in _AROUND}


def script(results: Results) -> Path:
    """The file that wrote them, by their command."""
    words = results["environment"]["command"].split()
    if words[0] == "tilewright":
        return FOLDER.parent / f"src/tilewright/cli/{words[1]}.py"
    return FOLDER.parent / words[1]


def page_text(everything: Mapping[str, Results]) -> str:
    """The whole page; a table or a sentence whose file is missing is left out."""
    parts = [_HEAD]
    for title, tables, sentences in _READERS:
        rows = [row for make in tables for row in _lines(everything, make)]
        text = _sentences(everything, sentences)
        if rows or text:
            parts += [f"## {title}", *([measure.table(rows)] if rows else []), text]
    if everything:
        parts += ["## Device, date, versions and command of each file", sources(everything)]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def sources(everything: Mapping[str, Results]) -> str:
    """The table of files."""
    rows = []
    for name, results in everything.items():
        found = results["environment"]
        named = ("device", "date", "command", "machine", "system", "target", "seconds", "cudnn")
        versions = [f"{_NAMES.get(k, k)} {v}" for k, v in found.items() if k not in named]
        if "cudnn" in found:
            versions.append(f"cuDNN {cudnn_version(found['cudnn'])}")
        rows.append({
            "benchmarks/results": f"`{name}`", "device": found["device"],
            "date": found["date"].removesuffix(" UTC"), "versions": ", ".join(versions),
            "command": f"`{re.sub(r' --(out|html|json) ?[^ ]+', '', found['command'])}`",
        })  # fmt: skip
    return measure.table(rows)


def cudnn_version(number: str) -> str:
    """91900 is 9.19.0."""
    value = int(number)
    return f"{value // 10000}.{value // 100 % 100}.{value % 100}"


# Rows of the readers' tables


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


def _lines(everything: Mapping[str, Results], make: Rows) -> Iterator[dict[str, str]]:
    """The rows that a function makes of the files of its benchmark."""
    stem, rows = make
    for results in everything.values():
        if script(results).stem == stem:
            yield from rows(results)


def _split(rows: Sequence[Row], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def _ratios(rows: Sequence[Row], column: str = _RATIO) -> list[float | None]:
    return [row.get(column) for row in rows]


def _peer(results: Results) -> str:
    return f"PyTorch {results['environment']['torch']}"


def _depthwise(results: Results) -> Iterator[dict[str, str]]:
    def kind(row: Row) -> str:
        network, *others = row["section"].split(", ")
        if network == "batch 1":
            return f"{row['kernel']}x{row['kernel']}, {network}, {row['pass']}"
        return f"{row['kernel']}x{row['kernel']}, {others[1]}, {row['pass']} ({network})"

    for what, rows in _split(results["rows"], kind).items():
        yield line(what, _ratios(rows), _peer(results), "gpu_depthwise.py")


def _large(results: Results) -> Iterator[dict[str, str]]:
    half = [row for row in results["rows"] if row["dtype"] == "float16"]
    for batch in ("64", "1"):
        for pass_ in _PASSES:
            rows = [r for r in half if r["pass"] == pass_ and r["shape"].startswith(f"{batch}x")]
            if not rows:
                continue
            kernels = sorted({row["kernel"] for row in rows})
            span = f"{kernels[0]}x{kernels[0]} to {kernels[-1]}x{kernels[-1]}"
            what = f"{span}, float16, batch {batch}, {pass_}"
            yield line(what, _ratios(rows), _peer(results), "large_kernels.py")
    others = [r for r in results["rows"] if r["section"].startswith("K 31,")]
    for section, rows in _split(others, lambda row: str(row["section"])).items():
        what = f"31x31, {section.removeprefix('K 31, ')}, batch 64, forward, dgrad, wgrad"
        yield line(what, _ratios(rows), _peer(results), "large_kernels.py")


def _stacks(results: Results) -> Iterator[dict[str, str]]:
    def kind(row: Row) -> str:
        _, dtype, passes = row["section"].split(", ")
        return f"MegEngine's table, stacks of {results['layers']} layers, {dtype}, {passes}"

    for what, rows in _split(results["rows"], kind).items():
        yield line(what, _ratios(rows), _peer(results), "megengine_table.py")


def _fused(results: Results) -> Iterator[dict[str, str]]:
    for section, rows in grouped.sections(results["rows"]).items():
        if found := [row for row in rows if row.get(_RATIO)]:
            what, peer = f"3x3 and {section}, one kernel", f"torch.compile {_version(results)}"
            yield line(what, _ratios(found), peer, "fused_epilogues.py")


def _version(results: Results) -> str:
    return str(results["environment"]["torch"])


def _model(results: Results) -> Iterator[dict[str, str]]:
    settings = results["settings"]
    for row in results["best"]:
        if "faster" in row:
            what = f"RepLKNet-{settings['model']}, batch {settings['batch']}, {row['pass']}"
            yield line(what, [row["faster"]], _peer(results), "replknet.py")


def _models(results: Results) -> Iterator[dict[str, str]]:
    def kind(row: Row) -> str:
        return (
            f"{row['model']}, batch {results['settings']['batch']}, {row['pass']}, {row['engine']}"
        )

    for what, rows in _split(results["rows"], kind).items():
        yield line(what, _ratios(rows, "faster"), _peer(results), "models.py")


_DENSE = {
    "resnet": "ResNet-50's dense layers", "groups": "ResNeXt's layers in groups",
    "few": "Stems and few channels",
}  # fmt: skip


def _dense(results: Results) -> Iterator[dict[str, str]]:
    """Layers by where they are from, type and pass."""

    def kind(row: Row) -> str:
        what, settings = _DENSE[row.get("layers", "resnet")], results["settings"]
        half = ", sums left to tensor cores" if settings.get("precision") == "half" else ""
        of = f"{what}, {settings['dtype']}{half}, batch {settings['batch']}"
        return f"{of}, not tuned, {row['pass']}"

    for what, rows in _split(results["rows"], kind).items():
        yield line(what, _ratios(rows, "best peer / untuned"), _peer(results), "gpu_dense.py")
        if "float16 / tried" in rows[0]:  # of float8, which PyTorch computes in float16
            theirs = "Tilewright, float16"
            yield line(what, _ratios(rows, "float16 / tried"), theirs, "gpu_dense.py")


def _opencl(results: Results) -> Iterator[dict[str, str]]:
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


def _bytes(results: Results) -> Iterator[dict[str, str]]:
    for column, peer in (("PyTorch / int8", _peer(results)), ("float16 / int8", "Tilewright")):
        for batch, rows in _split(results["rows"], lambda r: f"batch {r['batch']}").items():
            what = f"ResNet-50's dense layers, int8, not tuned, {batch}"
            yield line(what, _ratios(rows, column), f"{peer}, float16", "gpu_bytes.py")


def _products(results: Results) -> Iterator[dict[str, str]]:
    if all(row["operator"] == "gemm" for row in results["rows"]):
        ratios = _ratios(results["rows"], "best peer / tilewright")
        what = "Products of matrices, 16 bits, not tuned"
        yield line(what, ratios, _peer(results), "tilewright bench gemm")


def _gpu_networks(results: Results) -> Iterator[dict[str, str]]:
    for column, beside in (("faster", ""), ("than compiled", ", `torch.compile`")):
        for row in results["rows"]:
            if "threads" not in row:
                what = f"{row['model']}, batch {row['batch']}, inference, `optimize_(dense=True)`"
                peer = _peer(results) + beside
                yield line(what, [row[column]], peer, "networks.py --device cuda")


def _onnx_networks(results: Results) -> Iterator[dict[str, str]]:
    """Networks from ONNX files, by batch; those that were not right count as missing."""
    device = results["environment"]["device"]
    place = "" if "NVIDIA" in device else f"{_processor(device)}: "
    for column, beside in (("PyTorch / ours", ""), ("torch.compile / ours", ", `torch.compile`")):
        rows = [row for row in results["rows"] if column in row]
        for what, found in _split(rows, lambda r: f"{r['dtype']}, batch {r['batch']}").items():
            names = ", ".join(row["model"] for row in found)
            what = f"{place}{names}, {what}, `tilewright.load`"
            yield line(what, _ratios(found, column), _peer(results) + beside, "graph_networks.py")


def _compiled_training(results: Results) -> Iterator[dict[str, str]]:
    """Training steps by the backend of torch.compile."""
    rows = [row for row in results["rows"] if "faster" in row]
    device = results["environment"]["device"]
    place = "" if "H200" in device else f"{device}: "
    for column, beside in (("faster", ""), ("than compiled", ", `torch.compile`")):
        names = place + ", ".join(row["model"] for row in rows)
        what = f'{names}, batch {rows[0]["batch"]}, training, `backend="tilewright"`'
        yield line(what, _ratios(rows, column), _peer(results) + beside, "compiled_training.py")


def _cpu_networks(results: Results) -> Iterator[dict[str, str]]:
    rows = [row for row in results["rows"] if "threads" in row]
    for what, found in _split(rows, lambda row: f"{row['layout']}, {row['threads']}").items():
        names = ", ".join(row["model"] for row in found)
        layout, threads = what.split(", ")
        what = f"{_processor(results['environment']['device'])}: {names}, {layout}, inference"
        what += f", {threads} thread" + "s" * (threads != "1")
        yield line(what, _ratios(found, "faster"), _peer(results), "networks.py")


def _first(results: Results) -> str:
    times = sorted(row["first call"] for row in results["rows"])
    ninth = statistics.quantiles(times, n=10, method="inclusive")[-1]
    return (
        f"The first eager call of a shape that nobody tuned took {statistics.median(times):.2f} s "
        f"in the median of {len(times)} depthwise layers of all passes, {ninth:.2f} s at the 90th "
        "percentile (`benchmarks/first_call.py --shapes`)."
    )


def _calls(results: Results) -> Iterator[dict[str, str]]:
    ratios = [1 / row["tilewright / PyTorch"] for row in results["rows"]]
    yield line("host time of an eager call, CPU", ratios, _peer(results), "torch_overhead.py")


def _layers(results: Results) -> Iterator[dict[str, str]]:
    place = results["environment"]
    peer = f"PyTorch {place['torch']}, ONNX Runtime {place['onnxruntime']}"
    if "uint8" in place["command"]:  # which PyTorch is not timed in
        peer = f"ONNX Runtime {place['onnxruntime']}"
    if "--winograd" in place["command"]:
        yield from _fewer_products(results, peer)
        return
    if "--dense" in place["command"]:
        yield from _dense_layers(results, peer)
        return
    for section, rows in grouped.sections(results["rows"]).items():
        filters = sorted({row["kernel"] for row in rows}, key=lambda k: int(k.split("x")[0]))
        span = " to ".join(dict.fromkeys((filters[0], filters[-1])))
        dtype = "" if "," in section else f", {rows[0]['dtype']}"
        large = " --large" if len(filters) == 1 else ""
        what = f"{_processor(place['device'])}: {span}, {section}{dtype}"
        yield line(what, _ratios(rows), peer, f"cpu_layers.py{large}")


def _dense_layers(results: Results, peer: str) -> Iterator[dict[str, str]]:
    """Those with one group, and those with more."""
    for section, rows in grouped.sections(results["rows"]).items():
        for name, found in (
            ("ResNet-50's and VGG-16's dense layers", [r for r in rows if not _in_groups(r)]),
            ("ResNeXt-50's 32 groups", [r for r in rows if _in_groups(r)]),
        ):
            dtype = "" if rows[0]["dtype"] == "float32" else f", {rows[0]['dtype']}"
            what = f"{_processor(results['environment']['device'])}: {name}, {section}{dtype}"
            yield line(what, _ratios(found), peer, "cpu_layers.py --dense")


def _fewer_products(results: Results, peer: str) -> Iterator[dict[str, str]]:
    """Of 3x3 layers those with Winograd's algorithm allowed; exact ones are among dense layers."""
    for section, rows in grouped.sections(results["rows"]).items():
        found = [r for r in rows if " winograd" in r["name"]]
        what = f"{_processor(results['environment']['device'])}: 3x3 layers, winograd, {section}"
        yield line(what, _ratios(found), peer, "cpu_layers.py --winograd")


def _in_groups(row: Row) -> bool:
    return " groups" in row["name"]


def _processor(device: str) -> str:
    return "AVX-512 and AMX (H200's host)" if "AMX" in device else device


def _latency(results: Results) -> Iterator[dict[str, str]]:
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


# Sentences


def _sentences(everything: Mapping[str, Results], stems: Sequence[str]) -> str:
    wanted = [(script(results).stem, results) for results in everything.values()]
    says = [_SENTENCES[s](r) for stem in stems for s, r in wanted if s == stem]
    return "\n".join(_bullet(text) for text in says if text)


def _bullet(text: str) -> str:
    return textwrap.fill(f"- {text}", 98, subsequent_indent="  ", break_on_hyphens=False)


def _cost(results: Results) -> str:
    found = [row["fused / alone"] for row in results["rows"]]
    return (
        f"An epilogue in the same kernel takes {_percent(geometric_mean(found) or 1)} more time "
        f"than the convolution alone (mean of {len(found)}, at most {_percent(max(found))}; "
        "`benchmarks/fused_epilogues.py`)."
    )


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):.0f} %"


def _untuned(results: Results) -> str:
    every = results["shares"][0]
    large = "--large" in results["environment"]["command"]
    return (
        f"Not tuned: for {every['problems']} random layers and gradients with filters of "
        f"{'7 to 51 rows' if large else '3x3 to 7x7'}, the kernel that the ranking model chooses "
        f"without measuring takes at most 1.1 times as long as the fastest that a search found for "
        f"{100 * every['share within 1.1']:.0f} % of them, at most 1.2 times for "
        f"{100 * every['share within 1.2']:.0f} % "
        f"(`benchmarks/untuned_shapes.py{' --large' if large else ''}`)."
    )


def _limits(results: Results) -> str:
    """What the ratios of a model leave out, and what another machine gave."""
    name = f"RepLKNet-{results['settings']['model']}"
    says = []
    late = {r["pass"] for r in results.get("left out", ()) if r["failed"].endswith("in time")}
    if late:
        says.append(
            f"{name}, {' and '.join(sorted(late))}: graphs of torch.compile were not ready in the "
            "time of the run, of either side; eager mode is compared with eager mode."
        )
    for other in results.get("other machines", ()):
        says.append(
            f"{name}, {other['pass']}, on a second {other['device']}: {other['faster']} times "
            "(only the ratio was kept of that run)."
        )
    return " ".join(says)


def _article_000(results: Results) -> str:
    us = [row["own us"] for row in results["rows"]]
    ratios = [
        min(row["PyTorch NCHW us"], row["PyTorch channels_last us"]) / row["own us"]
        for row in results["rows"]
    ]
    return (
        f"Article 000's four layers of {results['rows'][0]['input']}, scheduled by hand: "
        f"{min(us):.1f} to {max(us):.1f} us, {number(min(ratios))} to {number(max(ratios))} times "
        f"as fast as the better layout of {_peer(results)} (`benchmarks/article_000.py`)."
    )


def _article_003(results: Results) -> str:
    us = {row["version"]: row["us"] for row in results["rows"]}
    steps = ", ".join(f"{name} {number(time)}" for name, time in us.items() if name != "PyTorch")
    return (
        f"Article 003's schedules in microseconds, each a step further: {steps}; "
        f"PyTorch {results['environment']['torch']} takes {us['PyTorch']:.1f} "
        "(`benchmarks/article_003.py`)."
    )


def _space(results: Results) -> str:
    us = [time for time in results["microseconds"] if time]
    return (
        f"Article 003's search space: {len(us)} schedules, all measured, from {min(us):.2f} to "
        f"{max(us):.0f} us (`benchmarks/article_003_space.py`)."
    )


def _rate(results: Results) -> str:
    says = [f"{row['trials a minute']:.0f} with {row['workers']}" for row in results["rows"]]
    return (
        f"Tuning: candidates a minute, compiled, checked and timed, by workers (one GPU each): "
        f"{', '.join(says)} (`benchmarks/tuning_rate.py`)."
    )


def _fences(results: Results) -> str:
    without = results["without fences"]
    return (
        f"Races that only an idle GPU shows: {results['launches']} launches of "
        f"{results['with tiles']} kernels with tiles by TMA, {results['wrong']} wrong; of one "
        f"kernel without its fences {without['wrong']} of {without['launches']} "
        "(`benchmarks/repeat_cold.py`)."
    )


def _demo(results: Results) -> str:
    factors = [row["faster"] for row in results["layers"]]
    return (
        f"The demo's {len(factors)} layers, searched in {results['environment']['seconds']} s: "
        f"{number(results['geometric mean'])} times as fast as {' and '.join(results['peers'])} "
        f"({number(min(factors))} to {number(max(factors))}; `tilewright demo --target cuda`)."
    )


_SENTENCES: Mapping[str, Callable[[Results], str]] = {
    "article_000": _article_000, "article_003": _article_003, "article_003_space": _space,
    "demo": _demo, "first_call": _first, "fused_epilogues": _cost, "repeat_cold": _fences,
    "replknet": _limits, "tuning_rate": _rate, "untuned_shapes": _untuned,
}  # fmt: skip
#: Title, tables by benchmark, and benchmarks whose sentences follow the table.
_READERS: Sequence[tuple[str, Sequence[Rows], Sequence[str]]] = (
    ("Training and inference in PyTorch on a GPU (NVIDIA H200)",
     (("replknet", _model), ("models", _models), ("large_kernels", _large),
      ("gpu_depthwise", _depthwise), ("fused_epilogues", _fused), ("megengine_table", _stacks),
      ("gpu_dense", _dense), ("gpu_bytes", _bytes), ("bench", _products),
     ("networks", _gpu_networks), ("graph_networks", _onnx_networks),
      ("compiled_training", _compiled_training)),
     ("replknet", "fused_epilogues", "untuned_shapes", "first_call")),
    ("Deploying on CPUs and OpenCL devices",
     (("opencl_dense", _opencl), ("cpu_layers", _layers), ("networks", _cpu_networks),
      ("torch_overhead", _calls)),
     ()),
    ("Writing schedules", (("compile_latency", _latency),),
     ("article_000", "article_003", "article_003_space", "demo", "tuning_rate", "repeat_cold")),
)  # fmt: skip


# The README's claim


def claims(everything: Mapping[str, Results]) -> str:
    """What most will ask for, a line each."""
    found = []
    for stem, claim in _CLAIMS.items():
        found += [claim(r) for r in everything.values() if script(r).stem == stem]
    return "\n".join(_bullet(text) for text in found if text)


def _model_claim(results: Results) -> str:
    place, settings = results["environment"], results["settings"]
    elsewhere = {row["pass"]: row["faster"] for row in results.get("other machines", ())}
    says = [
        f"{row['pass']} {row['faster']:.1f} times"
        + (f" ({elsewhere[row['pass']]} on a second machine)" if row["pass"] in elsewhere else "")
        for row in results["best"]
        if "faster" in row
    ]
    return (
        f"{place['device']}, RepLKNet-{settings['model']} (batch {settings['batch']}, autocast to "
        f"{settings['dtype']}) after `optimize_`: {', '.join(says)} as fast as PyTorch "
        f"{place['torch']}."
    )


def _large_claim(results: Results) -> str:
    rows = [row for row in results["rows"] if row["dtype"] == "float16"]
    ratios = [row[_RATIO] for row in rows]
    return (
        f"{results['environment']['device']}, {len(rows)} depthwise convolutions and gradients "
        f"with filters of 7x7 to 31x31 in float16: {number(geometric_mean(ratios) or 0)} times as "
        f"fast as the better layout of {_peer(results)} (geometric mean; {number(min(ratios))} to "
        f"{number(max(ratios))})."
    )


def _depthwise_claim(results: Results) -> str:
    ratios = [row[_RATIO] for row in results["rows"]]
    return (
        f"{results['environment']['device']}, {len(ratios)} depthwise convolutions and gradients "
        f"with filters of 3x3 to 7x7: {number(geometric_mean(ratios) or 0)} times ("
        f"{number(min(ratios))} to {number(max(ratios))}), at "
        f"{grouped.mean(results['rows'], _FLOOR) or 0:.2f} times the least time that the device "
        "needs."
    )


def _layers_claim(results: Results) -> str:
    if any(
        x in results["environment"]["command"]
        for x in ("--large", "--dense", "--types", "--winograd")
    ):
        return ""
    place = results["environment"]
    says = [
        f"{number(grouped.mean(rows, _RATIO) or 0)} times with {threads}"
        for threads, rows in grouped.sections(results["rows"]).items()
    ]
    least = min(row[_RATIO] for row in results["rows"])
    return (
        f"{_processor(place['device'])}, 13 depthwise layers in float32: {' and '.join(says)} as "
        f"fast as the best of PyTorch {place['torch']} in either layout and ONNX Runtime "
        f"{place['onnxruntime']} (geometric mean; at least {number(least)})."
    )


def _networks_claim(results: Results) -> str:
    """By batch, of networks that were right; every network measured beside both is in it."""
    column, place = "torch.compile / ours", results["environment"]
    rows = [row for row in results["rows"] if column in row]
    if "NVIDIA" not in place["device"] or not rows:
        return ""
    says = []
    for what, found in _split(rows, lambda r: f"batch {r['batch']}").items():
        ratios = _ratios(found, column)
        says.append(
            f"{number(geometric_mean(ratios) or 0)} times at {what} ({number(min(ratios))} to "
            f"{number(max(ratios))})"
        )
    names = dict.fromkeys(row["model"] for row in rows)
    return (
        f"{place['device']}, {len(names)} networks from ONNX files in {rows[0]['dtype']} "
        f"({', '.join(names)}): {', '.join(says)} as fast as `torch.compile` of PyTorch "
        f"{place['torch']}, replayed as CUDA graphs."
    )


#: By benchmark.
_CLAIMS: Mapping[str, Callable[[Results], str]] = {
    "replknet": _model_claim, "large_kernels": _large_claim, "gpu_depthwise": _depthwise_claim,
    "graph_networks": _networks_claim, "cpu_layers": _layers_claim,
}  # fmt: skip


def readme_text(old: str, everything: Mapping[str, Results]) -> str:
    """The README with the claim of these results."""
    if not _CLAIM.search(old):
        raise ValueError("README.md has no place for the claim: <!-- benchmarks/page.py --> ...")
    return _CLAIM.sub(lambda m: m[1] + claims(everything) + m[2], old)


def main() -> None:
    everything = load()
    PAGE.write_text(page_text(everything))
    README.write_text(readme_text(README.read_text(), everything))


if __name__ == "__main__":
    main()
