"""Models as sources that need nothing of Tilewright's.

A folder has kernels, ``NAME.c`` with functions that create, run and destroy a model, its header,
the weights, a program that runs it on raw files, and a Makefile. Targets differ in kernels and in
the middle of ``NAME.c``: calls for a CPU (:mod:`.host`), and on a GPU tables of launches
(:mod:`.launches`) that a text in C goes through (``texts/``).
"""

from tilewright.graph.export.folder import export

__all__ = ["export"]
