"""The page of benchmarks and the README's claim, made from the results that are committed.

Every ``results/*.json`` becomes a section of ``docs/benchmarks.md``, under the title and with the
explanation that its benchmark's docstring gives. What they say in short stands before them, and
what most will ask for in the README.

    python benchmarks/page.py
"""

from __future__ import annotations

import ast
import json
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import grouped
import measure

from tilewright.report.results import environment as surroundings

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent / "docs/benchmarks.md"
README = FOLDER.parent / "README.md"

_HEAD = """# Benchmarks

This page is made by `python benchmarks/page.py` from the files in `benchmarks/results`, which the
benchmarks wrote where they ran. A section's command measures it anew; compare the ratios, which
come from one run, and not the times of one machine with those of another. Times are medians.
"""

#: Where the README holds the claim.
_CLAIM = re.compile(r"(<!-- benchmarks/page.py -->\n).*?(\n<!-- end -->)", re.DOTALL)

#: What :func:`surroundings` reads of a file.
_AROUND = ("environment", "device", "date", "command", "versions")
_NAMES = {"python": "Python", "numpy": "NumPy", "torch": "PyTorch", "onnxruntime": "ONNX Runtime"}

Results = Mapping[str, Any]


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
    """The file whose docstring explains them, by the command that wrote them."""
    words = results["environment"]["command"].split()
    if words[0] == "tilewright":
        return FOLDER.parent / f"src/tilewright/cli/{words[1]}.py"
    return FOLDER.parent / words[1]


def page_text(everything: Mapping[str, Results]) -> str:
    """The whole page."""
    short = claims(everything)
    head = [_HEAD, *([f"## In short\n\n{short}\n"] if short else [])]
    return "\n".join([*head, *(section(results) for results in everything.values())])


def section(results: Results) -> str:
    """One benchmark: what it measures, where it was measured, and its tables."""
    title, explanation = describe(script(results))
    parts = [f"## {title} ({results['environment']['device']})", explanation]
    parts.append(measure.table([*environment(results["environment"]), *limits(results)]))
    for name, value in results.items():
        rows = flat(value if isinstance(value, list) else [value])
        if grouped.has_sections(value):
            parts.append(grouped.text(value))
            continue
        if name in ("environment", "rate_GFLOPps") or not rows:
            continue
        if name == "rows" and "shares" in results:  # of which kinds of problems are the page's
            continue
        if name != "rows":
            parts.append(f"**{name}**")
        parts.append(measure.table(rows if len(rows) > 1 else by_name(rows[0])))
    return "\n\n".join(parts) + "\n"


