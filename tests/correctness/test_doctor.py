"""``tilewright doctor`` tells what is here and how to get what is not."""

import json
import os
import platform
import subprocess
import sys

import pytest

from tilewright.cli import _devices, _libraries
from tilewright.cli.main import main
from tilewright.runtime import llvm_host


def test_doctor_lists_every_target_and_the_required_libraries(capsys):
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    for word in ("llvm", "cuda", "opencl", "sim", "numpy", "llvmlite", "islpy", sys.executable):
        assert word in text


def test_doctor_speaks_json_to_programs(capsys):
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {d["target"] for d in report["devices"]} == {"llvm", "cuda", "opencl", "sim"}
    assert all(x["version"] for x in report["libraries"] if x["required"])


def test_a_missing_library_comes_with_the_line_that_installs_it(monkeypatch, capsys):
    row = ("no-such-library", "nothing", False, _libraries._unprobed)
    monkeypatch.setattr(_libraries, "_LIBRARIES", [row])
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "not installed" in text
    assert f"{sys.executable} -m pip install no-such-library" in text


def test_a_library_that_is_there_but_does_not_load_is_named_with_its_error(monkeypatch, capsys):
    def broken():
        raise OSError("libLLVM.so: cannot open shared object file")

    monkeypatch.setattr(_libraries, "_LIBRARIES", [("numpy", "arrays", True, broken)])
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "OSError: libLLVM.so" in text
    assert "--force-reinstall" in text


def test_the_line_that_installs_a_library_asks_for_the_versions_that_work():
    if _libraries.requirement("numpy") == "numpy":
        pytest.skip("tilewright runs uninstalled, so its requirements are unknown")
    assert _libraries.requirement("nvidia-cuda-nvrtc") == "nvidia-cuda-nvrtc==13.0.*"
    assert _libraries.requirement("torch") == "torch"


def test_without_pyopencl_and_cuda_their_targets_have_no_device(monkeypatch):
    for module in ("pyopencl", "cuda.bindings"):
        monkeypatch.setitem(sys.modules, module, None)
    by_target = {d.target: d for d in _devices.devices()}
    assert by_target["opencl"].details == "pyopencl is not installed"
    assert by_target["cuda"].details == "cuda-bindings is not installed"
    assert by_target["llvm"].name


def test_libraries_missing_for_one_purpose_are_installed_by_one_line(monkeypatch, capsys):
    rows = [(f"no-{part}", f"target x: {part}", False, _libraries._unprobed) for part in "ab"]
    monkeypatch.setattr(_libraries, "_LIBRARIES", rows)
    main(["doctor"])
    text = capsys.readouterr().out
    assert "# no-a, no-b: target x" in text
    assert f"{sys.executable} -m pip install no-a no-b\n" in text


def test_doctor_runs_where_every_library_but_rich_is_missing():
    program = (
        "import sys\n"
        "for name in ('numpy', 'llvmlite', 'islpy', 'cuda', 'pyopencl'): sys.modules[name] = None\n"
        "from tilewright.cli.main import main\n"
        "raise SystemExit(main(['doctor']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "200"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "import of islpy halted" in done.stdout


def test_an_opencl_device_that_compiles_nothing_is_listed_with_the_reason(monkeypatch, capsys):
    broken = _devices.Device("opencl", "pthread", "PoCL", "", "it does not know this processor")
    monkeypatch.setattr(_devices, "_opencl", lambda: [broken])
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "unusable" in text
    assert "target opencl cannot be used: it does not know this processor" in text


@pytest.mark.needs_opencl
def test_a_device_is_tried_before_it_is_recommended(monkeypatch):
    from tilewright.ir.errors import TargetError
    from tilewright.runtime import opencl

    assert all(not d.problem for d in _devices.devices() if d.target == "opencl")

    def refuse(*_):
        raise TargetError("unknown target CPU\nand the source")

    monkeypatch.setattr(opencl, "_built", refuse)
    problems = [d.problem for d in _devices.devices() if d.target == "opencl"]
    assert problems
    assert set(problems) == {"unknown target CPU"}


def test_names_end_where_the_drivers_strings_end():
    from tilewright.runtime.cuda_driver import text_of
    from tilewright.runtime.opencl_device import text_of as text_of_opencl

    assert text_of(b"NVIDIA H200\0\0\x7f\0") == text_of("NVIDIA H200\0") == "NVIDIA H200"
    assert text_of_opencl("Mali-G78 \0") == "Mali-G78"


def test_doctor_says_whether_the_processor_multiplies_in_tiles():
    assert _devices._tiles({}, set()) == "no AMX"
    assert _devices._tiles({"amx-tile": True}, {"amx-tile"}) == "AMX"
    assert "does not let" in _devices._tiles({"amx-tile": True}, {"avx2"})
    if platform.machine() in ("x86_64", "AMD64"):
        assert "AMX" in _devices.cpu().details


def test_tiles_that_the_system_keeps_from_programs_are_not_used(monkeypatch):
    class Binding:
        @staticmethod
        def get_host_cpu_features():
            return {"avx2": True, "amx-tile": True, "amx-bf16": True, "sse4a": False}

    monkeypatch.setattr(llvm_host, "binding", lambda: Binding)
    found = {}
    for allowed in (False, True):
        monkeypatch.setattr(llvm_host, "tiles_allowed", lambda allowed=allowed: allowed)
        found[allowed] = llvm_host.host_features.__wrapped__()
    assert found == {False: {"avx2"}, True: {"avx2", "amx-tile", "amx-bf16"}}


def test_a_cache_folder_that_may_not_be_looked_at_is_said_to_keep_nothing(
    monkeypatch, capsys, tmp_path
):
    closed, stat, access = str(tmp_path / "closed"), os.stat, os.access

    def guarded(path, *rest, **more):  # as for others than root, below a folder of mode 700
        if str(path).startswith(closed):
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, *rest, **more)

    monkeypatch.setenv("TILEWRIGHT_CACHE", f"{closed}/cache")
    monkeypatch.setattr(os, "stat", guarded)
    monkeypatch.setattr(
        os, "access", lambda path, mode: str(path) != str(tmp_path) and access(path, mode)
    )
    assert main(["doctor"]) == 0
    assert "nothing can be written to" in " ".join(capsys.readouterr().out.split())
