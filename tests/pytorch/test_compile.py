# SPDX-License-Identifier: BSD-3-Clause
"""openneutron.compile: options, borders, what it refuses and how."""

from __future__ import annotations

import copy
import json
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import openneutron
from openneutron.api.pytorch import CompiledModel, analyse
from openneutron.device import pte
from openneutron.errors import BudgetError, InvalidModelError, InvalidOptionError, OpenNeutronError, OpenNeutronWarning
from openneutron.options import CompileOptions, DelegationOptions, QuantizationOptions
from tests.pytorch.small_models import IMAGE, Around, outputs_of, without_lines

EXAMPLE = (torch.randn(IMAGE, generator=torch.Generator().manual_seed(0)),)


def small() -> nn.Module:
    torch.manual_seed(5)
    return Around(lambda m, x: F.relu(m.point(torch.topk(m.conv(x), 12)[0]))).eval()


def whole() -> nn.Module:
    torch.manual_seed(5)
    return Around(lambda m, x: F.relu(m.point(m.conv(x)))).eval()


def compile_small(**options: Any) -> CompiledModel:
    arguments: dict[str, Any] = {"calibration": [EXAMPLE], "name": "small"} | options
    return openneutron.compile(arguments.pop("model", None) or small(), EXAMPLE, **arguments)


@pytest.mark.parametrize("channels_last", [None, False, True])
@pytest.mark.parametrize("on_npu", [False, True])
def test_partly_delegated_models_compute_the_same_in_any_layout(channels_last: bool | None, on_npu: bool) -> None:
    torch.manual_seed(5)
    program = compile_small(
        model=Around(lambda m, x: F.relu(m.point(torch.sigmoid(m.conv(x))))).eval(),
        delegation=DelegationOptions(
            operators_not_to_delegate=["aten.sigmoid"], use_neutron_for_format_conversion=on_npu
        ),
        quantization=QuantizationOptions(channels_last=channels_last),
    )
    assert len(program.partitions) == 2
    (output,) = program.run(*EXAMPLE)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    (wanted,) = outputs_of(program.quantized(EXAMPLE[0].contiguous(memory_format=layout)))
    step = program.partitions[1].graph[program.partitions[1].graph.outputs[0]].quant.scale
    assert float((output - wanted).abs().max()) <= 2.01 * step
    transposes = [n for part in program.partitions for n in part.graph.nodes if n.op == "transpose"]
    assert len(transposes) == (4 if on_npu and not channels_last else 0)


def test_int8_borders() -> None:
    program = openneutron.compile(
        whole(), EXAMPLE, calibration=[EXAMPLE], quantization=QuantizationOptions(io_dtype="int8")
    )
    graph = program.partitions[0].graph
    quant = graph[graph.inputs[0]].quant
    stored = torch.clamp(torch.round(EXAMPLE[0] / quant.scale) + quant.zero_point, -128, 127).to(torch.int8)
    (output,) = program.run(stored)
    assert output.dtype == torch.int8
    result = graph[graph.outputs[0]].quant
    wanted = outputs_of(program.quantized(*EXAMPLE))[0]
    assert float(((output.float() - result.zero_point) * result.scale - wanted).abs().max()) <= 1.01 * result.scale


def test_reasons_are_there_without_asking() -> None:
    program = compile_small()
    (stays,) = program.delegation.on_cpu
    assert (stays.operator, stays.node, stays.reason) == (
        "aten.topk",
        "aten_topk_default",
        "it puts values in order, for which there is no kernel",
    )
    assert stays.line.startswith("small_models.py:")
    assert str(stays).startswith(
        f"aten.topk 'topk ({stays.line})' stays on the CPU: it puts values in order, for which there is no kernel. "
    )
    assert "it puts values in order" in program.summary()
    names = [without_lines(item.name) for item in program.delegation.on_npu]
    assert names == ["conv", "point", "relu (small_models.py)"]


def test_the_report_is_data(tmp_path: Path) -> None:
    program = compile_small()
    data = json.loads(json.dumps(program.report.to_dict(details=True)))
    assert data["operators"] == len(data["delegated"]) + len(data["on_cpu"]) == 4
    assert data["file_bytes"] == len(program.buffer)
    path = tmp_path / "small.pte"
    program.save(path)
    assert path.read_bytes() == program.buffer
    assert [path.name for path in tmp_path.iterdir()] == ["small.pte"]
    assert len(pte.delegates(program.buffer)) == 2


