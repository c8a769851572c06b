"""The gradients of a convolution in one run, and a convolution with the casts of its parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.torch.calls import Run
from tilewright.torch.conversions import conversion
from tilewright.torch.kernels import Launch, join
from tilewright.torch.layouts import ByNCHW
from tilewright.torch.passes import parts

#: What converts a tensor, and its bytes.
Conversion = tuple[Callable[[Any], Any], int]


def cast_and_run(convert: Run | None, run: Run) -> Run | None:
    """Makes of (list, input, weight) what ``convert`` makes of the weight, and adds to the list
    what ``run`` makes of the input and of that; None where these are not one launch."""
    one, other = parts(convert), parts(run)
    if one is None or other is None:
        return None
    (empty_weight, launch_cast), (empty, launch_run) = one, other
    # Of the input, the weight, the weight as it is cast, and the output.
    joined = join([launch_cast, launch_run], [(1, 2), (0, 2, 3)], 4)
    if joined is None:
        return None

    def at_once(made: list[Any], input: Any, weight: Any) -> Any:
        cast, out = empty_weight(), empty()
        joined((input.data_ptr(), weight.data_ptr(), cast.data_ptr(), out.data_ptr()))
        made.append(out)
        return cast

    return at_once


def casting_launch(
    launch: Launch, addresses: int, parameters: Sequence[Any], dtype: Any
) -> Launch | None:
    """``launch``, for parameters as they are before they are cast to ``dtype``: it casts them each
    time. None where these are not one launch.

    ``launch`` takes addresses, those of an image and of the parameters first.
    """
    takes, launches, sizes = list(range(addresses)), list[Launch](), list[int]()
    casts: list[tuple[int, ...]] = []
    for k, parameter in enumerate(parameters, 1):
        found = parts(conversion(parameter, dtype))
        if found is None:
            return None
        takes[k] = addresses + len(sizes)
        casts.append((k, takes[k]))
        launches.append(found[1])
        sizes.append(parameter.numel() * dtype.itemsize)
    return join([*launches, launch], [*casts, tuple(takes)], addresses, sizes)


def fused_backward(
    by_input: Run | None,
    by_weight: Run | None,
    bias: bool,
    conversion: Conversion | None = None,
    dtype: Any = None,
) -> Run:
    """Makes of (grad, weight, input) what autograd wants: gradients by the input, by the weight and
    by the bias, and None for what was given beside them; None for a gradient that is not given.

    ``by_input`` takes grad and weight, ``by_weight`` input and grad; grad is copied at most once.
    ``conversion`` is of the gradient by the weight, and has the bytes of what it converts; the one
    by the bias is of ``dtype``, by default that of grad.
    """
    run = _at_once(by_input, by_weight, conversion)
    convert = None if conversion is None or run is not None else conversion[0]
    if run is None:
        run = _both(by_input, by_weight)
    if not bias and convert is None:
        return run

    def more(dy: Any, weight: Any, input: Any) -> Any:
        dx, dw, _, _ = run(dy, weight, input)
        return dx, dw if convert is None else convert(dw), summed(dy, dtype) if bias else None, None

    return more


def _at_once(
    by_input: Run | None, by_weight: Run | None, conversion: Conversion | None
) -> Run | None:
    """One launch of both and of the conversion; None where there is none."""
    one, other = parts(by_input), parts(by_weight)
    if one is None or other is None:
        return None
    (empty_dx, launch_dx), (empty_dw, launch_dw) = one, other
    # Of dy, weight, dx, input and dw, and of what is converted.
    launches, bytes_ = [launch_dx, launch_dw], list[int]()
    takes: list[tuple[int, ...]] = [(0, 1, 2), (3, 0, 4)]
    if conversion is not None:
        convert, size = conversion
        last = parts(convert)
        if last is None:
            return None
        empty_dw, launch = last
        launches, takes = [*launches, launch], [(0, 1, 2), (3, 0, 5), (5, 4)]
        bytes_ = [size]
    joined = join(launches, takes, 5, bytes_)
    if joined is None:
        return None

    def at_once(dy: Any, weight: Any, input: Any) -> Any:
        dx, dw = empty_dx(), empty_dw()
        joined((dy.data_ptr(), weight.data_ptr(), dx.data_ptr(), input.data_ptr(), dw.data_ptr()))
        return dx, dw, None, None

    return at_once


def _both(by_input: Run | None, by_weight: Run | None) -> Run:
    if by_input is None or by_weight is None:
        return lambda dy, weight, input: (
            None if by_input is None else by_input(dy, weight),
            None if by_weight is None else by_weight(input, dy),
            None,
            None,
        )
    one, other = parts(by_input), parts(by_weight)
    if one is not None and other is not None:
        (empty_dx, launch_dx), (empty_dw, launch_dw) = one, other

        def launched(dy: Any, weight: Any, input: Any) -> Any:
            dx, dw, at = empty_dx(), empty_dw(), dy.data_ptr()
            launch_dx((at, weight.data_ptr(), dx.data_ptr()))
            launch_dw((input.data_ptr(), at, dw.data_ptr()))
            return dx, dw, None, None

        return launched
    if isinstance(by_input, ByNCHW) and isinstance(by_weight, ByNCHW):

        def copied(dy: Any, weight: Any, input: Any) -> Any:
            dy = dy.contiguous()
            dx = by_input.finish(by_input.inner(dy, weight))
            return dx, by_weight.finish(by_weight.inner(input.contiguous(), dy)), None, None

        return copied
    return lambda dy, weight, input: (by_input(dy, weight), by_weight(input, dy), None, None)


def summed(dy: Any, dtype: Any = None) -> Any:
    """The gradient by the bias, of ``dtype``, by default that of ``dy``."""
    return dy.sum((0, 2, 3)) if dtype is None else dy.sum((0, 2, 3), dtype=dtype)
