"""``tilewright report`` makes one page of measurements and of tuning."""

import json
import re
from dataclasses import replace

import pytest
from tests.correctness.test_demo import Tags

from tilewright.cli.main import main
from tilewright.report import Kernel, Roof, results, roofline
from tilewright.report.histories import histories
from tilewright.report.overview import overview
from tilewright.topi.operators.conv import Conv
from tilewright.tune import library
from tilewright.tune.measure import Device, MeasureErrorNo, MeasureInput, MeasureResult
from tilewright.tune.records import Records

LAYER = Conv.parse("1x32x28x28", "32x1x3x3", padding=1)
OTHER = Conv.parse("1x8x14x14", "8x1x5x5", padding=2, pass_="wgrad")


def measured(**more):
    """A file of results with two problems of one section and one of another."""
    row = {"section": "nets", "problem": LAYER.to_dict(), "tilewright us": 10.0, "floor us": 5.0}
    rows = [
        row | {"PyTorch us": 40.0, "ONNX Runtime us": 20.0, "copy us": 4.0},
        row | {"problem": LAYER.replace(channels=64).to_dict(), "PyTorch us": 80.0},
        {"section": "gradients", "name": "a <gradient>", "tilewright us": 30.0, "PyTorch us": 15.0},
    ]
    around = {"device": "a CPU", "date": "2026-11-21", "command": "tilewright bench"}
    found = {"environment": around, "bandwidth_GBps": 20.0, "rate_GFLOPps": {"float32": 100.0}}
    return found | {"rows": rows} | more


def tuned(path, device="a CPU"):
    """Records of one problem: three candidates, of which one failed."""
    task = library.task(OTHER, "llvm")
    configs = [task.config_space.get(k % len(task.config_space)) for k in range(3)]
    fates = [
        MeasureResult((2e-5,), timestamp=1.0),
        MeasureResult((), MeasureErrorNo.WRONG_ANSWER, "it is <wrong>", timestamp=2.0),
        MeasureResult((1e-5,), timestamp=3.0),
    ]
    pairs = [(MeasureInput(task, c), r) for c, r in zip(configs, fates, strict=True)]
    with Records(path) as records:
        records.add(pairs, Device(device, "", ""))


def write(path, content):
    path.write_text(json.dumps(content))
    return str(path)


def report(tmp_path, *words):
    page = tmp_path / "page.html"
    assert main(["report", *words, "-o", str(page)]) == 0
    return page.read_text()


def text_of(page):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page.partition("<main>")[2]))


def test_a_page_has_the_roofline_the_tables_and_the_curves(tmp_path, capsys):
    tuned(tmp_path / "r.sqlite")
    bench = write(tmp_path / "bench.json", measured())
    page = report(tmp_path, bench, "--records", str(tmp_path / "r.sqlite"), "--title", "On <it>")
    assert capsys.readouterr().out.startswith("3 problems measured, 1 tuned: ")
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert all(link.startswith("#") for link in tags.links)  # it loads nothing
    assert "<title>On &lt;it&gt;</title>" in page
    text = text_of(page)
    for words in (
        "1x32x28x28 K3 s1 float32 NCHW 10.0 40.0 20.0 2.00× 5.00 50%",
        "geometric mean of the ratios to ours 1.00× 5.66× 2.00× 4.00× 50%",
        "a &lt;gradient&gt; 30.0 15.0 0.50×",
        "wgrad 1x8x14x14 K5 s1 float32 NCHW 10.0",
        "2.00× as fast as the best of the others, geometric mean",
        "4: wgrad 1x8x14x14 K5 s1 float32 NCHW",
    ):
        assert words in text
    assert len(re.findall(r'<circle[^>]*class="dot-1"', page)) == 3 + 2  # the roofline, the curve
    assert len(re.findall(r'<circle[^>]*class="dot-2"', page)) == 2


def test_what_was_measured_and_tuned_has_one_number(tmp_path):
    tuned(tmp_path / "r.sqlite")
    bench = write(tmp_path / "bench.json", measured())
    with Records(tmp_path / "r.sqlite") as records:
        (history,) = histories(records)
    found = results.read(bench)
    found.rows[1] = replace(found.rows[1], problem=OTHER)
    text = text_of(overview([found], [history]))
    assert "2: wgrad 1x8x14x14 K5 s1 float32 NCHW" in text
    assert "4: " not in text