def test_progress_names_each_step() -> None:
    told: list[tuple[str, int, int]] = []
    openneutron.compile(
        whole(), EXAMPLE, calibration=[EXAMPLE] * 3, progress=lambda step, done, total: told.append((step, done, total))
    )
    assert list(dict.fromkeys(step for step, _, _ in told)) == [
        "Loading PyTorch",
        "Exporting",
        "Preparing",
        "Calibrating",
        "Converting",
        "Checking kernels",
        "Measuring the results",
        "Exporting the quantized model",
        "Running ExecuTorch's passes",
        "Partitioning",
        "Compiling",
        "Writing",
    ]
    assert [done for step, done, total in told if step == "Calibrating" and total == 3] == [1, 2, 3]


def test_batches_of_calibration_data_are_taken_apart() -> None:
    batch = torch.randn(4, *IMAGE[1:], generator=torch.Generator().manual_seed(2))
    apart = openneutron.compile(whole(), EXAMPLE, calibration=[(item[None],) for item in batch])
    together = openneutron.compile(whole(), EXAMPLE, calibration=[batch])
    assert apart.buffer == together.buffer


def test_a_quantized_program_is_taken_as_it_is() -> None:
    first = openneutron.compile(whole(), EXAMPLE, calibration=[EXAMPLE])
    again = openneutron.compile(torch.export.export(first.quantized, EXAMPLE))
    for got, want in zip(again.run(*EXAMPLE), first.run(*EXAMPLE), strict=True):
        np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_copies_and_pickles_run_with_states_of_their_own() -> None:
    program = openneutron.compile(whole(), EXAMPLE, calibration=[EXAMPLE], options={"effort": "high"})
    (want,) = program.run(*EXAMPLE)
    read = pickle.loads(pickle.dumps(program))
    for other in (copy.deepcopy(program), read, read.recompile(sram_budget=64 * 1024)):
        assert torch.equal(other.run(*EXAMPLE)[0], want)
    assert str(read.summary()) == str(program.summary())
    with pytest.raises(
        InvalidModelError, match=r"^'model': a pickle has the compiled program without the quantized module\."
    ):
        _ = read.quantized


def test_an_operator_is_left_to_the_cpu_under_the_name_that_the_user_wrote() -> None:
    model = nn.Sequential(nn.Conv2d(8, 8, 1), nn.Softmax(1))
    delegation = DelegationOptions(operators_not_to_delegate=["aten.softmax.int"])
    program = openneutron.compile(model, EXAMPLE, calibration=[EXAMPLE], delegation=delegation)
    assert [item.name for item in program.delegation.on_cpu] == ["1"]


def test_operators_can_be_left_to_the_cpu() -> None:
    program = openneutron.compile(
        whole(),
        EXAMPLE,
        calibration=[EXAMPLE],
        delegation=DelegationOptions(operators_not_to_delegate=["aten_convolution_default_1"]),
    )
    assert [(without_lines(item.name), item.reason) for item in program.delegation.on_cpu] == [
        (
            "point",
            "operators_not_to_delegate names it: 'aten_convolution_default_1'",
        ),
        ("relu (small_models.py)", "it exchanges float values with 'point', which stays on the CPU"),
    ]


def test_what_can_not_be_compiled_can_be_analysed() -> None:
    result = analyse(Sorted(), EXAMPLE, calibration=[EXAMPLE], name="sorted")
    assert result.partitions == ()
    assert result.report.macs == 0
    assert "0 of 1 operator" in result.summary()


