"""Files that ``tilewright lower`` cannot show: one line that says which line to mend."""

import pytest

from tilewright.cli.main import main

HEAD = """
from tilewright import te
A = te.placeholder((64,), name="A")
B = te.compute((64,), lambda i: A[i] * 2, name="B")
"""


@pytest.mark.parametrize(
    ("text", "args", "message"),
    [
        (HEAD + "s = te.create_schedule(B.op)", [], "has a schedule but no args"),
        (HEAD + "s = te.create_schedule(B.op)\nargs = [1]", [], "args must be a list of tensors"),
        (HEAD + "a = te.create_schedule(B.op)\nb = te.create_schedule(B.op)", [],
         "has several schedules (a, b)"),
        (HEAD, [], "defines no schedule: let it define s = te.create_schedule"),
        (HEAD + "def f(): pass\ndef g(): pass", [], "--func takes one of f, g"),
        (HEAD + "def f(): return 3", ["--func", "f"],
         "f() must return (schedule, args), and returned int"),
        (HEAD + "def first(): return 3", ["--func", "frist"], "did you mean first?"),
        (HEAD + "x = 1 / 0", [], "program.py:5: ZeroDivisionError: division by zero"),
        (HEAD + "def f():\n    return 1 / 0", [], "program.py:6: ZeroDivisionError"),
        ("def f(:", [], "program.py:1: invalid syntax"),
        ("raise SystemExit(3)", [], "ended the program (exit status 3)"),
        (HEAD + "s = te.create_schedule(B.op)\ns[B].split(A, 2)", [], "program.py:6"),
        (HEAD + "s = te.create_schedule(B.op)\nargs = [A, B]", ["--pass", "vectorise"],
         "there is no such pass; did you mean vectorize?"),
        (HEAD + "s = te.create_schedule(B.op)\nargs = [A]", [], "B"),
        (HEAD + "s = te.create_schedule(B.op)\nargs = [A, B]", ["--target", "abacus"],
         "unknown target 'abacus'"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_shown(text, args, message, tmp_path, capsys):
    path = tmp_path / "program.py"
    path.write_text(text)
    assert main(["lower", str(path), *args]) == 1
    error = capsys.readouterr().err
    assert error.startswith("tilewright: ")
    assert message in error
    assert "Traceback" not in error


def test_a_file_that_is_not_there(capsys):
    assert main(["lower", "nowhere.py"]) == 1
    assert capsys.readouterr().err == "tilewright: nowhere.py: there is no such file\n"
