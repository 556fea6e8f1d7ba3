# SPDX-License-Identifier: BSD-3-Clause
"""The host library for Linux on aarch64, in qemu-user: the results and the refusals of this computer's library."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from openneutron import litert, targets
from openneutron.compiler import compile_graph
from openneutron.device.simulator import Simulator
from openneutron.isa import Program
from openneutron.isa.payload import Format, Payload
from scripts.published_networks import cifarnet
from tests.cortex_m33.cases import Case, Done, Misuse, decoded, encoded, inputs_and_outputs
from tests.cortex_m33.misuse import CHECK_AND_PREPARE, RUN
from tests.cortex_m33.models import model
from tests.fuzz import driver
from tests.fuzz.aarch64 import CPUS
from tests.language.kernel_calls import ONE_PART, PARTS, linear_call, random_floats, random_matrix, span
from tests.support import aarch64
from tests.support.aarch64 import LINKED, Built, called
from tests.support.altered_programs import CODES
from tests.support.fuzz_seeds import covering, of_jobs, seeds, write_seeds
from tests.support.made_networks import mobilenet_v2
from tests.support.refusals import REFUSALS, code
from tests.support.runtime_builds import WARNINGS
from tests.support.tools import required

ROOT = Path(__file__).parents[2]
BOARD = ROOT / "tests" / "cortex_m33"
SOURCES = (BOARD / "runner.c", Path(__file__).parent / "linux_board.c")

ABOUT_CONTEXTS = {Misuse.NULL_CONTEXT, Misuse.ODD_CONTEXT, Misuse.UNPREPARED}
"""Misuse of the memory that an application gives a model; this library has a heap."""

Run = Callable[[Sequence[Case]], list[Done]]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return aarch64.library_in(tmp_path_factory.mktemp("aarch64"))


@pytest.fixture(scope="module")
def run(library: Built) -> Run:
    """Runs cases with the library."""
    folder = library.folder
    includes = [f"-I{path}" for path in (BOARD, ROOT / "runtime" / "include")]
    compiler = required("aarch64-linux-gnu-gcc")
    called(compiler, *WARNINGS, *includes, *SOURCES, *LINKED, "-o", "runner", folder=folder)

    def run(cases: Sequence[Case]) -> list[Done]:
        (folder / "cases").write_bytes(encoded(cases))
        called(*library.emulated, "./runner", folder=folder)
        return decoded(cases, (folder / "results").read_bytes())

    return run


def test_every_kernel_gives_the_same_bytes(run: Run) -> None:
    random = np.random.default_rng(0)
    both = [inputs_and_outputs(program, random) for program in seeds()]
    done = run([Case(program, (given,)) for program, (given, _) in zip(seeds(), both, strict=True)])
    for number, (found, (_, want)) in enumerate(zip(done, both, strict=True)):
        assert (found.prepare, found.runs[0].error, found.runs[0].outputs) == (0, 0, want), number


def test_linear_layers_of_language_models_give_the_same_bytes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of 8 and 4 bits in both orders, for one and for several tokens, on a core with dot products and on one without."""
    cases, wanted = [], []
    forms = ((0, ONE_PART), (0, PARTS), (32, ONE_PART), (64, PARTS), (128, ONE_PART))
    for (group, sizes), rows in product(forms, (1, 7)):
        matrix = random_matrix(1, 71, 1100, group)
        call = linear_call(matrix, "third", sizes, rows, rows)
        given = [random_floats(2, rows, 1100), random_floats(3, rows, 71), span(0, rows)]
        given[0][0, :2] = np.nan, -(2.0**-120)
        cases.append(Case(call.program(), (b"".join(each.tobytes() for each in given),)))
        with Simulator(cases[-1].program) as simulator:
            wanted.append(simulator.run(given)[0].tobytes())
    for cpu in CPUS:
        monkeypatch.setenv("QEMU_CPU", cpu)
        assert [(done.runs[0].error, done.runs[0].outputs) for done in run(cases)] == [(0, each) for each in wanted]


def test_threads_give_the_same_bytes(library: Built) -> None:
    """Each call is computed by one to four threads, which qemu-user runs as threads of this computer."""
    folder, source = library.folder, Path(__file__).parent / "parts_of_calls.c"
    includes = [f"-I{ROOT / 'runtime' / name}" for name in ("include", "ports/host")]
    flags = (*WARNINGS, "-DNEUTRON_THREADS", "-pthread", *includes)
    called(required("aarch64-linux-gnu-gcc"), *flags, source, *LINKED, "-o", "parts", folder=folder)
    assert called(*library.emulated, "./parts", *write_seeds(folder, covering()), folder=folder) == ""


@pytest.fixture(scope="module")
def run_jobs(library: Built) -> Callable[[Program, bytes], bytes]:
    return aarch64.runner_of_jobs(library)


def test_matrix_products_on_the_npu_give_the_same_bytes(
    run_jobs: Callable[[Program, bytes], bytes], shared_models: Path
) -> None:
    random = np.random.default_rng(3)
    graphs = [
        litert.read((shared_models / f"mlperf_tiny_{name}_int8.tflite").read_bytes()).graph for name in ("kws", "vww96")
    ]
    with driver.every_product():
        networks = [compile_graph(graph, driver.with_release()).program for graph in graphs]
    for program in (*of_jobs(), *networks):
        inputs, outputs = inputs_and_outputs(program, random)
        assert run_jobs(program, inputs) == outputs


