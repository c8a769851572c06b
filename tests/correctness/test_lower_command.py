"""``tilewright lower`` shows a file's program after every pass."""

import json

import pytest

from tilewright.cli.main import main

CPU = """
from tilewright import te
A = te.placeholder((100,), name="A")
B = te.compute((100,), lambda i: A[i] * 2 + 1, name="B")
s = te.create_schedule(B.op)
outer, inner = s[B].split(B.op.axis[0], factor=8)
s[B].vectorize(inner)
args = [A, B]
if __name__ == "__main__":
    raise SystemExit("run as a program")
"""

GPU = """
from tilewright import te
A = te.placeholder((64,), name="A")
B = te.compute((64,), lambda i: A[i] * 2, name="B")

def doubled():
    s = te.create_schedule(B.op)
    block, thread = s[B].split(B.op.axis[0], factor=32)
    s[B].bind(block, te.thread_axis("blockIdx.x"))
    s[B].bind(thread, te.thread_axis("threadIdx.x"))
    return s, [A, B]
"""


@pytest.fixture
def shown(tmp_path, capsys):
    """What ``tilewright lower`` prints for a program."""

    def show(text, *args):
        path = tmp_path / "program.py"
        path.write_text(text)
        assert main(["lower", str(path), *args]) == 0
        return capsys.readouterr().out

    return show


def headings(text):
    return [line.split(maxsplit=2)[2] for line in text.splitlines() if line.startswith("# ")]


def test_the_passes_that_changed_the_program_are_shown_in_order(shown):
    found = headings(shown(CPU))
    assert found[0] == "the schedule's loops"
    assert "after vectorize" in found
    assert "after pipeline_loops" not in found
    assert found.index("after partition_loops") < found.index("after vectorize")


def test_all_shows_every_pass_and_list_names_them_with_what_they_changed(shown):
    every = headings(shown(CPU, "--all"))
    assert "after pipeline_loops (no change)" in every
    rows = [line.split() for line in shown(CPU, "--list").splitlines()]
    names = [row[1] for row in rows if row and row[0].isdigit()]
    assert len(names) == len(every)
    assert names[:2] == ["loops", "tensorize"]
    (vectorize,) = (row for row in rows if "vectorize" in row)
    assert vectorize[3].startswith("+")


def test_one_pass_is_shown_by_its_name_or_its_number(shown):
    by_name = shown(CPU, "--pass", "vectorize")
    assert headings(by_name) == ["after vectorize"]
    assert "T.Ramp" in by_name
    number = by_name.split("/")[0].removeprefix("# ")
    assert shown(CPU, "--pass", number) == by_name
    assert len(headings(shown(CPU, "--pass", "simplify"))) > 1  # it runs several times


def test_a_difference_has_the_lines_that_went_and_came(shown):
    text = shown(CPU, "--pass", "vectorize", "--diff")
    assert any(line.startswith("-") and "T.vectorized" in line for line in text.splitlines())
    assert any(line.startswith("+") and "T.Ramp" in line for line in text.splitlines())
    assert "(no change)" in shown(CPU, "--pass", "pipeline_loops", "--diff")


def test_programs_are_shown_in_the_style_of_the_articles(shown):
    assert "for (i.outer, 0, 13)" in shown(CPU, "--pass", "loops", "--style", "2017")
    assert "T.Buffer((100,)" in shown(CPU, "--pass", "loops", "--style", "script")


def test_every_pass_can_be_shown_in_every_style(shown):
    for style in ("script", "2017"):
        for program in (CPU, GPU):
            assert len(headings(shown(program, "--all", "--style", style))) > 15


def test_the_generated_code_is_shown_for_the_target(shown):
    assert "define " in shown(CPU, "--source")
    assert "__kernel" not in shown(CPU, "--source", "--target", "llvm -arch=baseline")
    assert "T.launch_thread" in shown(GPU, "--source", "--target", "sim")


@pytest.mark.needs_nvrtc
def test_a_schedule_that_binds_threads_is_shown_for_cuda_without_being_told(shown):
    assert "__global__" in shown(GPU, "--source")


def test_a_function_is_called_by_name_or_because_it_is_the_only_one(shown):
    assert "def doubled_kernel" in shown(GPU)
    assert shown(GPU) == shown(GPU, "--func", "doubled")
    other = GPU + "\ndef other():\n    return 1\n"
    assert shown(other, "--func", "doubled") == shown(GPU)


def test_a_file_may_name_its_target_and_its_schedule_otherwise(shown):
    named = (
        CPU.replace("\ns = ", "\nmy = ").replace("s[B]", "my[B]") + 'target = "llvm -threads=1"\n'
    )
    assert "Target llvm -threads=1" in shown(named, "--list")


def test_a_file_imports_its_neighbours(tmp_path, shown):
    (tmp_path / "sizes_of_mine.py").write_text("N = 100\n")
    assert "100" in shown("from sizes_of_mine import N\n" + CPU.replace("(100,)", "(N,)"))


def test_what_is_printed_holds_no_colours_where_there_is_no_terminal(shown):
    assert "\x1b" not in json.dumps(shown(CPU, "--diff"))


def test_what_would_not_be_built_is_said_beside_the_program(tmp_path, capsys):
    text = CPU.replace("A[i]", "A[i + 1]")
    assert text != CPU
    (tmp_path / "program.py").write_text(text)
    assert main(["lower", str(tmp_path / "program.py"), "--pass", "loops"]) == 0
    said = capsys.readouterr()
    assert "i_inner + 1]" in said.out
    assert "this program is not built: kernel main was not proved correct, 1 finding" in said.err
    assert "out of bounds" in said.err
    assert "program.py:" in said.err
