"""Write docs/benchmarks.md, docs/results.md and the README's figures from the committed results.

    python benchmarks/page.py

The first page has one table for each kind of reader, the second lists the files that its figures
come from. Every figure is read from ``results/*.json``, one file a claim, as the benchmarks wrote
it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import measure
import page_rows as rows
from page_rows import Results, Rows
from page_sentences import CLAIMS, SENTENCES, bullet

from tilewright.report.results import environment as surroundings

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent / "docs/benchmarks.md"
SOURCES = FOLDER.parent / "docs/results.md"
README = FOLDER.parent / "README.md"

_HEAD = """# Benchmarks

Depthwise convolutions and their gradients run faster than in PyTorch with cuDNN or oneDNN and in
ONNX Runtime. The gain grows with the filter; where memory bounds both, it is least, or a loss.

## Method

- A figure is a ratio: the time of the fastest peer in its faster layout (NCHW or channels_last)
  over ours, for the same problem in the same process. 2.0 is twice as fast, 0.9 is slower.
- Candidates and peers take turns; a time is the median over the rounds. Kernels on a GPU are
  replayed from CUDA graphs, so the host's time is left out; models and calls are timed on the host.
- "Mean" is the geometric mean over the problems, "least" is the worst of them.
- Kernels are checked against float64, models against PyTorch's own output; what fails is left out.
- Kernels come from the shipped records or from a search in that run, except under "not tuned".
- A command is a file of `benchmarks`; [results](results.md) has its arguments and date. Most runs
  were made once, on one machine: compare ratios, and expect a few percent either way on a busy CPU.
"""

_SOURCES_HEAD = """# Results

The files of `benchmarks/results` that the figures of [benchmarks](benchmarks.md), of the README and
of other pages come from: where, when, with what and by which command each was measured.
"""

#: Where the README holds the claim.
_CLAIM = re.compile(r"(<!-- benchmarks/page.py -->\n).*?(\n<!-- end -->)", re.DOTALL)
#: What :func:`surroundings` reads of a file.
_AROUND = ("environment", "device", "date", "command", "versions")
_NAMES = {"python": "Python", "numpy": "NumPy", "torch": "PyTorch", "onnxruntime": "ONNX Runtime"}


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
    words = str(results["environment"]["command"]).split()
    if words[0] == "tilewright":
        return FOLDER.parent / f"src/tilewright/cli/{words[1]}.py"
    return FOLDER.parent / words[1]


def joined(everything: Mapping[str, Results]) -> dict[str, Results]:
    """The results, those of a file whose name ends in ``_b``, which holds other problems by the
    same benchmark on the same kind of device, behind those of the file without."""
    made = dict[str, Results]()
    for name, results in everything.items():
        begin = made.get(name.removesuffix("_b"))
        if begin is None or name in made:
            made[name] = results
        else:
            rows = [*begin["rows"], *results["rows"]]
            made[name.removesuffix("_b")] = {**begin, "rows": rows}
    return made


def page_text(everything: Mapping[str, Results]) -> str:
    """The whole page; a table or a sentence whose file is missing is left out."""
    parts, everything = [_HEAD], joined(everything)
    for title, tables, sentences in _READERS:
        rows = [row for make in tables for row in _lines(everything, make)]
        text = _sentences(everything, sentences)
        if rows or text:
            parts += [f"## {title}", *([measure.table(rows)] if rows else []), text]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def sources_text(everything: Mapping[str, Results]) -> str:
    """The page that says where each file of results is from."""
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
    return f"{_SOURCES_HEAD}\n{measure.table(rows)}\n"


def cudnn_version(number: str) -> str:
    """91900 is 9.19.0."""
    value = int(number)
    return f"{value // 10000}.{value // 100 % 100}.{value % 100}"


def _lines(everything: Mapping[str, Results], make: Rows) -> Iterator[dict[str, str]]:
    """The rows that a function makes of the files of its benchmark: of those of the same problems
    beside the same peer, that which was measured last."""
    stem, rows = make
    found = dict[object, tuple[str, dict[str, str]]]()
    for results in everything.values():
        if script(results).stem == stem:
            date = results["environment"]["date"]
            for row in rows(results):
                key = (row["what"], row["beside"]) if "what" in row else len(found)
                if key not in found or found[key][0] <= date:
                    found[key] = date, row
    yield from (row for _, row in found.values())


def _sentences(everything: Mapping[str, Results], stems: Sequence[str]) -> str:
    wanted = [(script(results).stem, results) for results in everything.values()]
    says = [SENTENCES[s](r) for stem in stems for s, r in wanted if s == stem]
    return "\n".join(bullet(text) for text in says if text)


#: Title, tables by benchmark, and benchmarks whose sentences follow the table.
_READERS: Sequence[tuple[str, Sequence[Rows], Sequence[str]]] = (
    ("Training and inference in PyTorch on a GPU (NVIDIA H200)",
     (("replknet", rows.model), ("models", rows.models), ("large_kernels", rows.large),
      ("gpu_depthwise", rows.depthwise), ("fused_epilogues", rows.fused),
      ("megengine_table", rows.stacks),
      ("gpu_dense", rows.dense), ("untuned_dense", rows.untuned_dense),
      ("dense_epilogues", rows.dense_epilogues), ("gpu_bytes", rows.of_bytes),
      ("bench", rows.products), ("attention", rows.attention),
      ("networks", rows.gpu_networks), ("graph_networks", rows.onnx_networks),
      ("compiled_training", rows.compiled_training)),
     ("replknet", "fused_epilogues", "untuned_shapes", "first_call")),
    ("Deploying on CPUs and OpenCL devices",
     (("opencl_dense", rows.opencl), ("opencl_networks", rows.opencl_networks),
      ("cpu_layers", rows.layers), ("cpu_types", rows.types),
      ("networks", rows.cpu_networks), ("torch_overhead", rows.calls)),
     ()),
    ("Writing schedules", (("compile_latency", rows.latency),),
     ("article_000", "article_003", "article_003_space", "demo", "tuning_rate", "repeat_cold")),
)  # fmt: skip


def claims(everything: Mapping[str, Results]) -> str:
    """What most will ask for, a line each."""
    found = []
    for stem, claim in CLAIMS.items():
        found += [claim(r) for r in joined(everything).values() if script(r).stem == stem]
    return "\n".join(bullet(text) for text in found if text)


def readme_text(old: str, everything: Mapping[str, Results]) -> str:
    """The README with the claim of these results."""
    if not _CLAIM.search(old):
        raise ValueError("README.md has no place for the claim: <!-- benchmarks/page.py --> ...")
    return _CLAIM.sub(lambda m: m[1] + claims(everything) + m[2], old)


def main() -> None:
    everything = load()
    PAGE.write_text(page_text(everything))
    SOURCES.write_text(sources_text(everything))
    README.write_text(readme_text(README.read_text(), everything))


if __name__ == "__main__":
    main()
