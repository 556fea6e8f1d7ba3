# SPDX-License-Identifier: BSD-3-Clause
"""The SDK's Python surface on top of this compiler."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from openneutron import litert
from openneutron.device.mixed import FileSimulator
from openneutron.errors import InvalidOptionError, InvalidProgramError, InvalidTargetError
from openneutron.features.compat import eiq_neutron_sdk as sdk
from openneutron.features.compat import sdk_folder
from openneutron.features.compat.eiq_neutron_sdk import neutron_converter, neutron_library_utils
from openneutron.ir import DType, Graph, Node, Tensor, per_tensor
from openneutron.isa import kernel_selection
from openneutron.litert.neutron_graph import FoundNode, find
from scripts.published_networks import cifarnet
from tests.support.litert_files import mixed_file
from tests.support.oracle import random_inputs, reference_outputs


@pytest.fixture
def installed() -> Iterator[None]:
    sdk.install()
    yield
    sdk.uninstall()


def context(**options: bool) -> neutron_converter.CompilationContext:
    made = neutron_converter.CompilationContext()
    made.targetOpts = neutron_converter.getNeutronTarget("imxrt700")
    for name, value in options.items():
        setattr(made.compilationOpts, name, value)
    return made


def test_targets() -> None:
    assert [target.name for target in neutron_library_utils.getNeutronTargets()] == [
        "imx943",
        "imx95",
        "imx952",
        "imxrt700",
        "mcxn54x",
        "mcxn94x",
    ]
    assert neutron_library_utils.isNeutronTarget("imx95") and not neutron_library_utils.isNeutronTarget("imx")
    npu = neutron_converter.getNeutronTarget("imxrt700").npu
    assert (npu.subsystem, npu.numUnits, npu.numPipes, npu.numMacs, npu.hwVersion) == (False, 1, 8, 8, 2)
    with pytest.raises(InvalidTargetError, match=r"^Target `imx` is not a valid target\. Must be one of `\['imx943', "):
        neutron_converter.getNeutronTarget("imx")


@pytest.mark.parametrize("as_list", [True, False])
def test_a_model_becomes_one_graph_with_the_same_bytes_out(as_list: bool) -> None:
    graph = cifarnet()
    stock = litert.write(graph)
    converted = neutron_converter.convertModel(list(stock) if as_list else stock, context())
    read = litert.read(converted)
    assert [node.op for node in read.graph.nodes] == ["CUSTOM NeutronGraph"]
    assert (read.graph.inputs, read.graph.outputs) == (graph.inputs, graph.outputs)
    inputs = random_inputs(graph, 5)
    for got, want in zip(FileSimulator(converted).run(inputs), reference_outputs(stock, inputs), strict=True):
        np.testing.assert_array_equal(got, want)


def test_options_reach_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stock = litert.write(cifarnet())

    def converted(**options: bool) -> list[FoundNode]:
        return find(litert.read(neutron_converter.convertModel(stock, context(**options))).model)

    for options in ({}, {"fetchConstantsToSRAM": True, "useProfiling": True}):
        (found,) = converted(**options)
        header = found.program.header
        assert (header["prefetch_size"] > 0, header["profile_size"] > 0) == (bool(options), bool(options))
    assert list(tmp_path.iterdir()) == []
    converted(dumpKernelSelectionCode=True)
    selection = kernel_selection.parse("it", (tmp_path / "_kernel_selection.c").read_text())
    assert selection.kernels == kernel_selection.called_kernels([found.program for found in converted()])


def test_what_the_npu_can_not_take_stays_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    converted = neutron_converter.convertModel(mixed_file(), context())
    assert [node.op for node in litert.read(converted).graph.nodes].count("CUSTOM NeutronGraph") == 2
    assert caplog.records
    assert all(" stays on the CPU: " in record.getMessage() for record in caplog.records)


def test_a_graph_that_computes_nothing_is_still_one() -> None:
    quant = per_tensor(0.1, 3)
    tensors = [Tensor("x", (2, 10), DType.INT8, quant), Tensor("y", (1, 20), DType.INT8, quant)]
    node = Node("reshape", ("x",), ("y",), {"new_shape": (1, 20)})
    graph = Graph("view", {tensor.name: tensor for tensor in tensors}, (node,), ("x",), ("y",))
    converted = neutron_converter.convertModel(litert.write(graph), context())
    assert [node.op for node in litert.read(converted).graph.nodes] == ["CUSTOM NeutronGraph"]
    (given,) = random_inputs(graph, 1)
    np.testing.assert_array_equal(FileSimulator(converted).run([given])[0], given.reshape(1, 20))


def test_a_context_without_target() -> None:
    with pytest.raises(InvalidOptionError) as caught:
        neutron_converter.convertModel(b"", neutron_converter.CompilationContext())
    assert str(caught.value) == "CompilationContext: targetOpts is not set. Set it to getNeutronTarget(name)."
    with pytest.raises(AttributeError):
        neutron_converter.CompilationContext().compilationOpts.noSuchOption = 1  # type: ignore[attr-defined]


def test_installing_and_taking_it_back(installed: None) -> None:
    assert importlib.import_module("eiq_neutron_sdk") is sdk
    assert importlib.import_module("eiq_neutron_sdk.neutron_converter") is neutron_converter
    assert importlib.import_module("eiq_neutron_sdk.neutron_library_utils") is neutron_library_utils
    places = sys.path.count(sdk.SEARCH_PATH)
    sdk.install()
    assert sys.path.count(sdk.SEARCH_PATH) == places == 1
    sdk.uninstall()
    assert not [name for name in sys.modules if name.split(".")[0] == "eiq_neutron_sdk"]
    assert sdk.SEARCH_PATH not in sys.path
    sdk.uninstall()


def test_another_sdk_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = ModuleType("eiq_neutron_sdk")
    theirs.__file__ = "/sdk/eiq_neutron_sdk/__init__.py"
    monkeypatch.setitem(sys.modules, "eiq_neutron_sdk", theirs)
    with pytest.raises(InvalidOptionError) as caught:
        sdk.install()
    assert str(caught.value) == (
        "eiq_neutron_sdk: another package of this name is imported already (/sdk/eiq_neutron_sdk/__init__.py). "
        "Call openneutron.features.compat.eiq_neutron_sdk.install() before anything imports it."
    )
    assert sys.modules["eiq_neutron_sdk"] is theirs


def test_a_fresh_interpreter_with_the_search_path() -> None:
    """multiprocessing's spawn passes on the parent's sys.path and nothing else."""
    code = f"""
