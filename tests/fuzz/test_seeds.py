"""Programs that found what was once wrong, and a slice of ``python -m tests.fuzz``.

Each seed found its kind of defect in version 07c6067, with the generators as they were when it was
noted; a change to these makes other programs of the seeds, which have to be right as well. What
they showed when they were minimised stands as tests in ``tests/correctness`` and ``tests/errors``.
"""

from __future__ import annotations

import os

import pytest
from tests.support.workers import Workers

#: By what was wrong: the targets, with the stages that programs are drawn from, and the seeds.
FOUND: dict[str, dict[str, tuple[int, ...]]] = {
    "extents over 2^31 wrapped in fuse and split": {"lowered": (1, 2, 20, 29, 94)},
    "symbolic extents were taken as at least 1": {"llvm/symbolic_index": (0, 3, 7)},
    "scratch memory of symbolic extents of zero was negative": {"llvm/symbolic_index": (234, 282)},
    "casts of what is the same for all lanes had no lanes": {"llvm/spread": (84, 105, 207)},
    "a guard stood behind the condition that it guards": {"llvm/masked_reduction": (13, 28, 38)},
    "one thread read what another had in registers": {"registers": (3, 5, 9)},
    "a stage needed as much as a loop's variable says": {"llvm/mirrored": (35,)},
    "an index was rewritten under the condition of a select": {"llvm/chosen": (48, 66, 158)},
    "time grew exponentially with shared subexpressions": {"llvm/deep": (8, 11)},
    "integer division ended the process": {"llvm/machine_integers": (1, 3, 4)},
    "proofs took integers for unbounded": {"llvm/data_index": (6, 8, 9, 12)},
    "a dependent extent named an axis out of its scope": {"llvm/dependent_reduction": (30, 39)},
    "copies read at indices from memory had no bounds": {"llvm/data_index": (58,)},
    "an axis took the type of an index that a tile is read at": {"llvm": (3008690, 3021222)},
    "a loop of a negative extent was not taken for empty": {"lowered": (668, 825, 1173)},
    "a constant was computed beyond the type that it has": {"llvm": (5012781,)},
    "a guard on data of eight bits was not known": {"llvm": (5010280,)},
    "a guard of what is defined under it alone was dropped": {"llvm": (5010944,)},
    "a tile hid that a declaration reads beyond": {"llvm": (1007145, 5000072, 5001124, 5003930)},
    "a loop of another stage was taken to run": {"llvm": (5002077,)},
    "one condition chose between vectors in sim": {"sim/chosen": (471, 508, 741)},
    "LLVM lost numbers beside NaN on AVX-512": {"llvm": (1002206,)},
    "loops of millions of steps ran on sim": {"sim-windows": (94000149,)},
    "memory that an empty sum does not use was as large as nobody said": {
        "llvm-windows": (37301629,)
    },
    "threads of a CPU had one memory of scope shared": {"llvm-windows": (38000403,)},
    "minima of minima were too many alternatives for a proof": {
        "llvm-windows": (37002786, 37004078, 37302172)
    },
    "a proof asked who wrote what a mask leaves out": {"llvm-windows": (38000657,)},
    "a cast that wraps around was unknown to a proof": {"sim-windows": (36201062,)},
    "no thread stored an empty sum": {"sim-windows": (36202710,)},
    "sim asked who wrote what a select does not choose": {"sim-windows": (36102310,)},
    "products were other numbers in a read than in a write": {"sim": (9000049, 6004056)},
    "remainders by an extent were unknown behind a guard": {"sim": (6017824,)},
    "what is declared of bfloat16 was not rounded": {"sim": (6004831,)},
    "offsets wrapped in the type of an index in sim": {"sim": (4007630,)},
    "threads shared a stage in a loop that some leave early": {"sim": (4002542,)},
    "a tile was placed by numbers that wrap around": {"sim": (11102924,), "llvm": (11001040,)},
    "a square was taken for negative": {"sim": (11103313,)},
    "a tile of a tile was left out where it is read": {"sim": (11112410,)},
    "threads shared a reduction of elements of their own": {"sim": (11115369,)},
    "a loop was trimmed by thread around a tile that they share": {"sim": (6018511,)},
}
FOUND_ON_OPENCL: dict[str, dict[str, tuple[int, ...]]] = {
    "minima and maxima of two C types were ambiguous": {"opencl/machine_integers": (3, 39, 74)},
    "float16 could not be prefetched": {"opencl": (7000010, 7000069)},
    "the size of the least integer was a positive number": {"opencl": (11200723,)},
    "PoCL unrolled a loop with ten barriers": {"opencl": (7002977, 13300077)},
    "threads left a part between barriers in PoCL by two ways": {"opencl": (13300247, 13300814)},
    "LLVM lost what one iteration of a loop stores": {"opencl": (13300807,)},
    "PoCL took threads for independent that have one private array": {
        "opencl-windows": (4002210, 4002428, 4002749)
    },
}
#: The first seeds of each target.
SLICE = {"llvm": 40, "sim": 60, "lowered": 120, "llvm-windows": 30, "sim-windows": 20,
         "problems-llvm": 40, "problems-sim": 40}  # fmt: skip
OPENCL = {"opencl": 6, "problems-opencl": 6}
#: Of ONNX files, by what went wrong with them.
FOUND_IN_FILES: dict[str, tuple[int, ...]] = {
    "constants of more than 32 dimensions ended in an error of NumPy's": (7027083,),
}
#: Mutants of ONNX files.
ONNX = {"onnx": 30}


def bad(target: str, seeds: tuple[int, ...] | range) -> list[str]:
    """What is wrong with programs."""
    workers = Workers(target, min(2, os.cpu_count() or 1), limit=60)
    found = list(workers.run(seeds))
    workers.close()
    return [f"{r.kind}: --target {target} --show {r.task}\n{r.detail}\n{r.text}" for r in found
            if not r.good]  # fmt: skip


@pytest.mark.parametrize("what", FOUND)
def test_seeds_that_found_a_defect_find_none(what: str) -> None:
    for target, seeds in FOUND[what].items():
        wrong = bad(target, seeds)
        assert not wrong, wrong[0]


@pytest.mark.needs_opencl
@pytest.mark.parametrize("what", FOUND_ON_OPENCL)
def test_seeds_that_found_a_defect_find_none_on_opencl(what: str) -> None:
    for target, seeds in FOUND_ON_OPENCL[what].items():
        wrong = bad(target, seeds)
        assert not wrong, wrong[0]


@pytest.mark.needs_onnx
@pytest.mark.needs_onnxruntime
@pytest.mark.parametrize("what", FOUND_IN_FILES)
def test_seeds_of_onnx_files_that_found_a_defect_find_none(what: str) -> None:
    wrong = bad("onnx", FOUND_IN_FILES[what])
    assert not wrong, wrong[0]


@pytest.mark.parametrize("target", SLICE)
def test_the_first_seeds_are_right(target: str) -> None:
    wrong = bad(target, range(SLICE[target]))
    assert not wrong, wrong[0]


@pytest.mark.needs_opencl
def test_the_first_seeds_are_right_on_opencl() -> None:
    for target, count in OPENCL.items():
        wrong = bad(target, range(count))
        assert not wrong, wrong[0]


@pytest.mark.needs_onnx
@pytest.mark.needs_onnxruntime
def test_the_first_mutants_of_onnx_files_run_or_are_refused_in_words() -> None:
    for target, count in ONNX.items():
        wrong = bad(target, range(count))
        assert not wrong, wrong[0]
