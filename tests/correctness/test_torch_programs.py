"""What PyTorch makes programs of takes a swapped model as it took the model before: tracers,
scripts, exporters, and what counts operations."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
import warnings

import pytest
from tests.support.torch_checks import error

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("only_kernels", "plain_code")]
nn = torch.nn

from tests.support.sequences import sequence  # noqa: E402

import tilewright.torch as tt  # noqa: E402


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def flat(padding, mode="zeros"):
    return nn.Conv1d(4, 8, 3, padding=padding, groups=4, padding_mode=mode), (4, 10)


def convolution(padding, **more):
    settings = {"padding": padding, "groups": 4} | more
    return nn.Conv2d(4, 8, (3, 5), **settings), (4, 9, 10)


def transposed(out, **more):
    return nn.ConvTranspose2d(4, out, 3, padding=1, groups=4, **more), (4, 9, 10)


#: By name, what makes a layer and the shape of an image without its batch.
LAYERS = {
    "plain": lambda: convolution((2, 1)),
    "without bias": lambda: convolution("valid", bias=False),
    "strides": lambda: convolution(2, stride=(2, 1), dilation=(1, 2)),
    "same": lambda: convolution("same"),
    "reflect": lambda: convolution((1, 2), padding_mode="reflect"),
    "circular, same": lambda: convolution("same", padding_mode="circular"),
    "flat": lambda: flat(1),
    "flat, same, replicate": lambda: flat("same", "replicate"),
    "transposed": lambda: transposed(4),
    "transposed, multiplier": lambda: transposed(8, stride=2, output_padding=1),
    "followed": lambda: (sequence(nn.Hardswish(), 4), (4, 9, 10)),
    "followed, multiplier": lambda: (sequence(None, 4, out_channels=8, bias=True), (4, 9, 10)),
}


@pytest.fixture(params=LAYERS)
def layer(request):
    """A model of one layer, the swapped one, which was called before, and the shape of an image."""
    module, shape = LAYERS[request.param]()
    model = nn.Sequential(module).eval()
    other = copy.deepcopy(model)
    assert tt.optimize_(other).replaced
    with torch.no_grad():
        for _ in range(3):
            other(torch.randn(2, *shape))
    return model, other, shape


def images(shape):
    """Of other sizes than what was traced, too."""
    larger = (shape[0], *(n + 3 for n in shape[1:]))
    return [torch.randn(2, *shape), torch.randn(1, *larger)]


def nodes(graph_module):
    return [(node.op, node.target) for node in graph_module.graph.nodes]


def test_fx_traces_the_same_graph(layer):
    model, other, shape = layer
    traced = torch.fx.symbolic_trace(other)
    assert nodes(traced) == nodes(torch.fx.symbolic_trace(model))
    for made in (traced, pickle.loads(pickle.dumps(traced)), copy.deepcopy(traced)):
        for x in images(shape):
            assert error(made(x), model(x)) < 1e-5


@pytest.mark.parametrize("training", [False, True])
def test_fx_traces_functions_and_modules_in_training(training):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.own, self.unit = nn.Parameter(torch.randn(4, 1, 3, 3)), sequence(nn.ReLU6(), 4)

        def forward(self, x):
            x = tt.depthwise_conv2d(self.unit(x), self.own, padding=1)
            x = tt.depthwise_conv_transpose2d(x, self.own, None, 2)
            return tt.depthwise_conv1d(x.flatten(2), self.own[:, :, 1], padding="same")

    model = Model().train(training)
    before = nodes(torch.fx.symbolic_trace(model))
    tt.optimize_(model)
    traced = torch.fx.symbolic_trace(model)
    assert nodes(traced) == before
    x = torch.randn(2, 4, 9, 10)
    assert error(traced(x), model(x)) < 1e-6


def test_quantisation_leaves_what_is_swapped_as_it_is():
    quantize_fx = pytest.importorskip("torch.ao.quantization.quantize_fx")
    engines = set(torch.backends.quantized.supported_engines) & {"x86", "fbgemm", "qnnpack"}
    if not engines:
        pytest.skip("this PyTorch has no engine for quantised operators")
    model = nn.Sequential(nn.Conv2d(4, 4, 1), sequence(nn.ReLU(), 4), nn.Conv2d(4, 4, 1)).eval()
    other = copy.deepcopy(model)
    tt.optimize_(other)
    x = torch.randn(2, 4, 9, 10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is to be replaced
        mapping = torch.ao.quantization.get_default_qconfig_mapping(min(engines))
        made = quantize_fx.prepare_fx(other, mapping, (x,))
        made(x)
        made = quantize_fx.convert_fx(made)
    assert type(made.get_submodule("1.0")) is tt.DepthwiseConv2d
    assert error(made(x), model(x)) < 0.1


@pytest.mark.parametrize("made_by", ["script", "trace"])
def test_torchscript_computes_the_same(made_by, layer):
    model, other, shape = layer
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("error", torch.jit.TracerWarning)
        if made_by == "script":
            program = torch.jit.script(other)
        else:
            program = torch.jit.trace(other, torch.randn(2, *shape))
        file = io.BytesIO()
        torch.jit.save(program, file)
        file.seek(0)
        program = torch.jit.load(file)
    assert list(program.state_dict()) == list(model.state_dict())
    # What is transposed is PyTorch's, whose operator finds out the size by itself.
    is_transposed = isinstance(model[0], nn.ConvTranspose2d)
    assert ("tilewright::depthwise_conv2d" in str(program.inlined_graph)) is not is_transposed
    for x in images(shape):
        assert error(program(x), model(x)) < 1e-5
        with torch.autocast("cpu", torch.bfloat16):
            found, wanted = program(x), model(x)
        assert found.dtype == wanted.dtype
        assert error(found, wanted) < 2e-2
    if made_by == "script" and isinstance(model[0], nn.modules.conv._ConvNd):
        x = torch.randn(shape)  # without a batch
        assert error(program(x), model(x)) < 1e-5


def onnx_file(model, x, dynamo, **more):
    """What an exporter writes, and what ONNX Runtime computes by it."""
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            torch.onnx.export(model, (x,), dynamo=True, verbose=False, **more).save(file)
        else:
            torch.onnx.export(model, (x,), file, dynamo=False, **more)
    session = onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return file.getvalue(), lambda x: torch.from_numpy(session.run(None, {name: x.numpy()})[0])


def operators_of(content):
    onnx = pytest.importorskip("onnx")
    return [(node.domain, node.op_type) for node in onnx.load_from_string(content).graph.node]


def whole():
    """A model with all kinds of layers that are swapped, and an image."""
    model = nn.Sequential(
        sequence(nn.Hardswish(), 4), nn.Conv2d(4, 8, (2, 3), padding="same", groups=4),
        nn.ConvTranspose2d(8, 8, 3, 2, 1, 1, groups=8), nn.ConvTranspose2d(8, 8, (3, 2), groups=8),
        nn.Flatten(2), nn.Conv1d(8, 8, 5, groups=8, padding_mode="zeros", padding=2),
    ).eval()  # fmt: skip
    other = copy.deepcopy(model)
    assert len(tt.optimize_(other).replaced) == 5
    return model, other, torch.randn(2, 4, 9, 10)


def test_the_exporter_by_traces_writes_standard_onnx(layer):
    model, other, shape = layer
    x = torch.randn(2, *shape)
    content, run = onnx_file(other, x, False)
    assert operators_of(content) == operators_of(onnx_file(model, x, False)[0])
    assert error(run(x), model(x)) < 1e-5


def test_the_exporter_by_export_writes_standard_onnx():
    model, other, x = whole()
    content, run = onnx_file(other, x, True)
    assert not any("tilewright" in domain for domain, _ in operators_of(content))
    assert error(run(x), model(x)) < 1e-5


EXTENTS = torch.export.Dim.DYNAMIC


@pytest.mark.parametrize("grad", [False, True])
def test_a_portable_program_has_none_of_our_operators(grad):
    model, other, x = whole()
    with torch.set_grad_enabled(grad):
        program = torch.export.export(other, (x,), dynamic_shapes=({0: EXTENTS, 3: EXTENTS},))
        made = tt.portable(program)
    assert "tilewright" in str(program.graph)
    assert "tilewright" not in str(made.graph)
    assert set(made.state_dict) == set(model.state_dict())
    for image in (x, torch.randn(3, 4, 9, 15)):
        assert error(made.module()(image), model(image)) < 1e-5


def test_a_portable_program_is_written_as_onnx():
    model, other, x = whole()
    _, run = onnx_file(tt.portable(torch.export.export(other, (x,))), x, True)
    assert error(run(x), model(x)) < 1e-5


ELSEWHERE = """
import sys, torch
folder = sys.argv[1]
def why(load, name):
    try:
        load(f"{folder}/{name}")
    except Exception as error:
        return str(error)
