"""Kernels and models as sources that need nothing of Tilewright's.

A folder has kernels, ``NAME.c`` with functions that create, run and destroy a model, its header,
the weights, a program that runs it on raw files, and a Makefile. What is written is described by
:class:`~.work.Work`, one for each batch. Targets differ in kernels and in the middle of ``NAME.c``:
calls for a CPU (:mod:`.host`), and on a GPU tables of launches (:mod:`.launches`) that a text in C
goes through (``texts/``).
"""

from tilewright.runtime.export.folder import write
from tilewright.runtime.export.work import Named, Step, Work, work_of

__all__ = ["Named", "Step", "Work", "work_of", "write"]