import sys
sys.path[:] = {[sdk.SEARCH_PATH, *sys.path]!r}
from eiq_neutron_sdk import neutron_converter, merge_kernel_selection_files
import eiq_neutron_sdk.neutron_library_utils as utils
print(neutron_converter.__name__, utils.isNeutronTarget("imxrt700"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("openneutron.features.compat.eiq_neutron_sdk.neutron_converter True\n", "")


MERGE = "openneutron.features.compat.eiq_neutron_sdk.neutron_library_utils.merge_kernel_selection_code"


def test_merging_from_the_command_line(tmp_path: Path) -> None:
    one = kernel_selection.KernelSelection("OpenNeutron 1", ("conv_2d_s8",))
    two = kernel_selection.KernelSelection("OpenNeutron 1", ("softmax_s8",))
    (tmp_path / "a.c").write_text(one.text())
    (tmp_path / "b.c").write_text(two.text())
    command = [sys.executable, "-m", MERGE, "-input-files", "a.c", "b.c", "-output-file", "all.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    merged = kernel_selection.merge({"a": one, "b": two})
    assert (tmp_path / "all.c").read_text() == merged.text()
    (tmp_path / "b.c").unlink()
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "'b.c' can't be read: No such file or directory.\n")


def test_merging_by_the_sdks_command(tmp_path: Path) -> None:
    """The command of ExecuTorch's documentation (docs/source/backends/nxp/nxp-kernel-selection.md), with the folder that
    ``sdk_folder`` makes in PYTHONPATH."""
    sdk_folder.lay_out(tmp_path / "sdk", library=False)
    one = kernel_selection.KernelSelection("OpenNeutron 1", ("conv_2d_s8",))
    (tmp_path / "a.c").write_text(one.text())
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "sdk"), *filter(None, sys.path)])}
    command = [sys.executable, "-m", "eiq_neutron_sdk.neutron_library_utils.merge_kernel_selection_code"]
    command += ["-input-files", "a.c", "a.c", "-output-file", "all.c"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "all.c").read_text() == one.text()


def test_merging_files(tmp_path: Path) -> None:
    for name, version in (("a", "1"), ("b", "2")):
        (tmp_path / f"{name}.c").write_text(kernel_selection.KernelSelection(f"OpenNeutron {version}", ()).text())
    with pytest.raises(InvalidProgramError, match=r"a\.c': OpenNeutron 1, microcode.*b\.c': OpenNeutron 2, microcode"):
        sdk.merge_kernel_selection_files([str(tmp_path / "a.c"), str(tmp_path / "b.c")], str(tmp_path / "all.c"))
    assert not (tmp_path / "all.c").exists()
