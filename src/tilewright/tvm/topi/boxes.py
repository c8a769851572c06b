"""``tvm.topi.vision``: boxes of detectors, and regions of interest.

What keeps some of many boxes is written in statements, one after the other: for target "llvm".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te
from tilewright.ir.errors import LanguageError
from tilewright.te import Tensor
from tilewright.tvm import ir_builder
from tilewright.tvm.topi.displaced import VISION
from tilewright.tvm.topi.elements import nearest, one
from tilewright.tvm.topi.indexing import argsort
from tilewright.tvm.topi.shapes import unravel_index
from tilewright.tvm.topi.transform import integers, moved, number, reshape


def reorg(data: Tensor, stride: int) -> Any:
    """Darknet's rearrangement of an image (N, C, H, W) into (N, C * s * s, H / s, W / s)."""
    n, c, h, w = data.shape
    wide = te.floordiv(c, stride * stride)

    def element(b: Any, k: Any, y: Any, x: Any) -> Any:
        part = te.floordiv(k, wide)
        row = y * stride + te.floordiv(part, stride)
        column = x * stride + te.floormod(part, stride)
        flat = (te.floormod(k, wide) * (h * stride) + row) * (w * stride) + column
        return data(b, *unravel_index(flat, data.shape[1:]))

    made = moved(data.shape, element, "reorg")
    return reshape(made, (n, c * stride * stride, te.floordiv(h, stride), te.floordiv(w, stride)))


def multibox_prior(
    data: Tensor, sizes: Sequence[float] = (1,), ratios: Sequence[float] = (1,),
    steps: Sequence[float] = (-1, -1), offsets: Sequence[float] = (0.5, 0.5), clip: bool = False,
) -> Any:  # fmt: skip
    """Boxes (left, upper, right, lower), in parts of the image, around every place of ``data``."""
    height, width = integers(data.shape[2:])
    sizes, ratios, steps, offsets = (
        [number(v) for v in g] for g in (sizes, ratios, steps, offsets)
    )
    kinds = [(s * height / width / 2, s / 2) for s in sizes]
    kinds += [
        (sizes[0] * height / width * math.sqrt(r) / 2, sizes[0] / math.sqrt(r) / 2)
        for r in ratios[1:]
    ]
    many = len(kinds)

    def pick(kind: Any, which: int) -> Any:
        found: Any = te.const(kinds[0][which], "float32")
        for k in range(1, many):
            found = te.Select(kind.equal(k), te.const(kinds[k][which], "float32"), found)
        return found

    def element(_: Any, box: Any, side: Any) -> Any:
        kind, place = te.floormod(box, many), te.floordiv(box, many)
        found = []
        for k, (v, e) in enumerate(
            ((te.floormod(place, width), width), (te.floordiv(place, width), height))
        ):
            step = steps[1 - k] if steps[1 - k] > 0 else 1.0 / e
            centre = (v.astype("float32") + offsets[1 - k]) * te.const(step, "float32")
            found.append((centre, pick(kind, k)))
        (x, w), (y, h) = found
        low = te.Select(side.equal(0), x - w, y - h)
        return te.Select(side < 2, low, te.Select(side.equal(2), x + w, y + h))

    made = moved((1, height * width * many, 4), element, "multibox_prior")
    return one("clip")(made, 0.0, 1.0) if clip else made


class _Lines:
    """Statements over the rows of a batch, one after the other."""

    def __init__(self, ins: Any, outs: Any) -> None:
        self.ib = ir_builder.create()
        self.ins = [self.ib.buffer_ptr(b) for b in ins]
        self.outs = [self.ib.buffer_ptr(b) for b in outs]

    def counter(self) -> Any:
        found = self.ib.allocate("int32", (1,), "count", scope="local")
        found[0] = te.const(0, "int32")
        return found


def get_valid_counts(
    data: Tensor, score_threshold: Any = 0, id_index: int = 0, score_index: int = 1
) -> list[Any]:
    """How many boxes of each image have a score above the threshold (int32); these boxes, in their
    order; their numbers (int32). What is behind them is -1."""
    batch, anchors, length = integers(data.shape)
    inputs = [data, *([score_threshold] if isinstance(score_threshold, Tensor) else [])]

    def body(ins: Any, outs: Any) -> Any:
        r = _Lines(ins, outs)
        boxes, (counts, kept, numbers) = r.ins[0], r.outs
        threshold = r.ins[1][0] if len(ins) > 1 else te.const(number(score_threshold), data.dtype)
        with r.ib.for_range(0, batch, "b") as b:
            with r.ib.for_range(0, anchors, "j") as j:
                numbers[b, j] = te.const(-1, "int32")
                with r.ib.for_range(0, length, "k") as k:
                    kept[b, j, k] = te.const(-1, data.dtype)
            counts[b] = te.const(0, "int32")
            with r.ib.for_range(0, anchors, "i") as i:
                valid = boxes[b, i, score_index] > threshold
                if id_index >= 0:
                    valid = te.all(valid, boxes[b, i, id_index] >= te.const(0, data.dtype))
                with r.ib.if_scope(valid):
                    at = r.ib.let("at", nearest(counts[b], anchors))
                    with r.ib.for_range(0, length, "k") as k:
                        kept[b, at, k] = boxes[b, i, k]
                    numbers[b, at] = i
                    counts[b] = at + 1
        return r.ib.get()

    return list(
        te.extern(
            [(batch,), data.shape, (batch, anchors)], inputs, body, "get_valid_counts",
            ["int32", data.dtype, "int32"],
        )
    )  # fmt: skip


