"""Convolutions on the command line: the shapes of an image and a filter, and the rest."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from tilewright.ir.errors import ProblemError
from tilewright.topi.operators.conv_shapes import BLOCKED, layouts
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.problem import OPERATORS, Problem
from tilewright.topi.written import numbers


def add_arguments(add: Any) -> None:
    """The options; see :meth:`~tilewright.topi.problem.Problem.add_arguments`."""
    add(
        "--input",
        metavar="NxCxHxW",
        action="append",
        default=[],
        help="in this order whatever the layout; NxCxW in one dimension, NxCxDxHxW in three; may "
        "be repeated",
    )
    add(
        "--filter",
        metavar="CxMxKHxKW",
        action="append",
        default=[],
        help="M filters a channel, also PyTorch's (C*M)x1xKHxKW; of conv2d and its siblings "
        "PyTorch's OCx(C/groups)xKHxKW; one for each input, or one",
    )
    add("--groups", metavar="G", help="of channels, in conv1d, conv2d and conv3d (1)")
    add("--stride", metavar="N[,M]", help="vertical and horizontal (1)")
    add(
        "--padding",
        metavar="P",
        help="N, or vertical,horizontal, or top,left,bottom,right, in conv3d three or six, or "
        "SAME, SAME_LOWER, VALID, CAUSAL; 0 by default, half a filter in a set",
    )
    add("--dilation", metavar="N[,M]", help="(1)")
    add("--layout", default="", metavar="LAYOUT", help="NCHW (the default) or NHWC, NCW or "
        "NWC, NCDHW or NDHWC; of integers also NCHW4 or NCHW32; several with commas")  # fmt: skip
    add("--out-layout", default="", metavar="LAYOUT", help="of results of integers in two "
        "dimensions, where they lie in another one")  # fmt: skip


def from_arguments(
    cls: type[Convolution], args: argparse.Namespace, common: Mapping[str, Any]
) -> Iterator[Problem]:
    """The convolutions that options describe."""
    inputs, filters = args.input, args.filter
    if bool(inputs) != bool(filters):
        missing, given = ("--filter", "--input") if inputs else ("--input", "--filter")
        raise ProblemError(f"{given} needs {missing}: --input NxCxHxW --filter CxMxKHxKW")
    if len(filters) == 1:
        filters = filters * len(inputs)
    if len(inputs) != len(filters):
        raise ProblemError(
            f"{len(inputs)} times --input and {len(filters)} times --filter: give one filter for "
            "each input, or one for all"
        )
    for data, weight in zip(inputs, filters, strict=True):
        yield from _of_shapes(cls, data, weight, args, common)


def _of_shapes(
    cls: type[Convolution],
    data: str,
    weight: str,
    args: argparse.Namespace,
    common: Mapping[str, Any],
) -> Iterator[Problem]:
    name = str(common["operator"])
    rank, dims = int(name[-2]), data.count("x") + 1
    if dims in (3, 4, 5) and dims != rank + 2:
        alike = f"{name[:-2]}{dims - 2}d"
        other = alike if alike in OPERATORS else f"conv{dims - 2}d"
        raise ProblemError(f"--input {data} has {dims} dimensions: it is one of {other}")
    groups: Any = None
    if name.startswith("conv"):
        groups = 1 if args.groups is None else numbers(args.groups)
    elif args.groups is not None:
        raise ProblemError(f"--groups {args.groups}: {name} has one for each channel")
    for layout in args.layout.split(","):
        blocked = tuple(BLOCKED) if rank == 2 else ()
        if layout.strip() not in ("", *layouts(rank), *blocked):
            known = ", ".join((*layouts(rank), *blocked))
            raise ProblemError(f"unknown layout {layout.strip()!r}: use {known}")
        if args.out_layout and rank != 2:
            raise ProblemError(
                f"--out-layout {args.out_layout}: results of {name} lie as its images do: leave it "
                "out"
            )
        more = {"out_layout": args.out_layout.strip()} if args.out_layout else {}
        yield cls.parse(
            data, weight, groups, padding=numbers(args.padding or "0"),
            stride=numbers(args.stride or "1"), dilation=numbers(args.dilation or "1"),
            layout=layout.strip(), **more, **common,
        )  # fmt: skip