def test_changed_programs_and_misuse_are_refused(run: Run, shared_models: Path) -> None:
    program: Program = model("ResNet-8", prefetch_constants=True).program
    inputs, outputs = inputs_and_outputs(program, np.random.default_rng(1))
    prepared = {misuse: names for misuse, names in CHECK_AND_PREPARE.items() if misuse not in ABOUT_CONTEXTS}
    ran = {misuse: name for misuse, name in RUN.items() if misuse not in ABOUT_CONTEXTS}
    cases = [
        *(Case(refusal.change(program)) for refusal in REFUSALS),
        *(Case(program, misuse=misuse) for misuse in prepared),
        *(Case(program, (inputs,), misuse=misuse) for misuse in ran),
        Case(program, (inputs,)),
    ]
    *results, last = run(cases)
    found = [(done.check, done.prepare) for done in results]
    wanted = [refusal.codes for refusal in REFUSALS] + [(code(a), code(b)) for a, b in prepared.values()]
    assert found == wanted + [(0, 0)] * len(ran)
    assert [done.runs[0].error for done in results[-len(ran) :]] == [CODES[name] for name in ran.values()]
    assert last.runs[0].outputs == outputs


NETWORKS = {"CifarNet": (cifarnet, (32, 3), 10), "MobileNetV2": (mobilenet_v2, (224, 3), 1000)}
"""By name: the graph, the extent and the channels of its image, and its outputs."""


@cache
def network(name: str) -> tuple[Program, bytes, bytes]:
    """Return a network's program with a random input and the output of this computer."""
    program = compile_graph(NETWORKS[name][0](), targets.get("imxrt700")).program
    return program, *inputs_and_outputs(program, np.random.default_rng(2))


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_give_the_same_bytes(name: str, run: Run) -> None:
    program, inputs, outputs = network(name)
    (done,) = run([Case(program, (inputs,))])
    assert (done.check, done.prepare, done.runs[0].error) == (0, 0, 0)
    assert done.runs[0].outputs == outputs


@pytest.fixture(scope="module")
def delegate(library: Built) -> Path:
    """The delegate, linked with a stand-in for ExecuTorch's library, which this computer does not have for aarch64."""
    spec = find_spec("executorch")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("executorch is not installed")
    headers = Path(next(iter(spec.submodule_search_locations))) / "include"
    includes = (
        headers,
        headers / "executorch" / "runtime" / "core" / "portable_type" / "c10",
        ROOT / "runtime" / "include",
    )
    sources = (ROOT / "runtime" / "delegate" / "neutron_backend.cpp", ROOT / "tests" / "delegate" / "stand_in.cpp")
    flags = ("-std=c++17", "-O2", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror")
    defined = ("-DC10_USING_CUSTOM_GENERATED_MACROS", "-DET_EVENT_TRACER_ENABLED", "-DNEUTRON_CHECK_WEIGHTS")
    compiler = required("aarch64-linux-gnu-g++")
    folders = (f"-I{folder}" for folder in includes)
    called(compiler, *flags, *defined, *folders, *sources, *LINKED, "-o", "delegate", folder=library.folder)
    return library.folder / "delegate"


@pytest.mark.parametrize("name", NETWORKS)
def test_the_delegate_runs_the_payload(name: str, delegate: Path, library: Built, tmp_path: Path) -> None:
    """The image is an NCHW tensor, which the delegate exchanges, as it does for PyTorch's models with channels last."""
    program, inputs, outputs = network(name)
    extent, channels = NETWORKS[name][1]
    image = np.frombuffer(inputs, np.int8).reshape(extent, extent, channels).transpose(2, 0, 1)
    payload = Payload(program, (Format.CHANNELS_LAST,), (Format.CONTIGUOUS,), (0,), (0,), 1)
    (tmp_path / "payload").write_bytes(payload.compose())
    (tmp_path / "input").write_bytes(np.ascontiguousarray(image).tobytes())
    shapes = (f"1x{channels}x{extent}x{extent}", f"1x{NETWORKS[name][2]}")
    called(*library.emulated, delegate, "payload", "input", shapes[0], "output", shapes[1], folder=tmp_path)
    assert (tmp_path / "output").read_bytes() == outputs


def test_the_delegate_refuses_a_damaged_payload(delegate: Path, library: Built, tmp_path: Path) -> None:
    program, inputs, _ = network("CifarNet")
    payload = Payload(program, (Format.CONTIGUOUS,), (Format.CONTIGUOUS,), (0,), (0,), 1).compose()
    (tmp_path / "payload").write_bytes(payload[: len(payload) // 2])
    (tmp_path / "input").write_bytes(inputs)
    command = (*library.emulated, delegate, "payload", "input", "1x32x32x3", "output", "1x10")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0x23, "InvalidProgram"
    assert "The file is truncated or corrupt." in done.stderr