def non_max_suppression(
    data: Tensor, valid_count: Tensor, indices: Tensor, max_output_size: Any = -1,
    iou_threshold: Any = 0.5, force_suppress: bool = False, top_k: int = -1, coord_start: int = 2,
    score_index: int = 1, id_index: int = 0, return_indices: bool = True,
    invalid_to_bottom: bool = False,
) -> Any:  # fmt: skip
    """The boxes that overlap no box of a higher score by ``iou_threshold`` or more, by score.

    Suppressed ones are -1 where they stood; with ``return_indices`` the numbers of the boxes in the
    data that they come from, first those that are kept, and how many they are.
    """
    batch, anchors, length = integers(data.shape)
    if isinstance(max_output_size, Tensor) or isinstance(iou_threshold, Tensor):
        raise LanguageError(
            "non_max_suppression: give max_output_size and iou_threshold as numbers"
        )
    most, threshold = int(number(max_output_size)), float(number(iou_threshold))
    scores = te.compute(
        (batch, anchors),
        lambda b, i: te.Select(
            i < valid_count(b), data(b, i, score_index), te.min_value(data.dtype)
        ),
        "nms_scores", tag="injective",
    )  # fmt: skip
    order = argsort(scores, axis=1, is_ascend=0, dtype="int32")
    type = data.dtype

    def body(ins: Any, outs: Any) -> Any:
        r = _Lines(ins, outs)
        ib, (boxes, counts, numbers, first), (out, chosen) = r.ib, r.ins, r.outs

        def corner(b: Any, i: Any, k: int, pick: Any) -> Any:
            return pick(out[b, i, coord_start + k], out[b, i, coord_start + k + 2])

        def area(b: Any, i: Any) -> Any:
            wide, high = (corner(b, i, k, te.max) - corner(b, i, k, te.min) for k in (0, 1))
            return wide * high

        with ib.for_range(0, batch, "b") as b:
            kept = r.counter()
            valid = ib.let("valid", te.max(te.min(counts[b], anchors), 0))
            taken = ib.let("taken", te.min(valid, top_k) if top_k > 0 else valid)
            with ib.for_range(0, anchors, "i") as i:
                source = ib.let("source", nearest(first[b, i], anchors))
                with ib.for_range(0, length, "k") as k:
                    value = boxes[b, source, k]
                    out[b, i, k] = te.if_then_else(i < taken, value, te.const(-1, type))
                found = numbers[b, source] if return_indices else source
                chosen[b, i] = te.if_then_else(i < taken, found, te.const(-1, "int32"))
            alive = ib.allocate("int32", (1,), "alive", scope="local")
            with ib.for_range(0, anchors, "i") as i:
                none = te.const(0, type)
                alive[0] = (out[b, i, score_index] > none).astype("int32")
                if most >= 0:
                    alive[0] = te.Select(kept[0] < most, alive[0], te.const(0, "int32"))
                with ib.for_range(0, i, "j") as j:
                    rival = out[b, j, score_index] > none
                    if id_index >= 0 and not force_suppress:
                        rival = te.all(rival, out[b, i, id_index].equal(out[b, j, id_index]))
                    with ib.if_scope(te.all(alive[0] > 0, rival)):
                        sides = [
                            te.max(
                                te.min(corner(b, i, k, te.max), corner(b, j, k, te.max))
                                - te.max(corner(b, i, k, te.min), corner(b, j, k, te.min)),
                                none,
                            )
                            for k in (0, 1)
                        ]
                        common = ib.let("common", sides[0] * sides[1])
                        whole = ib.let("whole", area(b, i) + area(b, j) - common)
                        close = te.all(whole > none, common >= whole * te.const(threshold, type))
                        alive[0] = te.Select(close, te.const(0, "int32"), alive[0])
                with ib.if_scope(alive[0] > 0):
                    kept[0] = kept[0] + 1
                with ib.else_scope():
                    with ib.for_range(0, length, "k") as k:
                        out[b, i, k] = te.const(-1, type)
                    chosen[b, i] = te.const(-1, "int32")
        return ib.get()

    inputs = [data, valid_count, indices, order]
    kept, places = te.extern(
        [data.shape, (batch, anchors)], inputs, body, "non_max_suppression", [str(type), "int32"]
    )
    if return_indices:
        return list(_to_top(places))
    return _rows_to_top(kept) if invalid_to_bottom else kept