class Sorted(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.topk(x, 12)[0]


def dynamic() -> torch.export.ExportedProgram:
    """Return a program of a linear layer and a ReLU, for any number of rows."""
    model, example = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval(), (torch.zeros(4, 8),)
    return torch.export.export(model, example, dynamic_shapes=({0: torch.export.Dim("rows", max=8)},))


class DataDependent(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


class Three(nn.Module):
    def forward(self, x: torch.Tensor) -> int:
        return 3


REFUSED: tuple[tuple[str, dict[str, Any], type[OpenNeutronError], str], ...] = (
    (
        "no calibration",
        {"calibration": None},
        InvalidOptionError,
        "calibration: there are no samples; int8 scales come from typical inputs. Pass calibration=[...], each item a tuple "
        "of the model's arguments (--calibration on the command line).",
    ),
    (
        "calibration of another shape",
        {"calibration": [torch.zeros(1, 8, 11, 12)]},
        InvalidOptionError,
        "calibration: sample 0 has torch.float32 [1, 8, 11, 12] for input 0; the example input is torch.float32 "
        "[1, 8, 12, 12].",
    ),
    (
        "a misspelt operator",
        {"delegation": DelegationOptions(operators_not_to_delegate=["aten::tupk"])},
        InvalidOptionError,
        "operators_not_to_delegate: 'aten_tupk' names no operator, node or module of the model. Did you mean 'aten.topk'?",
    ),
    (
        "an operator that the model does not have",
        {"delegation": {"operators_not_to_delegate": ["aten::sigmoid"]}},
        InvalidOptionError,
        "operators_not_to_delegate: 'aten_sigmoid' names no operator, node or module of the model.",
    ),
    (
        "a dict with an unknown option",
        {"options": {"sram_buget": 1}},
        InvalidOptionError,
        "options: 'sram_buget' is no field of CompileOptions. Did you mean 'sram_budget'?",
    ),
    (
        "a text for a list",
        {"delegation": {"operators_not_to_delegate": "aten.relu"}},
        InvalidOptionError,
        "operators_not_to_delegate: it is 'aten.relu'. Pass a list, such as ['aten.relu'].",
    ),
    (
        "a text for options",
        {"quantization": "int16"},
        InvalidOptionError,
        "quantization: it is a str. Pass openneutron.QuantizationOptions(...).",
    ),
    (
        "more than the chip has",
        {"options": CompileOptions(sram_budget=8192 * 1024)},
        InvalidOptionError,
        "sram_budget: it is 8192 KiB; imxrt700 has 7680 KiB of SRAM. Give at most that.",
    ),
    (
        "no model",
        {"model": 3},
        InvalidModelError,
        "'small' is of type int; a torch.nn.Module or an ExportedProgram is needed.",
    ),
    (
        "a class",
        {"model": nn.ReLU},
        InvalidModelError,
        "'small' is the class ReLU; a torch.nn.Module or an ExportedProgram is needed. Pass an object of the class: ReLU(...).",
    ),
    (
        "weights",
        {"model": {"weight": torch.zeros(2, 2)}},
        InvalidModelError,
        "'small' is a state_dict; a torch.nn.Module or an ExportedProgram is needed. Load it into its module with load_state_dict, and "
        "pass the module.",
    ),
    (
        "a function",
        {"model": torch.relu},
        InvalidModelError,
        "'small' is a function; a torch.nn.Module or an ExportedProgram is needed. Pass the module that it returns, or one whose forward "
        "calls it.",
    ),
    (
        "a lazy layer",
        {"model": nn.LazyConv2d(8, 3)},
        InvalidModelError,
        "'small': 'weight' has no shape before the first run of its lazy module. Run the model once in front of the compile: "
        "model(*example).",
    ),
    (
        "weights without values",
        {"model": nn.BatchNorm2d(8, device="meta")},
        InvalidModelError,
        "'small': 'weight' is on the device 'meta', which holds no values. Load the weights first: model.load_state_dict(weights, "
        "assign=True).",
    ),
    (
        "a sparse input",
        {"example_inputs": (EXAMPLE[0].to_sparse(),)},
        InvalidOptionError,
        "'small': its example input 0 is a tensor of the layout torch.sparse_coo. Pass tensor.to_dense().",
    ),
    (
        "a quantized input",
        {"example_inputs": (torch.quantize_per_tensor(EXAMPLE[0], 0.1, 0, torch.qint8),)},
        InvalidOptionError,
        "'small': its example input 0 is a quantized tensor of PyTorch. Pass tensor.dequantize(); a compile quantizes inputs itself.",
    ),
    (
        "a batch of none",
        {"example_inputs": (EXAMPLE[0][:0],)},
        InvalidOptionError,
        "'small': its example input 0 has the shape [0, 8, 12, 12], without elements. Pass a batch of 1 or more.",
    ),
    (
        "a shape for a tensor",
        {"example_inputs": (1, 8, 12, 12)},
        InvalidOptionError,
        "'small': its example inputs are the numbers 1, 8, 12, 12. Pass tensors; for a tensor of this shape: "
        "(torch.zeros(1, 8, 12, 12),).",
    ),
    (
        "no tensor among the results",
        {"model": Three()},
        InvalidModelError,
        "'small' returns 3 and no tensor: a program computes one at least. Return the tensors that it computes.",
    ),
    (
        "no inputs",
        {"example_inputs": None},
        InvalidOptionError,
        "'small': there are no example inputs. Pass a tuple of the model's arguments.",
    ),
    (
        "something that is no argument",
        {"example_inputs": ({EXAMPLE[0]: 1, "rest": {2}},)},
        InvalidOptionError,
        "'small': its example input 1 is a set; tensors, numbers, strings and None are what can be passed to a program, alone "
        "or in tuples, lists and dicts.",
    ),
    (
        "calibration in another structure",
        {"calibration": [({"a": EXAMPLE[0]},)]},
        InvalidOptionError,
        "calibration: sample 0 is (dict); the example inputs are (Tensor).",
    ),
    (
        "nothing for the NPU",
        {"model": Sorted()},
        InvalidModelError,
        "'small': its one operator can't run on the NPU. For one, aten.topk 'topk (test_compile.py)' stays on the CPU: it "
        "puts values in order, for which there is no kernel. argmax and max with a dimension, which have one, find the first "
        "of them.",
    ),
)


@pytest.mark.parametrize(("what", "options", "kind", "message"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refusals(what: str, options: dict[str, Any], kind: type[OpenNeutronError], message: str) -> None:
    arguments: dict[str, Any] = {
        "model": small(),
        "example_inputs": EXAMPLE,
        "calibration": [EXAMPLE],
        "name": "small",
    } | options
    with pytest.raises(kind) as caught:
        openneutron.compile(**arguments)
    assert without_lines(str(caught.value)) == message


def test_a_program_for_several_shapes_is_compiled_for_the_example() -> None:
    with pytest.warns(OpenNeutronWarning) as found:
        program = openneutron.compile(dynamic(), calibration=[(torch.randn(4, 8),)], name="rows")
    assert [str(item.message) for item in found] == [
        "'rows' takes inputs of several shapes, and the NPU one; it is compiled for those of the example inputs: input [4, 8]. "
        "Pass example_inputs of other shapes for another program."
    ]
    assert program.delegation.on_cpu == ()
    assert openneutron.compile(dynamic(), (torch.zeros(2, 8),), calibration=[(torch.randn(2, 8),)]).partitions


class WrongSize(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(7, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.linear(x.flatten(1)))


def infinite() -> nn.Module:
    layer = nn.Conv2d(8, 8, 1)
    layer.weight.data[3, 3] = float("inf")
    return nn.Sequential(layer, nn.ReLU())


UNEXPORTABLE: tuple[tuple[str, Callable[[], nn.Module], str], ...] = (
    (
        "a decision on a value",
        DataDependent,
        "'model' can't be exported: its code decides on a value that only a run computes, at test_compile.py, line N: "
        "return x if x.sum() > 0 else -x. Write that with operators on tensors, such as torch.where, or end the model before "
        "it.",
    ),
    (
        "a layer of another size",
        WrongSize,
        "'model' can't be exported: a and b must have same reduction dim, but got [1, 1152] X [7, 4] (RuntimeError), at "
        "test_compile.py, line N: return torch.as_tensor(self.linear(x.flatten(1))). Does it run on the example inputs, and do "
        "without data-dependent Python?",
    ),
    (
        "modules of torch alone",
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(7, 4)),
        "'model' can't be exported: a and b must have same reduction dim, but got [1, 1152] X [7, 4] (RuntimeError), in its "
        "module '1' (Linear). Does it run on the example inputs, and do without data-dependent Python?",
    ),
    (
        "an eager quantization",
        lambda: torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(12, 4)), {nn.Linear}),
        "'model' is quantized already: '0' is a torch.ao.nn.quantized.dynamic.modules.linear.Linear. Pass the float model with "
        "calibration=[...], or an ExportedProgram that NeutronQuantizer and convert_pt2e quantized.",
    ),
    (
        "a scripted part",
        lambda: nn.Sequential(torch.jit.script(nn.ReLU())),
        "'model': its module '0' is a TorchScript module, which torch.export can't trace. Pass the Python module that it was "
        "made from.",
    ),
    (
        "an infinite weight",
        infinite,
        "'0.weight': a parameter of the model with 1 of 64 values that are NaN or infinite; int8 takes finite ones. Load "
        "weights of a training that converged.",
    ),
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("what", "model", "message"), UNEXPORTABLE, ids=[row[0] for row in UNEXPORTABLE])
def test_models_that_can_not_be_exported(
    what: str, model: Callable[[], nn.Module], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidModelError) as caught:
        openneutron.compile(model(), EXAMPLE, calibration=[EXAMPLE])
    assert re.sub(r"line \d+", "line N", str(caught.value)) == message
    assert capfd.readouterr() == ("", "")


def test_a_budget_that_is_too_small_says_what_would_do() -> None:
    with pytest.raises(BudgetError) as caught:
        openneutron.compile(
            whole(), EXAMPLE, calibration=[EXAMPLE], options=CompileOptions(sram_budget=1024), name="whole"
        )
    needed = -(-caught.value.least_bytes // 1024)
    assert f"at least {needed} KiB" in str(caught.value)
    assert str(caught.value).startswith("'whole': it needs")
    assert openneutron.compile(
        whole(), EXAMPLE, calibration=[EXAMPLE], options=CompileOptions(sram_budget=needed * 1024)
    ).partitions


def test_inputs_of_a_run_are_checked() -> None:
    program = openneutron.compile(whole(), EXAMPLE, calibration=[EXAMPLE], name="whole")
    with pytest.raises(
        InvalidOptionError, match=r"^'whole' takes nothing by keyword, and was given 'mask'\. Call run\(\.\.\.\)\.$"
    ):
        program.run(*EXAMPLE, mask=None)
    for inputs, message in (
        ((), "'whole' takes 1 input; 0 given. Pass each as an argument of its own."),
        (
            (EXAMPLE[0][:, :4],),
            "'whole': input 0 is torch.float32 [1, 4, 12, 12]; it takes torch.float32 [1, 8, 12, 12].",
        ),
        ((EXAMPLE[0].int(),), "'whole': input 0 is torch.int32 [1, 8, 12, 12]; it takes torch.float32 [1, 8, 12, 12]."),
    ):
        with pytest.raises(InvalidOptionError) as caught:
            program.run(*inputs)
        assert str(caught.value) == message
    with pytest.warns(OpenNeutronWarning) as warned:
        program.run(EXAMPLE[0].clone().fill_(float("nan")))
    assert [str(item.message) for item in warned] == [
        "'whole': input 0 has NaN, for which int8 has no value; the results mean nothing. Repair the input."
    ]


def test_a_file_that_can_not_be_written_leaves_nothing(tmp_path: Path) -> None:
    program = openneutron.compile(whole(), EXAMPLE, calibration=[EXAMPLE])
    with pytest.raises(InvalidOptionError, match="can't be written: No such file or directory"):
        program.save(tmp_path / "absent" / "model.pte")
    assert list(tmp_path.iterdir()) == []


def test_nothing_of_third_parties_is_said() -> None:
    script = (
        "import torch, openneutron\n"
        "inputs = (torch.randn(1, 4),)\n"
        "openneutron.compile(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), inputs, calibration=[inputs])\n"
    )
    command = [sys.executable, "-W", "default", "-c", script]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


class Widened(nn.Module):
    """A linear layer of what a float64 constant of NumPy, no buffer, makes of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.mean = nn.Linear(8, 4), torch.from_numpy(np.full(8, 0.3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear((x - self.mean).to(self.linear.weight.dtype))


class Half(nn.Module):
    """A factor of two bytes between two float32 layers."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 4)
        self.scale = nn.Parameter(torch.full((8,), 0.5, dtype=dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last((F.relu(self.first(x)).to(self.scale.dtype) * self.scale).to(torch.float32))


def test_other_floats_become_float32_with_a_warning() -> None:
    torch.manual_seed(5)
    x = torch.randn(1, 8)
    halves = [(Half(dtype), dtype, "scale") for dtype in (torch.float16, torch.bfloat16)]
    for model, dtype, where in ((Widened(), torch.float64, "mean"), *halves):
        with pytest.warns(OpenNeutronWarning) as caught:
            program = openneutron.compile(model, (x.to(dtype),), calibration=[x.double().numpy()], name="widened")
        assert [str(item.message) for item in caught] == [
            f"'widened' has values of {dtype} ('{where}'); it is compiled in float32, and takes float32 inputs. Call .float() on "
            "the model for the same without this warning."
        ]
        assert program.report.whole
        assert torch.allclose(program.run(x.double())[0], model(x), atol=0.05)
