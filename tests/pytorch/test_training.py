# SPDX-License-Identifier: BSD-3-Clause
"""Quantization-aware training: what is simulated, what is trained, and what it becomes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.fake_quantize import disable_fake_quant

import openneutron
from openneutron.errors import InvalidOptionError
from openneutron.options import QuantizationOptions
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.graph.program import is_dequantize, is_quantize, op_name
from openneutron.pytorch.operators.annotations import annotation_rules
from openneutron.pytorch.quantizer.calibrate import calibrate_and_quantize, converted, prepare_training, set_training
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.quantizer.passes.batch_norm import CONVOLUTIONS

SPEC = NeutronTargetSpec("imxrt700")
LAYERS = (*map(str, CONVOLUTIONS), "aten.linear.default")


class NormAlone(nn.Module):
    """Normalizations that no layer takes: of what is read twice, and of what no layer computes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.before = nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(self.before(x))
        return self.norm(y) + y


def conv(layer: nn.Module, norm: nn.Module, *behind: nn.Module) -> nn.Module:
    return nn.Sequential(layer, norm, *behind)


IMAGE, SIGNAL, MATRIX = (6, 4, 8, 8), (6, 4, 12), (6, 10)
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "conv2d": (lambda: conv(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU()), IMAGE),
    "conv2d without bias": (
        lambda: conv(nn.Conv2d(4, 8, 3, bias=False), nn.BatchNorm2d(8, eps=0.1, momentum=0.3)),
        IMAGE,
    ),
    "depthwise, relu6": (lambda: conv(nn.Conv2d(4, 8, 3, groups=4), nn.BatchNorm2d(8), nn.ReLU6(True)), IMAGE),
    "conv2d same": (lambda: conv(nn.Conv2d(4, 8, 3, padding="same"), nn.BatchNorm2d(8, affine=False)), IMAGE),
    "conv1d": (lambda: conv(nn.Conv1d(4, 8, 3, dilation=2), nn.BatchNorm1d(8), nn.ReLU()), SIGNAL),
    "transposed": (lambda: conv(nn.ConvTranspose2d(4, 6, 2, 2), nn.BatchNorm2d(6), nn.ReLU()), IMAGE),
    "transposed, in groups": (lambda: conv(nn.ConvTranspose2d(4, 6, 3, groups=2), nn.BatchNorm2d(6)), IMAGE),
    "linear": (lambda: conv(nn.Linear(10, 6), nn.BatchNorm1d(6), nn.Hardtanh(0, 3)), MATRIX),
    "linear without bias": (lambda: conv(nn.Linear(10, 6, bias=False), nn.BatchNorm1d(6)), MATRIX),
    "alone, images": (NormAlone, IMAGE),
    "alone, signals": (lambda: nn.BatchNorm1d(4), SIGNAL),
    "alone, matrices": (lambda: nn.Sequential(nn.Linear(10, 6), nn.ReLU(), nn.BatchNorm1d(6)), MATRIX),
}
each_model = pytest.mark.parametrize("name", MODELS)


def made(name: str) -> tuple[nn.Module, torch.Tensor]:
    """The model in eval mode with statistics and factors of all kinds: negative ones, and one that is zero."""
    torch.manual_seed(len(name))
    make, shape = MODELS[name]
    model = make()
    for norm in model.modules():
        if isinstance(norm, (nn.BatchNorm1d, nn.BatchNorm2d)):
            nn.init.normal_(norm.running_mean)
            nn.init.uniform_(norm.running_var, 0.5, 2)
            if norm.affine:
                nn.init.normal_(norm.weight)
                nn.init.normal_(norm.bias)
                norm.weight.data[1] = 0
    return model.eval(), torch.randn(shape)


def prepared(model: nn.Module, x: torch.Tensor) -> GraphModule:
    module = torch.export.export(model, (x,)).module(check_guards=False)
    assert isinstance(module, GraphModule)
    return prepare_training(module, NeutronQuantizer(SPEC, is_qat=True))


