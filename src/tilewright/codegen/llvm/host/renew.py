"""Writes the LLVM IR of the C files in this folder.

    PYTHONPATH=src python -m tilewright.codegen.llvm.host.renew [CLANG]

Needs clang 19 or newer, such as ``apt-get install clang-19``. What names a machine or a version of
LLVM is taken out: the triple, the layout of data, attributes, metadata, marks of lifetimes. The
first line holds a hash of the C, which a test compares, and the compiler.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path

from tilewright.codegen.llvm.host import FOLDER

_OPTIONS = (
    "--target=x86_64-unknown-linux-gnu -std=c11 -O1 -ffreestanding -fPIC -fno-strict-aliasing "
    "-fno-vectorize -fno-slp-vectorize -fno-unroll-loops -fno-discard-value-names "
    "-Wall -Wextra -Werror -S -emit-llvm -o -"
).split()

#: Lines that go.
_LINES = re.compile(
    r"^(; |source_filename|target |attributes |!|.*@llvm\.lifetime\.).*\n", re.MULTILINE
)
#: Words that go.
_WORDS = re.compile(
    r" #\d+\b|, !llvm\.loop !\d+| *; preds = .*"
    r"| (local_unnamed_addr|unnamed_addr|noundef|nonnull|nocapture|noalias|writeonly|readonly)\b"
    r"| (returned|immarg|signext|zeroext)\b| dereferenceable\(\d+\)| range\([^)]*\)"
)


def digest(source: Path) -> str:
    """A hash of a C file and of the header."""
    text = source.read_bytes() + (FOLDER / "host.h").read_bytes()
    return hashlib.sha256(text).hexdigest()[:32]


def portable(text: str) -> str:
    """LLVM IR without what names a machine or a version of LLVM."""
    text = _WORDS.sub("", _LINES.sub("", text))
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def compiled(source: Path, clang: str) -> str:
    """The portable LLVM IR of a C file."""
    run = [clang, *_OPTIONS, str(source)]
    done = subprocess.run(run, check=True, stdout=subprocess.PIPE, text=True)
    return portable(done.stdout)


def main(clang: str = "clang") -> None:
    run = [clang, "--version"]
    version = subprocess.run(run, check=True, stdout=subprocess.PIPE, text=True).stdout
    (number,) = re.findall(r"clang version (\d+)", version)
    for source in sorted(FOLDER.glob("*.c")):
        head = f"; {source.name} {digest(source)} clang {number}\n\n"
        source.with_suffix(".ll").write_text(head + compiled(source, clang))


if __name__ == "__main__":
    main(*sys.argv[1:])
