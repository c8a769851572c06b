"""Sentences of docs/benchmarks.md and of the README, each of one benchmark's results."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Callable, Mapping, Sequence

import grouped
from page_rows import (
    FLOOR,
    RATIO,
    Results,
    Row,
    number,
    peer_of,
    processor_of,
    ratios_of,
    split_by,
)

from tilewright.report.results import geometric_mean


def bullet(text: str) -> str:
    return textwrap.fill(f"- {text}", 98, subsequent_indent="  ", break_on_hyphens=False)


def cost(results: Results) -> str:
    found = [row["fused / alone"] for row in results["rows"]]
    return (
        f"An epilogue in the same kernel takes {percent(geometric_mean(found) or 1)} more time "
        f"than the convolution alone (mean of {len(found)}, at most {percent(max(found))}; "
        "`benchmarks/fused_epilogues.py`)."
    )


def percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):.0f} %"


def untuned(results: Results) -> str:
    times = [row["chosen / fastest"] for row in results["rows"]]
    near, within = (100 * sum(x <= most for x in times) / len(times) for most in (1.1, 1.2))
    large = "--large" in results["environment"]["command"]
    return (
        f"Not tuned: for {len(times)} random layers and gradients with filters of "
        f"{'7 to 51 rows' if large else '3x3 to 7x7'}, the kernel that the ranking model chooses "
        f"without measuring takes at most 1.1 times as long as the fastest that a search found for "
        f"{near:.0f} % of them, at most 1.2 times for "
        f"{within:.0f} % "
        f"(`benchmarks/untuned_shapes.py{' --large' if large else ''}`)."
    )


def limits(results: Results) -> str:
    """What the ratios of a model leave out."""
    name = f"RepLKNet-{results['settings']['model']}"
    says = []
    late = {r["pass"] for r in results.get("left out", ()) if r["failed"].endswith("in time")}
    late = {what for what in late if not what.startswith("profile")}
    if late:
        says.append(
            f"{name}, {' and '.join(sorted(late))}: graphs of torch.compile were not ready in the "
            "time of the run, of either side; eager mode is compared with eager mode."
        )
    return " ".join(says)


def article_000(results: Results) -> str:
    us = [row["own us"] for row in results["rows"]]
    ratios = [
        min(row["PyTorch NCHW us"], row["PyTorch channels_last us"]) / row["own us"]
        for row in results["rows"]
    ]
    return (
        f"Article 000's four layers of {results['rows'][0]['input']}, scheduled by hand: "
        f"{min(us):.1f} to {max(us):.1f} us, {number(min(ratios))} to {number(max(ratios))} times "
        f"as fast as the better layout of {peer_of(results)} (`benchmarks/article_000.py`)."
    )


def article_003(results: Results) -> str:
    us = {row["version"]: row["us"] for row in results["rows"]}
    steps = ", ".join(f"{name} {number(time)}" for name, time in us.items() if name != "PyTorch")
    return (
        f"Article 003's schedules in microseconds, each a step further: {steps}; "
        f"PyTorch {results['environment']['torch']} takes {us['PyTorch']:.1f} "
        "(`benchmarks/article_003.py`)."
    )


def space(results: Results) -> str:
    us = [time for time in results["microseconds"] if time]
    return (
        f"Article 003's search space: {len(us)} schedules, all measured, from {min(us):.2f} to "
        f"{max(us):.0f} us (`benchmarks/article_003_space.py`)."
    )


def rate(results: Results) -> str:
    says = [f"{row['trials a minute']:.0f} with {row['workers']}" for row in results["rows"]]
    return (
        f"Tuning: candidates a minute, compiled, checked and timed, by workers (one GPU each): "
        f"{', '.join(says)} (`benchmarks/tuning_rate.py`)."
    )


def fences(results: Results) -> str:
    without = results["without fences"]
    return (
        f"Races that only an idle GPU shows: {results['launches']} launches of "
        f"{results['with tiles']} kernels with tiles by TMA, {results['wrong']} wrong; of one "
        f"kernel without its fences {without['wrong']} of {without['launches']} "
        "(`benchmarks/repeat_cold.py`)."
    )


def demo(results: Results) -> str:
    factors = [row["faster"] for row in results["layers"]]
    return (
        f"The demo's {len(factors)} layers, searched in {results['environment']['seconds']} s: "
        f"{number(results['geometric mean'])} times as fast as {' and '.join(results['peers'])} "
        f"({number(min(factors))} to {number(max(factors))}; `tilewright demo --target cuda`)."
    )


def first(results: Results) -> str:
    times = sorted(row["first call"] for row in results["rows"])
    ninth = statistics.quantiles(times, n=10, method="inclusive")[-1]
    return (
        f"The first eager call of a shape that nobody tuned took {statistics.median(times):.2f} s "
        f"in the median of {len(times)} depthwise layers of all passes, {ninth:.2f} s at the 90th "
        "percentile (`benchmarks/first_call.py --shapes`)."
    )


def model_claim(results: Results) -> str:
    place, settings = results["environment"], results["settings"]
    others = results.get("other machines", ())
    says = []
    for row in results["best"]:
        if "faster" not in row:
            continue
        found = [row["faster"], *(r["faster"] for r in others if r["pass"] == row["pass"])]
        ratios = " to ".join(dict.fromkeys(number(f(found)) for f in (min, max)))
        machines = f" on {len(found)} machines" if len(found) > 1 else ""
        says.append(f"{row['pass']} {ratios} times{machines}{_of_the_gpu(results, row)}")
    return (
        f"{place['device']}, RepLKNet-{settings['model']} (batch {settings['batch']}, autocast to "
        f"{settings['dtype']}) after `optimize_`: {', '.join(says)} as fast as PyTorch "
        f"{place['torch']}."
    )


def _of_the_gpu(results: Results, row: Row) -> str:
    """The same ratio by the time of the GPU's kernels, which no host is in; of eager training,
    which the host may bind."""
    sums = {
        r["variant"]: r["sum ms"] for r in results.get("profile", ()) if r["pass"] == row["pass"]
    }
    ours, theirs = (
        [ms for name, ms in sums.items() if name.startswith(who)]
        for who in ("tilewright eager", "PyTorch eager")
    )
    if row["pass"] != "training" or not ours or not theirs:
        return ""
    return f" ({number(min(theirs) / min(ours))} times by the GPU's time alone, without the host)"


def large_claim(results: Results) -> str:
    rows = [row for row in results["rows"] if row["dtype"] == "float16"]
    ratios = [row[RATIO] for row in rows]
    return (
        f"{results['environment']['device']}, {len(rows)} depthwise convolutions and gradients "
        f"with filters of 7x7 to 31x31 in float16: {number(geometric_mean(ratios) or 0)} times as "
        f"fast as the better layout of {peer_of(results)} (geometric mean; "
        f"{number(min(ratios))} to {number(max(ratios))})."
    )


def depthwise_claim(results: Results) -> str:
    ratios = [row[RATIO] for row in results["rows"]]
    return (
        f"{results['environment']['device']}, {len(ratios)} depthwise convolutions and gradients "
        f"with filters of 3x3 to 7x7: {number(geometric_mean(ratios) or 0)} times ("
        f"{number(min(ratios))} to {number(max(ratios))}), at "
        f"{grouped.mean(results['rows'], FLOOR) or 0:.2f} times the least time that the device "
        "needs."
    )


#: Options of cpu_layers.py that choose other layers than the depthwise ones, or other types.
_OTHER_LAYERS = ("--large", "--dense", "--kind", "--types", "--winograd")


def layers_claim(results: Results) -> str:
    if any(option in results["environment"]["command"] for option in _OTHER_LAYERS):
        return ""
    place = results["environment"]
    says = [
        f"{number(grouped.mean(rows, RATIO) or 0)} times with {threads}"
        for threads, rows in grouped.sections(results["rows"]).items()
    ]
    count = max(map(len, grouped.sections(results["rows"]).values()))
    least = min(row[RATIO] for row in results["rows"])
    return (
        f"{processor_of(place['device'])}, {count} depthwise layers in float32: "
        f"{' and '.join(says)} as fast as the best of PyTorch {place['torch']} in either layout "
        f"and ONNX Runtime {place['onnxruntime']} (geometric mean; at least {number(least)})."
    )


def networks_claim(results: Results) -> str:
    """By batch, of networks that were right; every network measured beside both is in it."""
    column, place = "torch.compile / ours", results["environment"]
    rows = [row for row in results["rows"] if column in row]
    if "NVIDIA" not in place["device"] or not rows:
        return ""
    says = []
    for what, found in split_by(rows, lambda r: f"batch {r['batch']}").items():
        ratios = [r for r in ratios_of(found, column) if r is not None]
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


def compiled_claim(results: Results) -> str:
    """Networks that `torch.compile` was given with the backend, in inference."""
    rows = [row for row in results["rows"] if {"regions", "faster"} <= row.keys()]
    called = "calls by the clock, " if rows and "mode" in rows[0] else ""
    what = f"{len(rows)} networks of timm, {called}inference"
    return "" if not rows else _compiled(results, rows, what)


def training_claim(results: Results) -> str:
    """Training steps of networks that `torch.compile` was given with the backend."""
    rows = [row for row in results["rows"] if "faster" in row]
    return _compiled(results, rows, f"training steps of {', '.join(r['model'] for r in rows)}")


def _compiled(results: Results, rows: Sequence[Row], what: str) -> str:
    place, says = results["environment"], []
    beside = {
        "faster": f"PyTorch {place['torch']}",
        "than compiled": "its own compiler",
        "than graphs": "its own compiler with CUDA graphs",
    }
    for column, peer in beside.items():
        found = [row[column] for row in rows if column in row]
        if found:
            says.append(f"{_busy(rows, column) or _times(found)} as fast as {peer}")
    replayed = any("mode" in row or "Tilewright graphs MiB" in row for row in rows)
    mode = ', mode="reduce-overhead"' if replayed else ""
    return (
        f"{place['device']}, {what}, float16, batch {rows[0]['batch']}, by "
        f'`torch.compile(model, backend="tilewright"{mode})`: {", ".join(says)}.'
    )


def _times(ratios: Sequence[float]) -> str:
    spread = f" ({number(min(ratios))} to {number(max(ratios))})" if len(ratios) > 1 else ""
    return f"{number(geometric_mean(ratios) or 0)} times{spread}"


def _busy(rows: Sequence[Row], column: str) -> str:
    """By the time that the GPU computes, which unlike the clock's is no other on a host in use."""
    peer = {"faster": "PyTorch GPU ms", "than compiled": "torch.compile GPU ms"}.get(column, "")
    found = [row[peer] / row["Tilewright GPU ms"] for row in rows if peer in row]
    return f"by the GPU's time alone {_times(found)}" if found else ""


#: Sentences of the page, and of the README, by benchmark.
SENTENCES: Mapping[str, Callable[[Results], str]] = {
    "article_000": article_000, "article_003": article_003, "article_003_space": space,
    "demo": demo, "first_call": first, "fused_epilogues": cost, "repeat_cold": fences,
    "replknet": limits, "tuning_rate": rate, "untuned_shapes": untuned,
}  # fmt: skip
CLAIMS: Mapping[str, Callable[[Results], str]] = {
    "networks": compiled_claim, "compiled_training": training_claim,
    "graph_networks": networks_claim, "replknet": model_claim, "large_kernels": large_claim,
    "gpu_depthwise": depthwise_claim, "cpu_layers": layers_claim,
}  # fmt: skip