def trained(model: GraphModule, x: torch.Tensor, steps: int = 4) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(steps):
        loss = (model(x + step / 10) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@each_model
def test_without_rounding_the_simulation_computes_what_the_model_computes(name: str) -> None:
    """In inference, and in training with its gradients and the statistics that come of it."""
    model, x = made(name)
    simulation = prepared(model, x).apply(disable_fake_quant)
    torch.testing.assert_close(simulation.eval()(x), model(x), rtol=1e-4, atol=1e-5)
    simulation.train()
    theirs = copy.deepcopy(model).train()
    for step in range(3):
        torch.testing.assert_close(simulation(x + step), theirs(x + step), rtol=1e-3, atol=1e-4)
    simulation(x).square().sum().backward()
    theirs(x).square().sum().backward()
    state = simulation.state_dict()
    for key, parameter in theirs.named_parameters():
        ours = simulation.get_parameter(key)
        assert ours.grad is not None and parameter.grad is not None
        torch.testing.assert_close(ours.grad, parameter.grad, rtol=1e-3, atol=5e-3)
    for key, buffer in theirs.named_buffers():
        if not key.endswith("num_batches_tracked"):
            torch.testing.assert_close(state[key], buffer, rtol=1e-4, atol=1e-5)


def stray(module: GraphModule) -> list[str]:
    """Operators that compute on floats."""
    return [
        op_name(node)
        for node in module.graph.nodes
        if node.op == "call_function"
        and op_name(node) in annotation_rules()
        and not any(map(is_dequantize, node.all_input_nodes))
        if not (len(node.all_input_nodes) == 1 and op_name(node.all_input_nodes[0]) in LAYERS)
    ]


def layers(module: GraphModule) -> list[Node]:
    return [node for node in module.graph.nodes if op_name(node) in LAYERS]


@each_model
def test_what_was_trained_is_what_is_converted(name: str) -> None:
    """Nothing of the normalization is left, every bias is int32, and the results are the simulation's up to a step."""
    model, x = made(name)
    simulation = prepared(model, x)
    trained(simulation.train(), x)
    wanted = simulation.eval()(x)
    module = converted(simulation)
    assert not [node for node in module.graph.nodes if "norm" in op_name(node)]
    assert not [node for node in module.graph.nodes if node.op == "call_module"]
    if "transposed" not in name or op_name(layers(module)[0]) in annotation_rules():
        assert not stray(module)
        for layer in layers(module):
            assert is_dequantize(layer.args[2]) and layer.args[2].args[-1] is torch.int32
    (result,) = (node.args[0] for node in module.graph.nodes if node.op == "output")
    step = result[0].args[1] if is_dequantize(result[0]) else 1e-5
    with torch.no_grad():
        apart = (module(x) - wanted).abs().max()
    assert float(apart) <= 1.01 * step


def test_a_channel_without_weight_stays_finite() -> None:
    """Residual networks often begin with normalizations of weight zero."""
    model, x = made("conv2d")
    nn.init.zeros_(model[1].weight)  # type: ignore[index,arg-type]
    simulation = prepared(model, x)
    trained(simulation.train(), x)
    assert all(bool(torch.isfinite(parameter).all()) for parameter in simulation.parameters())
    assert float(simulation.get_parameter("1.weight").abs().sum()) > 0


def test_dropout_and_momentum_keep_their_settings() -> None:
    model = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4, momentum=0.5), nn.Dropout(0.25)).eval()
    x = torch.ones(IMAGE)
    simulation = prepared(model, x)
    (dropout,) = (node for node in simulation.graph.nodes if op_name(node) == "aten.dropout.default")
    assert dropout.args[1:] == (0.25, False)
    simulation.train()
    assert dropout.args[1:] == (0.25, True)
    simulation.eval()
    assert dropout.args[1:] == (0.25, False)


