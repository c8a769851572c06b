"""What a target adds to what all have in common."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Written:
    """What a target writes of a program.

    Attributes
    ----------
    weights : the content of the file of weights.
    tables : what ``NAME.c`` has between its includes and the text of the target.
    files : kernels by the names of their files.
    objects : what is linked beside ``NAME.o``.
    flags : variables of the Makefile, those that it takes from outside.
    rules : more of the Makefile.
    about : what it is written for; ``needs`` names libraries, ``devices`` what it runs on.
    includes : headers of ``NAME.c``.
    more : declarations of its header.
    """

    weights: bytes
    tables: str
    about: str
    needs: str
    devices: str
    includes: tuple[str, ...] = ()
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    objects: tuple[str, ...] = ()
    flags: Mapping[str, str] = field(default_factory=dict)
    rules: str = ""
    more: str = ""


@cache
def _text(name: str) -> str:
    return (Path(__file__).parent / "texts" / name).read_text()


def filled(text: str, words: Mapping[str, str]) -> str:
    """A text of ``texts/`` with ``words`` in the place of others."""
    return replaced(_text(text), words)


def replaced(text: str, words: Mapping[str, str]) -> str:
    """A text with ``words``, or beginnings of names, in the place of others."""
    return re.sub(rf"\b({'|'.join(words)})(?=\b|_)", lambda m: words[m[1]], text)


def plain(text: str, more: str = "") -> str:
    """A name of a model's in a comment or a text of C, neither of which it can end; letters of
    ``more`` stay, too."""
    return re.sub(rf"[^\w.:{more}-]", "_", text, flags=re.ASCII)
