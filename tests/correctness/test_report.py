"""Pages say what they are given, and nothing that they were not."""

import re

import pytest

from tilewright import report
from tilewright.report import Bar, Curve, Html, Kernel, Point
from tilewright.report.numbers import marks, position, short


def test_text_is_escaped_and_markup_is_not():
    nasty = "<script>alert(\"x\")</script> & 'y'"
    page = report.page(
        nasty,
        report.section(nasty, report.paragraph(nasty), report.facts({nasty: nasty})),
        report.table([nasty, "n"], [[nasty, 1]], caption=nasty),
        report.figure(report.bars(nasty, {nasty: [Bar(nasty, 1.0)]}, nasty), nasty),
        report.figure(report.curves(nasty, [Curve(nasty, [Point(1, 2, nasty)])], nasty, nasty)),
        report.roofline(nasty, [Kernel(nasty, 1e9, 1e8, 1e-3)], 100, 1000),
        report.details(nasty, report.code(nasty, "cuda", nasty)),
        report.cards({nasty: nasty}),
        lead=nasty,
        footer=nasty,
    )
    assert "<script" not in page
    assert '"x"' not in re.sub(r'="[^"]*"', "", page)
    assert report.paragraph(Html("<b>bold</b>")) == "<p><b>bold</b></p>"


def test_code_keeps_every_character_in_every_language():
    text = "for (int i = 0; i < n && x[i] > 0; ++i) {\n\n  y[i] = 'a'; // \"é\"\n}"
    for language in ("python", "llvm", "cuda", "opencl", "c", "no such language"):
        made = report.code(text, language)
        plain = re.sub(r"<[^>]*>", "", made)
        for entity, char in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
            plain = plain.replace(entity, char)
        plain = plain.replace("&quot;", '"').replace("&#x27;", "'")
        assert plain == text


def test_a_long_program_is_cut_and_says_so():
    made = report.code("\n".join(f"line{k}" for k in range(50)), most=10)
    assert "line9" in made
    assert "line10" not in made
    assert "The first 10 of 50 lines" in made


def test_the_longest_bar_of_each_group_is_full_and_the_others_are_in_proportion():
    made = report.bars("t", {"a": [Bar("x", 10), Bar("y", 5)], "b": [Bar("x", 1)]}, "us")
    widths = [float(w) for w in re.findall(r'<rect[^>]* width="([\d.]+)%"', made)]
    assert widths[0] == widths[2] == 2 * widths[1]
    assert 'class="fill-1"' in made
    assert 'class="fill-2"' in made


def test_a_search_curve_goes_down_only():
    points = [Point(k, y) for k, y in enumerate((5, 7, 3, 4, 2))]
    made = report.curves("t", [Curve("best", points, step=True)])
    lines = re.findall(r'<line [^>]*y1="([\d.]+)" [^>]*y2="([\d.]+)" class="line-1"', made)
    assert len(lines) == 6  # four steps across, two down
    assert all(float(a) <= float(b) for a, b in lines)  # the page's y grows downwards


def test_charts_of_nothing_say_so():
    assert "nothing to draw" in report.curves("t", [])
    assert "nothing to draw" in report.roofline("t", [], 1, 1)
    assert "<svg" in report.bars("t", {})


def test_charts_are_described_to_who_cannot_see_them():
    made = report.bars("Times", {"K3": [Bar("ours", 12.5)]}, "us")
    assert 'role="img"' in made
    assert 'aria-label="Times. K3: ours 12.5 us"' in made


def test_the_smallest_of_the_compared_columns_is_bold_and_numbers_stand_right():
    made = report.table(
        ["l", "a", "b", "r"], [["x", 2.0, 1.5, "1.3×"], ["y", 1.0, None, "–"]], best=(1, 2)
    )
    assert re.findall(r"<strong>([^<]*)</strong>", made) == ["1.50"]
    assert made.count('class="number"') == 9
    assert '<td class="number">–</td>' in made


@pytest.mark.parametrize(
    ("low", "high", "log"), [(0, 1, 0), (3, 9000, 1), (17, 18, 1), (0, 7e6, 0)]
)
def test_marks_of_an_axis_are_within_it_and_few(low, high, log):
    found = marks(low, high, bool(log))
    assert 2 <= len(found) <= 6
    assert all(low <= m <= high for m in found)
    assert found == sorted(found)
    assert all(0 <= position(m, low, high, bool(log)) <= 1 for m in found)


def test_numbers_are_short():
    assert [short(v) for v in (0, 0.00123, 1.0, 999.9, 123456.0)] == [
        "0", "0.00123", "1.00", "1,000", "123,456",
    ]  # fmt: skip
