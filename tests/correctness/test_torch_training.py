"""Training with swapped convolutions is training with PyTorch's: memory, processes, modes."""

from __future__ import annotations

import copy
import os
import signal
import threading
import time

import pytest
from tests.support.torch_checks import close

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("only_kernels")]
nn, F = torch.nn, torch.nn.functional

import tilewright.torch as tt  # noqa: E402
from tilewright.torch import calls, kernels  # noqa: E402


def small():
    """A model with a strided depthwise convolution between two dense ones."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 1, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1, groups=8), nn.ReLU(),
        nn.Conv2d(8, 4, 1), nn.Flatten(), nn.LazyLinear(5),
    )  # fmt: skip


def built():
    torch.manual_seed(0)
    model = small()
    model(torch.zeros(1, 3, 8, 8))
    return model


def test_training_goes_as_with_pytorch():
    ours, theirs = built(), built()
    optimizers = [torch.optim.SGD(m.parameters(), 0.1, momentum=0.9) for m in (ours, theirs)]
    tt.optimize_(ours)  # an optimizer made before stays valid
    for _ in range(5):
        x, labels = torch.randn(4, 3, 8, 8), torch.randint(0, 5, (4,))
        for model, optimizer in zip((ours, theirs), optimizers):
            optimizer.zero_grad()
            F.cross_entropy(model(x), labels).backward()
            optimizer.step()
    for a, b in zip(ours.parameters(), theirs.parameters()):
        assert close(a, b, 1e-4)


@pytest.mark.parametrize("frozen", ["", "input", "weight"])
@pytest.mark.parametrize("transposed", [False, True])
def test_autograd_saves_no_more_than_for_pytorchs(frozen, transposed):
    x = torch.randn(2, 8, 9, 9, requires_grad=frozen != "input")
    w = torch.randn(8, 1, 3, 3, requires_grad=frozen != "weight")
    b = torch.randn(8, requires_grad=True)

    def saved(run):
        kept = {}

        def pack(t):
            kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            y = run()
        y.sum().backward()
        return sum(kept.values())

    if transposed:
        ours = saved(lambda: tt.depthwise_conv_transpose2d(x, w, b, 2, 1, 1))
        theirs = saved(lambda: F.conv_transpose2d(x, w, b, 2, 1, 1, 8))
    else:
        ours = saved(lambda: tt.depthwise_conv2d(x, w, b, 2, 1))
        theirs = saved(lambda: F.conv2d(x, w, b, 2, 1, 1, 8))
    assert 0 < ours <= theirs


def test_a_checkpointed_block_has_the_gradients_of_a_plain_one():
    from torch.utils.checkpoint import checkpoint

    model = built()
    tt.optimize_(model)
    x = torch.randn(2, 3, 8, 8)
    plain = torch.autograd.grad(model(x).sum(), model[2].weight)[0]
    again = checkpoint(model, x, use_reentrant=False).sum()
    assert torch.autograd.grad(again, model[2].weight)[0].equal(plain)


def test_deterministic_algorithms_are_the_ones_there_are():
    model, x = built(), torch.randn(8, 3, 8, 8)
    tt.optimize_(model)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # raises where there are none
    try:
        grads = [torch.autograd.grad(model(x).sum(), model[2].weight)[0] for _ in range(3)]
    finally:
        torch.use_deterministic_algorithms(before)
    assert all(g.equal(grads[0]) for g in grads)


# -- several processes ---------------------------------------------------------------------------


def _train(rank, file, results):
    """One of two processes, on its half of the batch."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{file}", rank=rank, world_size=2
    )
    model = built()
    tt.optimize_(model)
    model = nn.parallel.DistributedDataParallel(model)
    torch.manual_seed(1)
    x, labels = torch.randn(4, 3, 8, 8), torch.randint(0, 5, (4,))
    half = slice(2 * rank, 2 * rank + 2)
    F.cross_entropy(model(x[half]), labels[half]).backward()
    if rank == 0:
        torch.save([p.grad for p in model.parameters()], results)
    torch.distributed.barrier()
    os._exit(0)  # destroying groups and models in order is no matter of this test