def _to_top(places: Tensor) -> Any:
    """Numbers that are not -1 first, and how many there are, a column."""
    batch, anchors = integers(places.shape)

    def body(ins: Any, outs: Any) -> Any:
        r = _Lines(ins, outs)
        (source,), (out, counts) = r.ins, r.outs
        with r.ib.for_range(0, batch, "b") as b:
            with r.ib.for_range(0, anchors, "i") as i:
                out[b, i] = te.const(-1, "int32")
            counts[b, 0] = te.const(0, "int32")
            with r.ib.for_range(0, anchors, "i") as i, r.ib.if_scope(source[b, i] >= 0):
                at = r.ib.let("at", nearest(counts[b, 0], anchors))
                out[b, at] = source[b, i]
                counts[b, 0] = at + 1
        return r.ib.get()

    return te.extern(
        [(batch, anchors), (batch, 1)], [places], body, "rearrange_indices", ["int32", "int32"]
    )


def _rows_to_top(boxes: Tensor) -> Any:
    """Boxes whose first number is not negative first, -1 behind them."""
    return get_valid_counts(boxes, -0.5, -1, 0)[1]


def multibox_transform_loc(
    cls_prob: Tensor, loc_pred: Tensor, anchor: Tensor, clip: bool = True, threshold: float = 0.01,
    variances: Sequence[float] = (0.1, 0.1, 0.2, 0.2), keep_background: bool = False,
) -> Any:  # fmt: skip
    """What a detector has found: boxes (class, score, left, upper, right, lower), those that are
    no background first, and how many these are in each image (int32)."""
    batch, classes, anchors = integers(cls_prob.shape)
    type, by = loc_pred.dtype, [number(v) for v in variances]
    start = 0 if keep_background else 1

    def body(ins: Any, outs: Any) -> Any:
        r = _Lines(ins, outs)
        ib, (prob, loc, boxes), (out, counts) = r.ib, r.ins, r.outs
        score = ib.allocate(str(type), (1,), "score", scope="local")
        label = ib.allocate("int32", (1,), "label", scope="local")
        with ib.for_range(0, batch, "b") as b:
            with ib.for_range(0, anchors, "i") as i, ib.for_range(0, 6, "k") as k:
                out[b, i, k] = te.const(-1, type)
            counts[b] = te.const(0, "int32")
            with ib.for_range(0, anchors, "i") as i:
                score[0], label[0] = te.const(-1, type), te.const(0, "int32")
                with ib.for_range(start, classes, "k") as k:
                    value = ib.let("value", prob[b, k, i])
                    label[0] = te.Select(value > score[0], k.astype("int32"), label[0])
                    score[0] = te.max(value, score[0])
                weak = score[0] < te.const(threshold, type)
                label[0] = te.Select(weak, te.const(0, "int32"), label[0])
                with ib.if_scope(te.const(True) if keep_background else label[0] > 0):
                    at = ib.let("at", nearest(counts[b], anchors))
                    out[b, at, 0] = (label[0] - start).astype(type)
                    out[b, at, 1] = score[0]
                    for k in (0, 1):
                        low, high = boxes[0, i, k], boxes[0, i, k + 2]
                        size, centre = high - low, (low + high) / te.const(2, type)
                        middle = loc[b, i * 4 + k] * te.const(by[k], type) * size + centre
                        half = te.exp(loc[b, i * 4 + k + 2] * te.const(by[k + 2], type))
                        half = half * size / te.const(2, type)
                        for side, value in ((k, middle - half), (k + 2, middle + half)):
                            if clip:
                                value = te.max(te.min(value, te.const(1, type)), te.const(0, type))
                            out[b, at, 2 + side] = value
                    counts[b] = at + 1
        return ib.get()

    return te.extern(
        [(batch, anchors, 6), (batch,)], [cls_prob, loc_pred, anchor], body,
        "multibox_transform_loc", [str(type), "int32"],
    )  # fmt: skip


def multibox_detection(
    cls_prob: Tensor, loc_pred: Tensor, anchor: Tensor, clip: bool = True, threshold: float = 0.01,
    nms_threshold: float = 0.5, force_suppress: bool = False,
    variances: Sequence[float] = (0.1, 0.1, 0.2, 0.2), nms_topk: int = -1,
) -> Any:  # fmt: skip
    """:func:`multibox_transform_loc`, and of its boxes those that :func:`non_max_suppression`
    keeps."""
    boxes, counts = multibox_transform_loc(cls_prob, loc_pred, anchor, clip, threshold, variances)
    own = te.compute(boxes.shape[:2], lambda b, i: i.astype("int32"), "own_index", tag="injective")
    return non_max_suppression(
        boxes, counts, own, -1, nms_threshold, force_suppress, nms_topk, return_indices=False
    )


NAMES: dict[str, Callable[..., Any]] = {
    **VISION,
    **{
        f.__name__: f
        for f in (
            get_valid_counts, multibox_detection, multibox_prior, multibox_transform_loc,
            non_max_suppression, reorg,
        )
    },
}  # fmt: skip
