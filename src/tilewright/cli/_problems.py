"""Problems on the command line: one by its shapes, several, a named set, or a file of them."""

from __future__ import annotations

import argparse
import itertools
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tilewright.ir.dtype import FLOAT8
from tilewright.ir.errors import ProblemError
from tilewright.topi.arguments import whole
from tilewright.topi.operators.conv import Conv
from tilewright.topi.problem import OPERATORS, OUT_DTYPES, PRECISIONS, Problem
from tilewright.topi.written import numbers

#: Layers as (channels, height, width, filters' size, stride, multiplier), padded by half a filter.
_Layer = tuple[int, int, int, int, int, int]


def _square(*layers: tuple[int, int, int, int]) -> list[_Layer]:
    """(channels, side of the image, filter, stride)."""
    return [(c, side, side, k, s, 1) for c, side, k, s in layers]


#: Sets of layers by name, with what they are.
SETS: dict[str, tuple[str, list[_Layer]]] = {
    "mobilenetv2": (
        "depthwise layers of MobileNetV2, 3x3",
        _square((32, 112, 3, 1), (64, 112, 3, 2), (96, 112, 3, 2), (144, 56, 3, 1),
                (144, 56, 3, 2), (192, 28, 3, 1), (384, 14, 3, 1), (576, 14, 3, 2),
                (960, 7, 3, 1)),
    ),
    "convnext": (
        "the four stages of ConvNeXt-T, 7x7",
        _square((96, 56, 7, 1), (192, 28, 7, 1), (384, 14, 7, 1), (768, 7, 7, 1)),
    ),
    "replknet": (
        "the four stages of RepLKNet-31B, 31x31 to 13x13",
        _square((128, 56, 31, 1), (256, 28, 29, 1), (512, 14, 27, 1), (1024, 7, 13, 1)),
    ),
    "article-000": (
        "the tables of article 000: 256 channels, 3x3 and 5x5, multipliers 1 and 2",
        [(256, side, side, 3, 1, 1) for side in (21, 32, 64, 96)]
        + [(256, 96, 96, k, 1, m) for k, m in ((5, 1), (3, 2), (5, 2))],
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Named:
    """A problem, and what it belongs to: the set, the file, "" where it stands for itself."""

    problem: Problem
    section: str = ""


def _has_usual_options(cls: type[Problem]) -> bool:
    own = cls.__mro__[: cls.__mro__.index(Problem)]
    return not any("add_arguments" in vars(c) for c in own)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The operator and its parameters; a set or a file in their place."""
    import tilewright.topi.operators  # noqa: F401  # those of the library make themselves known

    add = parser.add_argument
    add("operator", metavar="OP", choices=list(OPERATORS), nargs="?", help=", ".join(OPERATORS))
    shapes = parser.add_argument_group("problem")
    add = shapes.add_argument
    known: set[str] = set()

    def once(option: str, **more: Any) -> None:
        if option not in known:  # several operators may have one of that name
            known.add(option)
            add(option, **more)

    # Of an option that several have, what one says of it that describes its own.
    for cls in sorted(dict.fromkeys(OPERATORS.values()), key=_has_usual_options):
        cls.add_arguments(once)
    passes = dict.fromkeys(name for cls in OPERATORS.values() for name in cls.PASSES)
    add(
        "--pass",
        dest="pass_",
        default="forward",
        metavar="PASS",
        help=f"{', '.join(passes)}; several with commas",
    )
    add(
        "--dtype",
        default="float32",
        metavar="TYPE",
        help="float32, float16, bfloat16, float64, int8, uint8, float8_e4m3fn, float8_e5m2; "
        "several with commas",
    )
    add("--accumulate", default="", metavar="TYPE", help="of sums; float32 for 16-bit types")
    add("--out-dtype", default="", metavar="TYPE", help=f"of float8: {', '.join(OUT_DTYPES)}")
    add("--precision", default="exact", metavar="WORD", help=", ".join(PRECISIONS))
    add("--any-order", action="store_true", help="two runs may differ in the last bits")
    add("--epilogue", default="", metavar="STEPS", help="as bias+relu or scale_shift+clamp(0,6)")
    add(
        "--set",
        metavar="NAME",
        action="append",
        default=[],
        help="layers by name: " + "; ".join(f"{n}: {what}" for n, (what, _) in SETS.items()),
    )
    once("--batch", metavar="N", help="of the layers of a set (1)")
    add(
        "--problems",
        metavar="FILE",
        action="append",
        default=[],
        help="a line each: options as here, or a problem as JSON; # begins a comment",
    )


def problems(args: argparse.Namespace) -> list[Named]:
    """What the options say, each problem once, in their order.

    Raises :class:`ProblemError` that names the option at fault.
    """
    found: list[Named] = list(_of_operator(args))
    for name in args.set:
        found += _of_set(name, args)
    for path in args.problems:
        found += _of_file(path, args.operator)
    if not found:
        raise ProblemError(
            "which problem? Give --input 64x384x32x32 --filter 384x1x7x7, --set "
            f"{'|'.join(SETS)}, or --problems FILE"
        )
    return list({named.problem: named for named in reversed(found)}.values())[::-1]


def _of_operator(args: argparse.Namespace) -> Iterator[Named]:
    if args.operator is None:
        if args.input or args.filter:
            raise ProblemError(f"which operator? Name it first: {', '.join(OPERATORS)}")
        return
    if (args.set or args.problems) and not args.input:  # which are of that operator
        return
    if args.batch is not None and args.input:
        raise ProblemError("--batch is for --set: an --input says its batch, as in 64x384x32x32")
    for changes in _variants(args):
        common = {"operator": args.operator, **changes}
        for made in OPERATORS[args.operator].from_arguments(args, common):
            yield Named(made)


def _of_set(name: str, args: argparse.Namespace) -> Iterator[Named]:
    if name not in SETS:
        raise ProblemError(f"--set {name}: there are {', '.join(SETS)}")
    if args.operator not in (None, "depthwise_conv2d"):
        raise ProblemError(f"--set {name} is one of depthwise_conv2d")
    if args.stride or args.dilation:
        raise ProblemError(f"--set {name} has strides of its own: leave out --stride, --dilation")
    batch = 1 if args.batch is None else whole("--batch", numbers(args.batch))
    for changes, layout in itertools.product(_variants(args), args.layout.split(",")):
        section = f"{name}, batch {batch}, {changes['pass_']}, {changes['dtype']}"
        for c, h, w, k, s, m in SETS[name][1]:
            padding: Any = k // 2 if args.padding is None else numbers(args.padding)
            made = Conv(
                batch=batch, channels=c, height=h, width=w, multiplier=m, kernel_h=k, kernel_w=k,
                stride=(s, s), padding=padding, layout=layout.strip(), **changes,
            )  # fmt: skip
            yield Named(made, section)


def _variants(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The parameters that may have several values, each combination of them."""
    several = "," in args.dtype  # of which those of float8 alone leave open what results are
    for pass_, dtype in itertools.product(args.pass_.split(","), args.dtype.split(",")):
        yield {
            "pass_": pass_.strip(), "dtype": dtype.strip(),
            "accumulate": args.accumulate, "precision": args.precision,
            "out_dtype": "" if several and dtype.strip() not in FLOAT8 else args.out_dtype,
            "deterministic": not args.any_order,
            "epilogue": "" if pass_.strip() == "wgrad" and "," in args.pass_ else args.epilogue,
        }  # fmt: skip


def _of_file(path: str, operator: str | None) -> Iterator[Named]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ProblemError(f"--problems {path} cannot be read: {error}") from None
    parser = _LineParser(add_help=False)
    add_arguments(parser)
    parser.set_defaults(operator=operator)  # where a line names none
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            if text.startswith("{"):
                yield Named(Problem.from_json(text), Path(path).stem)
                continue
            words = shlex.split(text, comments=True)
            for named in problems(parser.parse_args(words)):
                yield Named(named.problem, named.section or Path(path).stem)
        except (ProblemError, ValueError) as error:
            raise ProblemError(f"{path}:{number}: {error}") from None


class _LineParser(argparse.ArgumentParser):
    """Of a line of a file; what is wrong there is an error like others."""

    def error(self, message: str) -> NoReturn:
        raise ProblemError(message)


def write_problems(path: Path, found: Iterable[Problem]) -> None:
    """A line of JSON for each, as ``--problems`` reads them, in the order in which they come."""
    from tilewright.runtime.files import write_file

    lines = dict.fromkeys(problem.to_json() for problem in found)
    write_file(path, "".join(f"{line}\n" for line in lines))
