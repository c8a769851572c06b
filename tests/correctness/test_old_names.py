"""Records of earlier versions: their schedules have today's names, or are refused in words."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from tilewright.ir.errors import ScheduleError
from tilewright.topi import Conv
from tilewright.topi.old_names import FIXED, GONE, RENAMED, resolve
from tilewright.topi.templates import TEMPLATES
from tilewright.tune import library, tuned
from tilewright.tune.entity import TuningError

PAIRS = {
    "rows": 4, "strips": 4, "groups": 4, "pairs": 4, "down": 1, "across": 1, "lots": 4, "turns": 1,
    "stages": 1,
}  # fmt: skip


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_a_template_of_another_name_has_its_parameters(old: str, new: str) -> None:
    values = dataclasses.asdict(TEMPLATES[new].config())
    name, found = resolve(old, values)
    assert (name, found) == (new, values)
    assert TEMPLATES[name].parse(found) == TEMPLATES[new].config()


@pytest.mark.parametrize("name", GONE)
def test_a_template_that_is_gone_is_refused_with_what_is_faster(name: str) -> None:
    assert name not in TEMPLATES
    assert GONE[name] in TEMPLATES
    with pytest.raises(ScheduleError, match=rf"{name}' any more: {GONE[name]} .*Tune the problem"):
        resolve(name, {"rows": 4})


@pytest.mark.parametrize("name", FIXED)
def test_a_parameter_that_is_gone_is_left_out_where_it_said_what_is_done_now(name: str) -> None:
    assert resolve(name, {**PAIRS, "boxed": 1}) == (name, PAIRS)
    with pytest.raises(ScheduleError, match="no parameter boxed that is 0"):
        resolve(name, {**PAIRS, "boxed": 0})


def test_a_parameter_that_there_never_was_is_refused() -> None:
    with pytest.raises(ScheduleError, match="no parameter wheels that is 4"):
        resolve("gpu.channel_pairs", {**PAIRS, "wheels": 4})


def test_a_parameter_that_is_nothing_is_no_parameter() -> None:
    with pytest.raises(ScheduleError, match="no parameter x that is None"):
        resolve("gpu.strips", {"x": None})  # type: ignore[dict-item]


def test_what_the_package_brings_has_names_of_today() -> None:
    for file in tuned.FOLDER.glob("*.jsonl"):
        with file.open() as lines:
            named = json.loads(next(lines))["templates"]
        for name, parameters in named.items():
            assert set(parameters) <= {f.name for f in dataclasses.fields(TEMPLATES[name].config)}


def test_a_configuration_of_an_earlier_version_names_what_there_is() -> None:
    absent = {"vector": library.ABSENT, "boxed": 1}
    found = library.parameters_of({"template": "gpu.channel_pairs", **PAIRS, **absent})
    assert found == ("gpu.channel_pairs", PAIRS)
    with pytest.raises(TuningError, match=r"gpu\.channel_pairs is faster"):
        library.parameters_of({"template": "gpu.diagonal", "rows": 4, "vector": library.ABSENT})


def test_a_file_of_an_earlier_version_keeps_the_schedules_that_there_are(tmp_path: Path) -> None:
    p = Conv(batch=8, channels=64, height=28, width=28, kernel_h=7, kernel_w=7, padding=3,
             dtype="float16", layout="NHWC")  # fmt: skip
    names = {"gpu.channel_pairs": [*PAIRS, "boxed"], "gpu.diagonal": ["rows", "down"]}
    head = {"tilewright_tuned": 1, "target": "cuda -arch=sm_90a", "device": "NVIDIA H200",
            "templates": names}  # fmt: skip
    best = [
        ["gpu.diagonal", [4, 1], 9.0],
        ["gpu.channel_pairs", [*PAIRS.values(), 0], 9.5],
        ["gpu.channel_pairs", [*PAIRS.values(), 1], 10.0],
    ]
    file = tmp_path / "cuda-nvidia-h200.jsonl"
    file.write_text(
        json.dumps(head) + "\n" + json.dumps({"problem": p.to_short_dict(), "best": best}) + "\n"
    )
    gone = {"problem": p.replace(batch=4).to_short_dict(), "best": best[:1]}
    with file.open("a") as more:
        more.write(json.dumps(gone) + "\n")
    (found,) = tuned.read(file)  # of a problem of which no schedule is left there is no record
    assert found.problem == p
    assert [(r.template, dict(r.values)) for r in found.best] == [("gpu.channel_pairs", PAIRS)]