@pytest.mark.skipif(
    not torch.distributed.is_available(), reason="PyTorch without torch.distributed"
)
def test_processes_of_distributed_training_agree_with_one(tmp_path):
    results = tmp_path / "gradients"
    arguments = str(tmp_path / "meet"), str(results)
    workers = torch.multiprocessing.start_processes(
        _train, arguments, 2, join=False, start_method="spawn"
    )
    end = time.monotonic() + 60
    while not workers.join(timeout=5):
        if time.monotonic() > end:
            for process in workers.processes:
                process.kill()
            pytest.fail("the processes wait for one another")
    model = built()
    torch.manual_seed(1)
    x, labels = torch.randn(4, 3, 8, 8), torch.randint(0, 5, (4,))
    F.cross_entropy(model(x), labels).backward()
    for found, p in zip(torch.load(results), model.parameters(), strict=True):
        assert close(found, p.grad, 1e-4)


class Filtered(torch.utils.data.Dataset):
    """Images that a depthwise convolution goes over where they are loaded."""

    def __init__(self):
        self.blur = tt.DepthwiseConv2d(3, kernel_size=5, padding=2, bias=False)

    def __len__(self):
        return 8

    def __getitem__(self, k):
        image = torch.full((3, 10 + k, 12), float(k))  # a shape that nobody has seen
        with torch.no_grad():
            return self.blur(image).sum()


def test_workers_of_a_loader_have_kernels_after_a_fork():
    data = Filtered()
    data[0]  # kernels and threads are there when it forks
    loader = torch.utils.data.DataLoader(
        data, batch_size=2, num_workers=2, multiprocessing_context="fork", timeout=60
    )
    found = torch.cat(list(loader))
    assert close(found, torch.stack([data[k] for k in range(8)]))


def _exit_code(child, seconds):
    """That of a process, which is killed after so long."""
    end = time.monotonic() + seconds
    while not (found := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(found[1])


def test_a_fork_waits_for_who_compiles(monkeypatch):
    w, started, build = torch.randn(6, 1, 3, 3), threading.Event(), kernels._build
    forked = threading.Event()

    def slow(*args):
        started.set()
        forked.wait(0.3)  # a fork meanwhile would leave the child with a lock for ever
        return build(*args)

    monkeypatch.setattr(kernels, "_build", slow)
    calls.forget()
    thread = threading.Thread(target=lambda: tt.depthwise_conv2d(torch.randn(1, 6, 17, 9), w))
    thread.start()
    assert started.wait(10)
    child = os.fork()
    if not child:
        monkeypatch.undo()
        torch.set_num_threads(1)
        y = tt.depthwise_conv2d(torch.randn(1, 6, 9, 17), w)
        os._exit(0 if y.shape == (1, 6, 7, 15) else 1)
    forked.set()
    assert _exit_code(child, 20) == 0
    thread.join()


def test_copies_in_threads_share_kernels_and_gradients_add_up():
    model = built()
    tt.optimize_(model)
    copies = [copy.deepcopy(model) for _ in range(4)]
    x = torch.randn(4, 3, 8, 8)

    def work(replica, part):
        replica(part).sum().backward()

    threads = [threading.Thread(target=work, args=(m, x[k : k + 1])) for k, m in enumerate(copies)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    model(x).sum().backward()
    assert close(sum(m[2].weight.grad for m in copies), model[2].weight.grad)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_gradient_of_another_memory_format_is_copied_once(compiled):
    """As PyTorch's convolutions do; ConvNeXt's normalisation gives such gradients."""
    x = torch.randn(2, 4, 6, 7, requires_grad=True)
    w = torch.randn(4, 1, 3, 3, requires_grad=True)
    g = torch.randn(2, 4, 6, 7).to(memory_format=torch.channels_last)

    def conv(x, w):
        return tt.depthwise_conv2d(x, w, None, 1, 1)

    run = torch.compile(conv, fullgraph=True, backend="aot_eager") if compiled else conv
    y = run(x, w)
    with torch.profiler.profile() as profile:
        found = torch.autograd.grad(y, (x, w), g)
    copies = [e for e in profile.events() if e.name == "aten::copy_"]
    assert len(copies) == 1
    exact = torch.autograd.grad(F.conv2d(x, w, None, 1, 1, 1, 4), (x, w), g)
    assert all(close(a, b) for a, b in zip(found, exact))