class Branches(nn.Module):
    """A module with shared scales, fixed scales and a concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.right = nn.Sequential(nn.Conv2d(4, 8, 1), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(16, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        both = F.max_pool2d(torch.cat([self.left(x), self.right(x)], 1), 2)
        gate = torch.sigmoid(F.adaptive_avg_pool2d(both, 1))
        return F.softmax(self.head((both * gate).mean((2, 3))), -1)


def parameters(module: GraphModule) -> list[tuple[str, ...]]:
    """For each operator which of its operands and results have a scale in common."""
    found = []
    for node in module.graph.nodes:
        if op_name(node) not in annotation_rules():
            continue
        scales = [source.args[1:3] for source in node.all_input_nodes if is_dequantize(source)]
        scales += [user.args[1:3] for user in node.users if is_quantize(user)]
        numbers = [scales.index(item) if isinstance(item[0], float) else -1 for item in scales]
        found.append((op_name(node), *map(str, numbers)))
    return found


def test_scales_are_shared_and_fixed_as_after_calibration() -> None:
    torch.manual_seed(0)
    model, x = Branches().eval(), torch.randn(IMAGE)
    plain = calibrate_and_quantize(torch.export.export(model, (x,)), [(x,)], NeutronQuantizer(SPEC))
    quantizer = NeutronQuantizer(SPEC, is_qat=True)
    module = calibrate_and_quantize(
        torch.export.export(model, (x,)), [], quantizer, is_qat=True, train_fn=lambda m: trained(m, x)
    )
    assert parameters(module) == parameters(plain)


def test_training_inside_compile_is_one_delegate_call() -> None:
    torch.manual_seed(0)
    model, x = Branches(), torch.randn(IMAGE)
    before = copy.deepcopy(model.state_dict())
    program = openneutron.compile(model, (x,), quantization=QuantizationOptions(train_fn=lambda m: trained(m, x)))
    assert program.delegation.partitions == 1 and not program.delegation.on_cpu
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert float((program.run(x)[0] - program.quantized(x)).abs().max()) <= 2 / 256


def test_calibration_alone_is_enough() -> None:
    model, x = made("conv2d")
    quantizer = NeutronQuantizer(SPEC, is_qat=True)
    done: list[int] = []
    module = calibrate_and_quantize(
        torch.export.export(model, (x,)), [(x,), (x / 2,)], quantizer, is_qat=True, after_sample=done.append
    )
    assert done == [1, 2]
    with torch.no_grad():
        assert float((module(x) - model(x)).abs().max()) < 0.1


def test_a_model_exported_in_training_mode() -> None:
    model, x = made("conv2d")
    module = torch.export.export(model.train(), (x,)).module(check_guards=False)
    assert isinstance(module, GraphModule)
    simulation = prepare_training(module, NeutronQuantizer(SPEC, is_qat=True))
    trained(set_training(simulation, True), x)
    names = {op_name(node) for node in converted(simulation).graph.nodes}
    assert not [name for name in names if "add_" in name or "norm" in name]


def test_weights_computed_from_parameters_are_trained_and_quantized() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(10, 6))
            self.factor = nn.Parameter(torch.ones(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.linear(x, (self.weight * self.factor).t())

    torch.manual_seed(0)
    x = torch.randn(MATRIX)
    simulation = prepared(Shared(), x)
    trained(simulation.train(), x)
    assert float(simulation.get_parameter("factor")) != 1
    module = converted(simulation)
    (layer,) = layers(module)
    assert is_dequantize(layer.args[1]) and layer.args[1].args[0].op == "get_attr"


def test_keeping_a_trained_layer_float() -> None:
    model, x = made("conv2d")
    module = torch.export.export(nn.Sequential(model, nn.Conv2d(8, 2, 1)), (x,)).module(check_guards=False)
    assert isinstance(module, GraphModule)
    simulation = prepare_training(module, NeutronQuantizer(SPEC, is_qat=True).keep_float("0", nn.BatchNorm2d))
    trained(simulation.train(), x)
    simulation.eval()
    wanted = simulation(x)
    first, second = layers(result := converted(simulation))
    assert first.args[1].op == first.args[2].op == "get_attr" and is_dequantize(second.args[2])
    torch.testing.assert_close(result(x), wanted, rtol=0.02, atol=0.02)


def test_a_quantizer_for_the_other_flow() -> None:
    model, x = made("linear")
    program = torch.export.export(model, (x,))
    with pytest.raises(InvalidOptionError) as caught:
        calibrate_and_quantize(program, [(x,)], NeutronQuantizer(SPEC), is_qat=True)
    assert str(caught.value) == (
        "is_qat: it is True, and the quantizer's is False. Pass NeutronQuantizer(spec, is_qat=True)."
    )
    with pytest.raises(InvalidOptionError) as caught:
        calibrate_and_quantize(program, [(x,)], NeutronQuantizer(SPEC), train_fn=lambda m: None)
    assert str(caught.value) == "train_fn: it is for training with quantization simulated. Pass is_qat=True too."


class Reader(nn.Module):
    """A network for 8x8 pictures of digits, with normalizations of both kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.picture = nn.Sequential(nn.Conv2d(1, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.number = nn.Sequential(nn.Linear(72, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.number(F.max_pool2d(self.picture(x), 2).flatten(1))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Several threads add in another order, and a training ends elsewhere."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_digits_are_read_as_well_as_after_calibration_alone() -> None:
    """On the simulated NPU, on 360 test images, up to 2%: float sums in another order end in another network."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    pictures, labels = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 8 - 1, torch.tensor(digits.target)
    train, test = slice(0, 1437), slice(1437, None)
    torch.manual_seed(3)
    generator = torch.Generator().manual_seed(3)

    def learn(model: nn.Module, epochs: int, rate: float) -> None:
        model.train()
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        for _ in range(epochs):
            for chosen in torch.randperm(1437, generator=generator).split(32):
                loss = F.cross_entropy(model(pictures[train][chosen]), labels[train][chosen])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        model.eval()

    model = Reader()
    learn(model, 6, 3e-3)
    example = (pictures[test],)
    calibrated = openneutron.compile(model, example, calibration=[(pictures[:360],)])
    trained_on = openneutron.compile(
        model, example, quantization=QuantizationOptions(train_fn=lambda simulation: learn(simulation, 3, 1e-3))
    )
    results = [program.run(*example)[0] for program in (calibrated, trained_on)]
    right = [int((result.argmax(1) == labels[test]).sum()) for result in results]
    losses = [float(F.cross_entropy(result, labels[test])) for result in results]
    assert trained_on.delegation.partitions == 1 and not trained_on.delegation.on_cpu
    assert right[0] > 300
    assert right[1] >= right[0] - 0.02 * len(labels[test])
    assert losses[1] < 1.1 * losses[0]