def flat(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Rows of numbers and texts only: ``{"us": {"a": 1}}`` is a column "a us".

    Columns without anything in them, and lists, are left out, and so is what is no row.
    """
    made: list[dict[str, Any]] = []
    for row in rows:
        if isinstance(row, Mapping):
            made.append({})
            for name, value in row.items():
                inner = value if isinstance(value, Mapping) else {"": value}
                made[-1].update({f"{k} {name}".strip(): v for k, v in inner.items()})
    shown = (str, int, float)
    keep = {k for row in made for k, v in row.items() if isinstance(v, shown) and v != ""}
    return [{k: v for k, v in row.items() if k in keep} for row in made]


def by_name(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row as a table with a line for each of its columns."""
    return [{"": name, "value": value} for name, value in row.items()]


def describe(benchmark: Path) -> tuple[str, str]:
    """A title, which is what its docstring's first line says before a colon or comma, and the rest.

    The rest is the first two paragraphs, without commands.
    """
    text = ast.get_docstring(ast.parse(benchmark.read_text())) or benchmark.stem
    paragraphs = text.split("\n\n")
    kept = [p for p in paragraphs if not p.startswith(("  ", "python "))]
    title = re.split(r"[:,.]", paragraphs[0])[0]
    return title, "\n\n".join(kept[:2])


def environment(found: Mapping[str, str]) -> list[dict[str, str]]:
    """What a result depends on, in rows."""
    named = ("device", "date", "command", "machine", "system", "target", "seconds", "cudnn")
    versions = [f"{_NAMES.get(k, k)} {v}" for k, v in found.items() if k not in named]
    if "cudnn" in found:
        versions.append(f"cuDNN {cudnn_version(found['cudnn'])}")
    command = re.sub(r" --(out|html|json) \S+", "", found["command"])
    return [
        {"measured": "on", "": found["device"]},
        {"measured": "at", "": found["date"]},
        {"measured": "by", "": f"`{command}`"},
        {"measured": "with", "": ", ".join(versions)},
    ]


def limits(results: Results) -> list[dict[str, str]]:
    """What the machine did at best in the same run, in rows."""
    found = []
    if results.get("bandwidth_GBps"):
        found.append(f"copies {results['bandwidth_GBps']:,.0f} GB/s")
    for dtype, rate in (results.get("rate_GFLOPps") or {}).items():
        found.append(f"{rate:,.0f} GFLOP/s in {dtype}")
    return [{"measured": "beside", "": ", ".join(found)}] if found else []


def cudnn_version(number: str) -> str:
    """91900 is 9.19.0."""
    value = int(number)
    return f"{value // 10000}.{value // 100 % 100}.{value % 100}"


def claims(everything: Mapping[str, Results], first: Sequence[str] = ()) -> str:
    """What results say in short, a line for each device; of some benchmarks, in their order, or of
    all."""
    joined = [(script(results).stem, results) for results in _joined(everything.values())]
    wanted = [pair for stem in first for pair in joined if pair[0] == stem] if first else joined
    found = []
    for stem, results in wanted:
        if stem in _CLAIMS:
            text = f"- {_CLAIMS[stem](results)}"
            found += textwrap.wrap(text, 98, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(found)


def _joined(everything: Iterable[Results]) -> list[Results]:
    """The results with those of each benchmark in :data:`_PARTS` as one: runs of parts of its
    problems, of which the latest counts, of what it has."""
    found: list[Results] = []
    parts: dict[str, list[Results]] = {}
    for results in everything:
        stem = script(results).stem
        (parts.setdefault(stem, []) if stem in _PARTS else found).append(results)
    for stem, runs in parts.items():
        if len(runs) == 1:
            found += runs
            continue
        rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        for results in sorted(runs, key=lambda part: str(part["environment"]["date"])):
            for row in results["rows"]:
                known = rows.setdefault(tuple(row[key] for key in _PARTS[stem]), {})
                known.update((name, value) for name, value in row.items() if value is not None)
        found.append({**runs[0], "rows": list(rows.values())})
    return found


def _gpu_claim(results: Results) -> str:
    rows, place = results["rows"], results["environment"]
    same = [row["PyTorch NCHW us"] / row["own us"] for row in rows]
    better = [
        min(row["PyTorch NCHW us"], row["PyTorch channels_last us"]) / row["own us"] for row in rows
    ]
    fused = results["fused"]["fused / alone (own)"]
    return (
        f"{place['device']}: depthwise convolutions of {rows[0]['input']} (NCHW, float32, 3x3 and "
        f"5x5, one and two filters a channel) run {_span(same)} times as fast as in PyTorch "
        f"{place['torch']} in NCHW, {_span(better)} times as fast as in the better of NCHW and "
        f"channels_last; scale, shift and ReLU fused into one take {100 * (fused - 1):.0f}% longer."
    )


def _cpu_claim(results: Results) -> str:
    place = results["environment"]
    means = [float(mean) for mean in results["geometric mean"].values()]
    threads = " and ".join(results["geometric mean"])
    best = max(row["best peer / tilewright"] for row in results["rows"])
    return (
        f"{place['device']}, {threads} threads: seven depthwise layers run {_span(means)} times as "
        f"fast as in the better of PyTorch {place['torch']} and ONNX Runtime "
        f"{place['onnxruntime']} (geometric mean), at best {best:.1f} times."
    )


def _layers_claim(results: Results) -> str:
    place, column = results["environment"], "best peer / tilewright"
    groups = grouped.sections(results["rows"])
    says = [
        f"{grouped.mean(rows, column):.1f} times as fast with {threads}"
        for threads, rows in groups.items()
    ]
    means = " and ".join(says) if len(says) < 3 else ", ".join(says)
    least = min(row[column] for row in results["rows"])
    (layers,) = {len(rows) for rows in groups.values()}
    filters = {row["kernel"] for row in results["rows"]}
    typed = any("," in section for section in groups)
    of = f" with filters of {filters.pop()}" if typed and len(filters) == 1 else ""
    return (
        f"{place['device']}: {layers} depthwise layers{of} run {means} as in the best of PyTorch "
        f"{place['torch']} in NCHW and channels_last and of ONNX Runtime {place['onnxruntime']} "
        f"(geometric mean, our better layout; at least {least:.2f} times)."
    )


def _demo_claim(results: Results) -> str:
    place, factors = results["environment"], [row["faster"] for row in results["layers"]]
    return (
        f"{place['device']}: the layers of MobileNetV2, ConvNeXt-T and RepLKNet-31B in `tilewright "
        f"demo` run {results['geometric mean']:.1f} times as fast as in "
        f"{' and '.join(results['peers'])} (geometric mean; {_span(factors)})."
    )


def _sections_claim(results: Results) -> str:
    place, rows = results["environment"], results["rows"]
    column = "best peer / tilewright"
    passes = {
        p: [r for r in rows if r["pass"] == p] for p in dict.fromkeys(r["pass"] for r in rows)
    }
    by_pass = ", ".join(f"{p} {grouped.mean(found, column):.1f}" for p, found in passes.items())
    torch = f" {place['torch']}" if "torch" in place else ""
    return (
        f"{place['device']}: {len(rows)} depthwise convolutions and gradients run "
        f"{grouped.mean(rows, column):.1f} times as fast as in the better layout of PyTorch{torch} "
        f"(geometric mean; {by_pass}), at {grouped.mean(rows, 'tilewright / floor'):.2f} times the "
        "least time that the device needs."
    )


def _fused_claim(results: Results) -> str:
    place, cost, faster = results["environment"], "fused / alone", "best peer / tilewright"
    beside = any(row.get(faster) for row in results["rows"])
    columns = (cost, faster) if beside else (cost,)
    says = []
    for section, rows in grouped.sections(results["rows"]).items():
        means = [f"{grouped.mean(rows, c):.{3 if c == cost else 1}f}" for c in columns]
        says.append(f"{section}: {' and '.join(means)}")
    peer = (
        f", and how many times as fast as torch.compile of PyTorch {place['torch']} in its better "
        "layout"
    )
    return (
        f"{place['device']}: depthwise layers of MobileNetV2 with what follows them in one kernel, "
        f"the time over that of the convolution alone{peer if beside else ''} (geometric means): "
        f"{'; '.join(says)}."
    )


def _large_claim(results: Results) -> str:
    place, column = results["environment"], "best peer / tilewright"

    def means(batch: str) -> str:
        found = []
        for pass_ in ("forward", "dgrad", "wgrad"):
            rows = [
                r for r in results["rows"]
                if r["pass"] == pass_ and r["shape"].startswith(batch) and r["dtype"] == "float16"
            ]  # fmt: skip
            found += [f"{pass_} {grouped.mean(rows, column):.0f}"] if rows else []
        return ", ".join(found)

    says = [f"{means(batch)} times at batch {batch[:-1]}" for batch in ("64x", "1x")]
    kernels = sorted({row["kernel"] for row in results["rows"]})
    filters = " to ".join(f"{k}x{k}" for k in dict.fromkeys((kernels[0], kernels[-1])))
    least = min(row[column] for row in results["rows"])
    return (
        f"{place['device']}: {len(results['rows'])} depthwise convolutions and gradients with "
        f"filters of {filters} run at least {least:.1f} times as fast as in the better layout of "
        f"PyTorch {place['torch']}; in float16 (geometric means) {', '.join(says)}."
    )


def _model_claim(results: Results) -> str:
    place, settings = results["environment"], results["settings"]
    says = [
        f"{row['pass']} {row['faster']:.1f} times as fast"
        for row in results["best"]
        if "faster" in row
    ]
    return (
        f"{place['device']}: RepLKNet-{settings['model']} (batch {settings['batch']}, autocast to "
        f"{settings['dtype']}) beside the best of PyTorch {place['torch']}, eager and compiled, in "
        f"both layouts: {', '.join(says)}."
    )


def _stacks_claim(results: Results) -> str:
    place, column = results["environment"], "best peer / tilewright"
    groups: dict[str, list[Any]] = {}
    for section, rows in grouped.sections(results["rows"]).items():
        _, dtype, passes = section.split(", ")
        groups.setdefault(f"{passes} in {dtype}", []).extend(rows)
    says = [f"{kind} {grouped.mean(rows, column):.1f}" for kind, rows in groups.items()]
    return (
        f"{place['device']}: MegEngine's table, stacks of {results['layers']} depthwise layers, "
        f"beside the better layout of PyTorch {place['torch']}: {', '.join(says)} times as "
        "fast (geometric means)."
    )


def _untuned_claim(results: Results) -> str:
    place, every = results["environment"], results["shares"][0]
    large = "--large" in place["command"]
    within = 1.1 if large else 1.2
    return (
        f"{place['device']}: for {every['problems']} random depthwise layers and gradients that "
        f"nobody tuned, {'with filters of 7 to 51 rows' if large else 'with filters of 3x3 to 7x7'}"
        f", what is chosen without measuring takes at most {within} times as long as the fastest "
        f"of a search for {100 * every[f'share within {within}']:.0f}%."
    )


def _span(values: Sequence[float]) -> str:
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return low if low == high else f"{low} to {high}"


#: By benchmark, what a row is known by.
_PARTS = {
    "fused_epilogues": ("section", "shape", "kernel", "stride", "layout"),
    "gpu_depthwise": (
        "section", "pass", "shape", "kernel", "stride", "multiplier", "dtype", "layout"
    ),
    "large_kernels": ("section", "pass", "shape", "kernel"),
}  # fmt: skip
#: By benchmark.
_CLAIMS = {
    "article_000": _gpu_claim,
    "cpu_depthwise": _cpu_claim,
    "cpu_layers": _layers_claim,
    "demo": _demo_claim,
    "fused_epilogues": _fused_claim,
    "gpu_depthwise": _sections_claim,
    "large_kernels": _large_claim,
    "megengine_table": _stacks_claim,
    "replknet": _model_claim,
    "untuned_shapes": _untuned_claim,
}
#: Those whose claims the README has.
_FIRST = ("gpu_depthwise", "large_kernels", "replknet", "cpu_layers")


def readme_text(old: str, everything: Mapping[str, Results]) -> str:
    """The README with the claim of these results."""
    if not _CLAIM.search(old):
        raise ValueError("README.md has no place for the claim: <!-- benchmarks/page.py --> ...")
    return _CLAIM.sub(lambda m: m[1] + claims(everything, _FIRST) + m[2], old)


def main() -> None:
    everything = load()
    PAGE.write_text(page_text(everything))
    README.write_text(readme_text(README.read_text(), everything))


if __name__ == "__main__":
    main()
