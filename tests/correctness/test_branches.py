"""Branches of a graph on two streams: who waits for whom, and which memory is shared."""

from __future__ import annotations

from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.models import NETWORKS

import tilewright
from tilewright.graph import cuda_state
from tilewright.graph.branches import branches
from tilewright.graph.cuda_state import CudaState
from tilewright.graph.executor import _lifetimes, _reads, kernels_of
from tilewright.graph.pipeline import optimized
from tilewright.target import Target


@st.composite
def graphs(draw):
    """Of each step, the earlier ones that it reads."""
    count = draw(st.integers(1, 14))
    return [
        draw(st.frozensets(st.integers(0, k - 1), max_size=3)) if k else frozenset()
        for k in range(count)
    ]


def before(streams, waits):
    """Of each step, those that are done before it begins, whatever runs how long."""
    found = []
    for k, awaited in enumerate(waits):
        own = [j for j in range(k) if streams[j] == streams[k]][-1:]
        sources = own + ([] if awaited is None else [awaited])
        found.append(set(sources).union(*(found[j] for j in sources)))
    return found


@given(graphs())
def test_what_a_step_reads_is_done_before_it(reads):
    found = branches(reads)
    done = before(found.streams, found.waits)
    assert all(set(sources) <= done[k] for k, sources in enumerate(reads))


@given(graphs())
def test_what_is_read_is_kept_until_no_step_may_run_that_is_not_behind_it(reads):
    found = branches(reads)
    done = before(found.streams, found.waits)
    for k, until in enumerate(found.until):
        assert until >= k
        assert until == k or k not in done[until]
        assert all(k in done[later] for later in range(until + 1, len(reads)))


def test_a_chain_is_one_stream():
    found = branches([(), (0,), (1, 0), (2,), (3, 1)])
    assert set(found.streams) == {0}
    assert set(found.waits) == {None}
    assert found.until == (0, 1, 2, 3, 4)


def steps_of(name):
    model = tilewright.load(NETWORKS[name]().model())
    graph = model.graph({"x": np.zeros((1, 3, 32, 32), "float32")})
    graph = optimized(graph, target=Target.parse("cuda -arch=sm_90a"))
    return graph, kernels_of(graph)


@pytest.mark.needs_onnx
@pytest.mark.parametrize(
    ("name", "beside"),
    [("resnet", True), ("inception", True), ("mobilenet", False), ("squeeze_excite", False)],
)
def test_networks_with_branches_have_two_streams(name, beside):
    _, nodes = steps_of(name)
    assert (set(branches(_reads(nodes)).streams) == {0, 1}) == beside


@pytest.mark.needs_onnx
@pytest.mark.parametrize("name", ["resnet", "inception"])
def test_memory_is_written_once_all_that_read_what_was_there_are_done(name):
    graph, nodes = steps_of(name)
    reads = _reads(nodes)
    found = branches(reads)
    done = before(found.streams, found.waits)
    lives, numbers = _lifetimes(graph, nodes, found)
    place = {n: k for k, n in enumerate(nodes)}
    values = [(place[value], lives[k]) for value, k in numbers.items()]
    for writer, life in values:
        users = {writer, *(k for k, sources in enumerate(reads) if writer in sources)}
        for other, later in values:
            if life.end < later.begin:
                assert users <= done[other]


class Stream:
    """Notes what comes on it: launches, moments and waits for these."""

    notes: ClassVar[list[tuple[object, ...]]] = []

    def __init__(self, _: object = None) -> None:
        self.handle = id(self)

    def mark(self):
        moment = object()
        self.notes.append((self.handle, "mark", moment))
        return moment

    def wait_until(self, moment):
        self.notes.append((self.handle, "wait", moment))


@given(graphs())
def test_a_recording_has_the_waits_of_its_branches(reads):
    Stream.notes = notes = []
    state = CudaState.__new__(CudaState)
    found = branches(reads)
    state.executor = SimpleNamespace(branches=found)
    state.device, state.stream, state._other = SimpleNamespace(ordinal=0), Stream(), None

    def launch(pointers, scalars, stream, ordinal):
        notes.append((stream, "launch", pointers))

    state._launches = [(launch, (k,), ()) for k in range(len(reads))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_state, "Stream", Stream)
        state._beside(state.stream.handle)

    # What is done before each launch, as a stream has what it had and what it waited for.
    has: dict[object, set[int]] = {}
    moments: dict[object, set[int]] = {}
    seen = []
    for stream, what, x in notes:
        own = has.setdefault(stream, set())
        if what == "mark":
            moments[x] = set(own)
        elif what == "wait":
            own |= moments[x]
        else:
            (k,) = x
            seen.append((k, set(own)))
            own.add(k)
    assert [k for k, _ in seen] == list(range(len(reads)))
    assert all(done >= set(reads[k]) for k, done in seen)
    assert has[state.stream.handle] == set(range(len(reads)))


@pytest.mark.needs_onnx
@pytest.mark.needs_cuda
@pytest.mark.parametrize("name", ["resnet", "inception"])
def test_recorded_branches_compute_what_kernels_in_order_do(name):
    data = NETWORKS[name]().model()
    recorded, launched = (
        tilewright.load(data, target="cuda", capture=capture) for capture in (True, False)
    )
    rng = np.random.default_rng(0)
    for _ in range(6):
        x = rng.standard_normal((1, 3, 32, 32)).astype("float32")
        assert np.array_equal(recorded(x), launched(x))