def test_what_was_measured_on_several_devices_stands_apart(tmp_path):
    tuned(tmp_path / "r.sqlite", "a GPU")
    bench = write(tmp_path / "bench.json", measured())
    text = text_of(report(tmp_path, bench, "--records", str(tmp_path / "r.sqlite")))
    for heading in ("Roofline on a CPU", "Times on a CPU", "Roofline on a GPU", "Tuning on a GPU"):
        assert heading in text
    assert "Tuning on a CPU" not in text
    assert "measures the roof, which is missing" in text


def test_only_the_tuning_that_was_asked_for_is_shown(tmp_path):
    path = tmp_path / "r.sqlite"
    tuned(path)
    with Records(path) as records:
        assert [h.best[0] for h in histories(records, ["wgrad", "CPU"])] == [3]
        assert histories(records, ["forward"]) == []
        (history,) = histories(records)
    assert (history.measured, history.failed) == (3, {"it is <wrong>": 1})
    assert history.problem == OTHER


def test_a_problem_without_a_right_candidate_is_listed_with_the_reason(tmp_path):
    path = tmp_path / "r.sqlite"
    tuned(path)
    with Records(path) as records:
        (history,) = histories(records)
    history.trials.clear()
    text = text_of(overview([], [history]))
    assert "Without a right candidate" in text
    assert "it is &lt;wrong&gt;" in text


def test_files_that_name_their_device_themselves_are_read_too(tmp_path):
    row = {"pass": "fwd", "shape": "64x32x112x112", "kernel": 3, "stride": 2, "dtype": "float16",
           "layout": "NHWC", "tilewright us": 50.0, "pytorch nchw us": 90.0, "floor us": 40,
           "pytorch nhwc us": None}  # fmt: skip
    given = {"device": "a GPU", "date": "today", "versions": {"torch": "2"}, "rows": [row]}
    found = results.read(write(tmp_path / "x.json", given))
    assert found.device == "a GPU"
    assert found.environment["torch"] == "2"
    (one,) = found.rows
    assert one.us == {"tilewright": 50.0, "pytorch nchw": 90.0}
    assert one.problem == Conv.parse(
        "64x32x112x112", "32x1x3x3", padding=1, stride=2, dtype="float16", layout="NHWC"
    )
    assert (one.ratio, one.of_floor) == (1.8, 0.8)


def test_no_dot_of_a_cpu_is_above_the_roof_for_the_caches():
    row = results.Row("", "", "forward", {"tilewright": 1.0}, copy=0.5, problem=LAYER)
    found = results.Results("", {"device": "d"}, [row], bandwidth=250.0, rates={"float32": 1e4})
    page = overview([found], [])
    assert f"The roof is {LAYER.bytes / 0.5e3:,.0f}" in page
    assert 'class="roof faint"' in page


def test_labels_of_a_roofline_do_not_meet():
    alike = [Kernel(f"kernel {k}", 1e6, 1e6, 1e-3 * (1 + k / 100), str(k)) for k in range(30)]
    page = roofline("t", alike, 100.0, 1000.0, more=[Roof(10.0, 1000.0, "memory")])
    assert page.count("<circle") == 30
    labels = re.findall(r'<text x="([\d.]+)%"[^>]* y="([\d.]+)" dy="4" class="label', page)
    assert 2 <= len(labels) < 30
    assert "memory" in page


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("no JSON", "cannot be read"),
        ("[]", "is no file of results"),
        ('{"rows": [{"us": 3}]}', 'some have "tilewright us"'),
        ('{"rows": [{"tilewright us": NaN}]}', "is no file of results"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path, capsys, content, message):
    path = tmp_path / "x.json"
    path.write_text(content)
    assert main(["report", str(path), "--no-records", "-o", str(tmp_path / "p.html")]) == 1
    text = capsys.readouterr().err
    assert str(path) in text
    assert message in text
    assert not (tmp_path / "p.html").exists()


def test_nothing_to_show_and_nowhere_to_write_are_said(tmp_path, capsys):
    page = str(tmp_path / "p.html")
    assert main(["report", "--no-records", "-o", page]) == 1
    assert "there is nothing to show: measure something first" in capsys.readouterr().err
    assert main(["report", "--records", str(tmp_path / "absent"), "-o", page]) == 1
    assert "there is no such file" in capsys.readouterr().err
    assert main(["report", "-o", str(tmp_path / "absent" / "p.html")]) == 1
    assert "there is no folder" in capsys.readouterr().err
