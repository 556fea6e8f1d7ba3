# SPDX-License-Identifier: BSD-3-Clause
"""The how-to pages for those who extend the project: their edits, made in a copy of the sources, work as they are shown."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.litert_files import mixed_file
from tests.support.objects import compiled
from tests.support.page_edits import ROOT, copied_sources, edited_by

PAGES = ROOT / "docs" / "how-to"

_KERNELS_SOURCES = """
import sys
from pathlib import Path
from openneutron import __version__
from openneutron.device.runtime_sources import sources_of
from openneutron.isa.kernel_selection import KernelSelection

kernel, selection = sys.argv[1:]
Path(selection).write_text(KernelSelection(__version__, (kernel,)).text())
print(*(name for name in sources_of([kernel]) if name.endswith(".c") and not name.startswith("ports/")), sep="\\n")
"""

_COMPARE = """
import sys
from pathlib import Path
import numpy as np
from openneutron import litert
from openneutron.compiler import compile_graph
from openneutron.ir import DType, Graph, Node, Tensor, per_tensor
from tests.support import oracle

quant = per_tensor(0.1, 3)
shapes = {"a": (1, 3, 5, 70), "b": (1, 3, 5, 1), "c": (1, 3, 5, 70)}
tensors = {name: Tensor(name, shape, DType.INT8, quant) for name, shape in shapes.items()}
graph = Graph("g", tensors, (Node(sys.argv[1], ("a", "b"), ("c",)),), ("a", "b"), ("c",))
random = np.random.default_rng(0)
inputs = [random.integers(-128, 128, shapes[name], np.int8) for name in graph.inputs]
Path("model.tflite").write_bytes(litert.write(graph))
result = compile_graph(litert.read(Path("model.tflite")).graph, oracle.TARGET)
(simulated,), (reference,) = oracle.simulated_outputs(result, inputs), oracle.reference_outputs(graph, inputs)
assert simulated.tobytes() == reference.tobytes()
print(*sorted({call.kernel for call in result.schedule.calls}))
"""


def _python(folder: Path, *arguments: str) -> str:
    """Run Python with the package of a folder, and return what it prints."""
    environment = {**os.environ, "PYTHONPATH": f"{folder / 'src'}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _refused(folder: Path, *arguments: str) -> str:
    """Compile with the package of a folder, and return the error on stderr."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    command = [sys.executable, "-m", "openneutron", "compile", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    return done.stderr


def test_an_operator_with_a_kernel_takes_four_files_and_is_equal_to_litert(tmp_path: Path) -> None:
    """`make generate` and `make lib` of the page are the header alone, and the library with the new kernel alone."""
    folder = copied_sources(tmp_path / "copy")
    edited = edited_by(PAGES / "add-an-operator.md", folder)
    assert len(edited) == len(set(edited)) == 4
    runtime = folder / "runtime"
    _python(folder, "-m", "scripts.runtime_headers", "runtime")
    selection = tmp_path / "selection.c"
    sources = _python(folder, "-c", _KERNELS_SOURCES, "bitwise_xor_s8", str(selection)).split()
    paths = [*(runtime / name for name in sources), *sorted((runtime / "ports" / "host").glob("*.c")), selection]
    includes = [f"-I{runtime / name}" for name in ("include", "kernels", "driver")]
    flags = [
        "-std=gnu11",
        "-O1",
        "-fPIC",
        "-DNEUTRON_THREADS",
        "-Wall",
        "-Wextra",
        "-Wconversion",
        "-Werror",
        *includes,
    ]
    objects = compiled(tmp_path, "gcc", flags, paths)
    library = folder / "src" / "openneutron" / "device" / "simulator" / "libneutron.so"
    subprocess.run(["gcc", "-shared", "-o", library, *objects, "-lpthread"], check=True)
    assert _python(folder, "-c", _COMPARE, "bitwise_xor") == "bitwise_xor_s8\n"


_COMPILE = """
import sys
import openneutron
for path in sys.argv[1:]:
    made = openneutron.compile(path)
    print(made.name, made.report.operators_on_npu, made.report.operators)
"""


def test_an_input_form_takes_one_row_and_one_file(tmp_path: Path) -> None:
    folder = copied_sources(tmp_path / "copy")
    assert edited_by(PAGES / "add-an-input-form.md", folder) == [
        "src/openneutron/litert/chain.py",
        "src/openneutron/device/forms.py",
    ]
    for name in ("net.chain", "known_by_its_content.txt"):
        (folder / name).write_text("CHAIN 8 relu relu6")
    (folder / "known_by_its_name.chain").write_text("no such form")
    made = _python(folder, "-c", _COMPILE, "net.chain", "known_by_its_content.txt")
    assert made == "net.chain 2 2\nknown_by_its_content.txt 2 2\n"
    _python(folder, "-m", "openneutron", "compile", "net.chain", "--quiet")
    assert (folder / "net_neutron.tflite").read_bytes()[4:8] == b"TFL3"
    assert _refused(folder, "known_by_its_name.chain") == (
        "error: 'known_by_its_name.chain' is no chain of functions. Write CHAIN, the extent, and the functions.\n"
    )
    assert _refused(folder, "net.xyz") == (
        "error: 'net.xyz' is no model: MODEL is a built-in name, file.py:function, or a .pt2, .onnx, .keras, .pt, .tflite or .chain file.\n"
    )