answers = [why(torch.jit.load, "program.pt")]
portable = torch.export.load(f"{folder}/portable.pt2").module()
assert not any(name.startswith("tilewright") for name in sys.modules)
x = torch.load(f"{folder}/x.pt")
results = [portable(x)]
results.append(torch.load(f"{folder}/model.pt", weights_only=False)(x))
assert "tilewright.torch" in sys.modules  # which the model's classes have brought
results.append(torch.export.load(f"{folder}/program.pt2").module()(x))
results.append(torch.jit.load(f"{folder}/program.pt")(x))
torch.save((answers, results), f"{folder}/answers.pt")
"""


def test_what_is_saved_is_loaded_elsewhere(tmp_path):
    model = nn.Sequential(sequence(nn.ReLU(), 4), nn.Conv2d(4, 4, 3, groups=4)).eval()
    other, x = copy.deepcopy(model), torch.randn(2, 4, 9, 10)
    tt.optimize_(other)
    with torch.no_grad():
        program = torch.export.export(other, (x,))
        torch.export.save(program, tmp_path / "program.pt2")
        torch.export.save(tt.portable(program), tmp_path / "portable.pt2")
        torch.jit.save(torch.jit.trace(other, x), tmp_path / "program.pt")
    torch.save(other, tmp_path / "model.pt")
    torch.save(x, tmp_path / "x.pt")
    subprocess.run([sys.executable, "-c", ELSEWHERE, tmp_path], check=True, timeout=120)
    answers, results = torch.load(tmp_path / "answers.pt")
    assert "tilewright::depthwise_conv2d" in answers[0]
    assert [error(found, model(x)) < 1e-5 for found in results] == [True] * 4


def counted(run):
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def test_operations_are_counted(layer):
    model, other, shape = layer
    x = torch.randn(2, *shape)
    wanted = counted(lambda: model(x))
    assert wanted > 0
    for without in (torch.no_grad, torch.enable_grad):
        with without():
            assert counted(lambda: other(x)) == wanted


def test_operations_of_gradients_are_counted_as_often_as_they_are_done():
    """Each gradient takes what the convolution does. PyTorch's formula leaves out that the gradient
    by a weight has groups, so that it is right for one channel."""
    for channels in (1, 4):
        model = nn.Sequential(nn.Conv2d(channels, channels, 3, 2, groups=channels))
        model[0].__class__ = tt.DepthwiseConv2d
        x = torch.randn(2, channels, 9, 10, requires_grad=True)
        once = counted(lambda model=model, x=x: model(x))
        assert counted(lambda model=model, x=x: model(x).sum().backward()) == 3 * once
    plain = nn.Conv2d(1, 1, 3, 2)
    x = torch.randn(2, 1, 9, 10, requires_grad=True)
    assert counted(lambda: plain(x).sum().backward()) == 3 * counted(lambda: plain(x))


def test_operations_of_exported_programs_are_counted():
    model, x = nn.Sequential(sequence(nn.ReLU(), 4)), torch.randn(2, 4, 9, 10)
    with torch.no_grad():
        wanted = counted(lambda: model(x))
        tt.optimize_(model)
        program = torch.export.export(model, (x,))
        assert "depthwise_conv2d_norm" in str(program.graph)
        assert counted(lambda: program.module()(x)) == wanted