def test_an_option_takes_one_row_and_its_reader(tmp_path: Path) -> None:
    folder = copied_sources(tmp_path / "copy")
    assert edited_by(PAGES / "add-an-option.md", folder) == [
        "src/openneutron/options/__init__.py",
        "src/openneutron/compiler/driver.py",
    ]
    (folder / "mixed.tflite").write_bytes(mixed_file())
    _python(folder, "-m", "openneutron", "compile", "mixed.tflite", "--quiet", "--no-one-call")
    assert "--one-call" in _python(folder, "-m", "openneutron", "compile", "--help")
    said = _refused(folder, "mixed.tflite", "--one-call")
    assert said.endswith("kernel calls; one_call allows 1. Leave one_call out.\n"), said
    (folder / "openneutron.toml").write_text("one-call = true\n")
    assert _refused(folder, "mixed.tflite") == said


_POOL = """
import numpy as np
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.rewrite.passes import explained
from openneutron.ir import DType, Graph, Node, Tensor, per_tensor
from tests.support import oracle

tensors = {name: Tensor(name, (1, 6, 6, 8), DType.INT8, per_tensor(0.1, 3)) for name in "abc"}
attrs = {"kernel_h": 1, "kernel_w": 1, "stride_h": 1, "stride_w": 1, "padding": "VALID", "activation": "NONE"}
graph = Graph("g", tensors, (Node("max_pool_2d", ("a",), ("b",), attrs), Node("abs", ("b",), ("c",))), ("a",), ("c",))
inputs = [np.random.default_rng(0).integers(-128, 128, (1, 6, 6, 8), np.int8)]
for options in (CompileOptions(), CompileOptions(without_passes=("pools",))):
    made = compile_graph(graph, oracle.TARGET, options)
    (simulated,), (reference,) = oracle.simulated_outputs(made, inputs), oracle.reference_outputs(graph, inputs)
    assert simulated.tobytes() == reference.tobytes()
    (row,) = (each for each in explained(graph, oracle.TARGET, options) if each.row.name == "pools")
    print(row, *(call.kernel for call in made.schedule.calls if not call.is_transfer))
"""


def test_a_pass_takes_one_file_and_one_row(tmp_path: Path) -> None:
    folder = copied_sources(tmp_path / "copy", with_library=True)
    assert set(edited_by(PAGES / "add-a-pass.md", folder)) == {
        "src/openneutron/compiler/rewrite/pools.py",
        "src/openneutron/compiler/rewrite/passes.py",
    }
    assert _python(folder, "-c", _POOL) == "made c lookup_s8\nthe pass is switched off max_pool_2d_s8 lookup_s8\n"


def test_a_chip_takes_one_file(tmp_path: Path) -> None:
    """The page's first and last steps: a copy of another chip's file with another name and another title."""
    folder = copied_sources(tmp_path / "copy")
    chips = folder / "src" / "openneutron" / "targets" / "chips"
    text = (chips / "imxrt700.toml").read_text()
    name, title = (f'{key} = "{value}"' for key, value in (("name", "my_chip"), ("title", "My chip")))
    text = re.sub(r"^name = .*$", name, text, count=1, flags=re.MULTILINE)
    (chips / "my_chip.toml").write_text(re.sub(r"^title = .*$", title, text, count=1, flags=re.MULTILINE))
    (folder / "mixed.tflite").write_bytes(mixed_file())
    assert "my_chip" in _python(folder, "-m", "openneutron", "targets")
    assert "My chip" in _python(folder, "-m", "openneutron", "targets", "my_chip")
    _python(
        folder, "-m", "openneutron", "compile", "mixed.tflite", "--quiet", "--target", "my_chip", "-o", "out.tflite"
    )
    loaded = _python(folder, "-c", "import openneutron; print(openneutron.load('out.tflite').report.target.name)")
    assert loaded == "my_chip\n"


def test_a_section_of_the_report_takes_three_files_and_a_feature_its_folder_and_a_row(tmp_path: Path) -> None:
    """The tests that the two pages add run in one process, which imports PyTorch once."""
    folder = copied_sources(tmp_path / "copy")
    section, feature = (set(edited_by(PAGES / f"add-a-{name}.md", folder)) for name in ("report-section", "feature"))
    tests = [path for path in sorted(section | feature) if path.startswith("tests/")]
    assert len(section) == 3 and len(tests) == 2
    assert {path for path in feature if path.startswith("src/") and "features/sizes/" not in path} == {
        "src/openneutron/cli/app.py"
    }
    _python(
        folder,
        "-m",
        "pytest",
        "-q",
        "-c",
        os.devnull,
        "--rootdir",
        ".",
        "--confcutdir",
        ".",
        "-p",
        "no:cacheprovider",
        *tests,
    )
