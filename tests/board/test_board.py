# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron board``: the program on a stand-in for the board's library, and what is read from the file that it writes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from openneutron import targets
from openneutron.cli import main
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.select.calls import JobWeights
from openneutron.device import neutron_jobs as jobs
from openneutron.device.device_model import LIBRARY
from openneutron.errors import InvalidOptionError, InvalidTargetError, MissingToolError
from openneutron.features.board import cases
from openneutron.features.board.command import BOARDS, chip_text, make
from openneutron.features.board.findings import ROUNDINGS, Findings, findings_of, predicted, read_findings, sentences
from openneutron.ir import Node, constant, per_tensor
from openneutron.options import DRIVER
from scripts.json_schema import schema
from tests.support import oracle
from tests.support.json_schema import violations
from tests.support.runtime_builds import WARNINGS
from tests.support.tools import required

RUNTIME = Path(__file__).parents[2] / "runtime"
PACKAGE = Path(__file__).parents[2] / "src" / "openneutron"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, compiled for this computer."""
    folder = tmp_path_factory.mktemp("board")
    assert main(["board", "make", "imx95", "-o", str(folder / "check"), "--compiler", required("gcc")]) == 0
    return folder / "check" / "board_check"


def checked(command: Sequence[str | Path], folder: Path, variant: str) -> Path:
    environment = {**os.environ, "NEUTRON_DEVICE_MODEL": variant}
    done = subprocess.run(
        [*command, "--quick"], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "check.json"


def on_model(program: Path, folder: Path, variant: str) -> Findings:
    """Return the findings of a run with the device model beside the program."""
    shutil.copy(program, folder)
    shutil.copy(LIBRARY, folder / "libNeutronDriver.so")
    return read_findings(checked(["./board_check"], folder, variant))


@pytest.mark.parametrize("faults", ["none", "3.1.1"])
@pytest.mark.parametrize(
    ("rounding", "zero_point", "saturation"),
    [
        ("half_up", "ignored", "saturate"),
        ("half_even", "added", "saturate"),
        ("half_away", "ignored", "wrap"),
        ("truncate", "added", "saturate"),
    ],
)
def test_variants_are_recognised(
    program: Path, tmp_path: Path, rounding: str, zero_point: str, saturation: str, faults: str
) -> None:
    variant = f"rounding={rounding},zero_point={zero_point},saturation={saturation},firmware={faults}"
    found = on_model(program, tmp_path, variant)
    assert (found.form, found.int4_form) == ("third", "third")
    for size in (1, 4):
        seen = found.rescaled[size]
        assert (seen.rounding, seen.zero_point, seen.saturation) == (rounding, zero_point, saturation)
        assert set(seen.differences) == {0}
    wrong = sorted(jobs.FIRMWARE_3_1_1.wrong) if faults == "3.1.1" else []
    for kind in (cases.PACKED_SIGNED, cases.PLAIN_SIGNED):
        assert found.wrong_k([kind]) == wrong
    assert found.wrong_k([cases.PACKED], 32) == wrong


@pytest.mark.parametrize(("release", "form", "int4_form"), [("second", "second", "second"), ("first", "first", None)])
def test_releases_without_a_kind_are_recognised(
    program: Path, tmp_path: Path, release: str, form: str, int4_form: str | None
) -> None:
    found = on_model(program, tmp_path, f"release={release},rounding=half_even,memory_mib=64")
    assert (found.form, found.int4_form, found.memory_mib) == (form, int4_form, 64)
    assert found.rescaled[1].rounding == "half_even"
    assert found.wrong_k([cases.WITHOUT]) == []


def test_the_program_runs_on_aarch64_from_an_empty_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside the program lies the stand-in alone."""
    compiler, emulator = required("aarch64-linux-gnu-gcc"), required("qemu-aarch64")
    assert main(["board", "make", "imx95", "-o", str(tmp_path / "check"), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["is_compiled"]
    assert list(violations(made, schema())) == []
    folder = tmp_path / "empty"
    folder.mkdir()
    shutil.copy(tmp_path / "check" / "board_check", folder)
    sources = sorted((RUNTIME / "device_model").glob("*.c"))
    flags = ("-std=c11", *WARNINGS, "-O2", "-fPIC", "-shared", "-pthread", f"-I{RUNTIME / 'include'}")
    subprocess.run([compiler, *flags, *sources, "-o", folder / "libNeutronDriver.so"], check=True)
    found = subprocess.run([compiler, "-print-file-name=libc.so.6"], capture_output=True, text=True, check=True).stdout
    root = Path(found.strip()).resolve().parents[1]
    path = checked([emulator, "-L", root, "./board_check"], folder, "rounding=half_away,firmware=3.1.1")
    seen = read_findings(path)
    assert json.loads(path.read_text())["machine"] == "aarch64"
    assert seen.rescaled[1].rounding == "half_away"
    assert seen.wrong_k([cases.PACKED_SIGNED]) == sorted(jobs.FIRMWARE_3_1_1.wrong)


GIVEN = {
    "openneutron_board": 1,
    "kernel": "6.18.20-lts",
    "machine": "aarch64",
    "system": '"NXP i.MX Release Distro"',
    "library": {"path": "/usr/lib/libNeutronDriver.so", "bytes": 1, "fnv1a": "0"},
    "firmware": [],
    "memory": {"refused_mib": [3584], "largest_mib": 3072},
    "forms": [[1, 3, 128, 128, 0, 0, 0], [-1, 3, 128, 128, 0, 0, 0], [1, 3, 128, 128, 32, 0, 7, 0, 1, 2]],
    "cases": [
        [2, 3, 1024, 128, 0, 0, 0], [2, 3, 1152, 128, 0, 0, 9, 0, 1, 2], [-2, 3, 1024, 128, 0, 0, 0],
        [-2, 1, 64, 65520, 0, "too large", 0],
    ],
    "rescaled": [
        {"kind": 2, "result_bytes": 1, "zero_point": 0, "factor": 1 << 20 | 0x8000, "first": 0, "step": 0, "error": 0,
         "results": [0] * 127 + [3]},
    ],
    "times": [
        [2, 1, 64, 128, 0, 0, 100_000, 90_000], [2, 1, 1024, 1024, 0, 0, 350_000, 340_000],
        [2, 512, 1024, 1024, 0, 0, 5_100_000, 5_000_000],
    ],
}  # fmt: skip


def test_findings_are_sentences() -> None:
    assert sentences(findings_of(GIVEN)) == [
        "The board runs NXP i.MX Release Distro, kernel 6.18.20-lts, with /usr/lib/libNeutronDriver.so.",
        "The largest buffer of contiguous memory has 3072 MiB.",
        "Jobs of int8 weights have the form of the third release.",
        "No published form of a job with int4 weights gave right results.",
        "With int8 weights, packed, A signed, 1 of 2 sizes are exact: K of 1,152 is wrong, and 1 other K right.",
        "With int8 weights, packed, A unsigned, all 1 sizes are exact.",
        "With int8 weights, not packed, A signed, all 1 sizes are exact.",
        "With int8 weights, not packed, A unsigned, all 1 sizes are exact.",
        "With int4 weights in groups of 32, 0 of 1 sizes are exact: K of 128 is wrong, and 0 other K right.",
        "Packed and not packed weights agree in 1 of 1 sizes that were run in both forms.",
        "Results of 1 byte fit no hypothesis; the nearest is that they are rounded to the nearest, halves up. "
        "Differences from it: +0: 127, +2: 1 (2 is 2 or more).",
        "A small job takes 100.0 us. Weights arrive at up to 4.19 bytes per ns. The NPU computes up to 107.4 products per ns.",
    ]
    none = {
        **GIVEN,
        "memory": {"refused_mib": [8], "largest_mib": 0},
        "forms": [],
        "cases": [],
        "rescaled": [],
        "times": [],
    }
    assert sentences(findings_of(none))[1:] == [
        "No buffer of contiguous memory could be had, so no job ran. Reserve memory with cma= on the kernel's command line."
    ]


def test_a_file_that_ends_at_a_job_has_the_rows_before(program: Path, tmp_path: Path) -> None:
    shutil.copy(program, tmp_path)
    shutil.copy(LIBRARY, tmp_path / "libNeutronDriver.so")
    path = checked(["./board_check"], tmp_path, "")
    text = path.read_text()
    whole = read_findings(path)
    rows = text.split("\n")
    for kept in (20, 60, len(rows) - 20):
        path.write_text("\n".join(rows[:kept]) + ("\n  [2,3" if kept == 60 else ""))
        found = read_findings(path)
        assert found.is_cut
        assert found.results == whole.results[: len(found.results)]
        assert sentences(found)[-1].startswith(
            "The file ends early: a job did not return. The last product that did has M 3, K"
        )


def test_a_chip_file_has_what_was_measured(program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = on_model(program, tmp_path, "firmware=3.1.1")
    assert found.times is not None
    assert main(["board", "read", str(tmp_path / "check.json"), "--json"]) == 0
    read = json.loads(capsys.readouterr().out)
    assert list(violations(read, schema())) == []
    chip = targets.get(read["chip"])
    assert chip.name == "imx95-board"
    assert chip.jobs is not None
    assert chip.jobs.overhead.value == pytest.approx(found.times.overhead_us, rel=1e-3)
    assert {fact.kind for fact in (chip.jobs.release, chip.jobs.overhead, chip.jobs.wrong_k)} == {"measured"}
    assert list(map(int, chip.jobs.wrong_k.value)) == sorted(jobs.FIRMWARE_3_1_1.wrong)
    assert list(map(int, chip.jobs.right_k.value)) == sorted(set(cases.K_INT8) - jobs.FIRMWARE_3_1_1.wrong)
    assert (chip.npu, chip.memories) == (targets.get("imx95").npu, targets.get("imx95").memories)


@pytest.mark.parametrize(("wrong", "parts"), [(0, (1152,)), (9, (1024, 128))])
def test_a_compile_for_the_chip_file_uses_its_sizes(tmp_path: Path, wrong: int, parts: tuple[int, ...]) -> None:
    path = tmp_path / "board.toml"
    cases_seen = [[2, 3, 1024, 128, 0, 0, 0], [2, 3, 1152, 128, 0, 0, wrong]]
    path.write_text(chip_text(findings_of({**GIVEN, "cases": cases_seen}), "board"))
    random = np.random.default_rng(0)
    x, y = oracle.activation("x", (400, 1152), 0.01), oracle.activation("y", (400, 64), 0.5)
    weights = constant("w", random.integers(-127, 128, (64, 1152), np.int8), per_tensor(0.02, 0))
    bias = constant("b", np.zeros(64, np.int32), per_tensor(0.0002, 0))
    attributes = {"activation": "NONE", "keep_num_dims": False, "weights_format": "DEFAULT"}
    node = Node("fully_connected", ("x", "w", "b"), ("y",), attributes)
    graph = oracle.graph_of([x], [node], [weights, bias, y], ["y"])
    options = CompileOptions(target=str(path), converter=DRIVER)
    (call,) = compile_graph(graph, targets.get(options.target), options).schedule.calls
    packed = call.constants["weights"]
    assert isinstance(packed, JobWeights)
    assert packed.parts == parts


def test_sizes_of_a_chip_file_are_whole_numbers(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    text = chip_text(findings_of(GIVEN), "mine")
    path.write_text(text.replace("wrong_k = { value = [1152]", "wrong_k = { value = [1152, 0.5]"))
    with pytest.raises(InvalidTargetError) as caught:
        targets.get(str(path))
    line = text.splitlines().index(next(line for line in text.splitlines() if line.startswith("wrong_k"))) + 1
    assert str(caught.value) == (
        f"{path}:{line}: jobs.wrong_k: its value is [1152, 0.5]; it is a list of whole numbers from 1 on, each once."
    )


def test_findings_without_times_leave_the_chips_own() -> None:
    text = chip_text(findings_of({**GIVEN, "times": []}), "imx95")
    assert 'name = "imx95-board"' in text
    given = (PACKAGE / "targets" / "chips" / "imx95.toml").read_text()
    changed = [line for line in text.splitlines() if line not in given.splitlines()]
    assert changed == [
        'name = "imx95-board"',
        "# With --rescale npu: Results of 1 byte fit no hypothesis; the nearest is that they are rounded to the nearest, halves up. Differences from it: +0: 127, +2: 1 (2 is 2 or more).",
        'release = { value = ["third"], source = "measured: openneutron board, kernel 6.18.20-lts" }',
        'right_k = { value = [1024], source = "measured: openneutron board, kernel 6.18.20-lts" }',
        'wrong_k = { value = [1152], source = "measured: openneutron board, kernel 6.18.20-lts" }',
    ]


def test_the_products_tell_all_hypotheses_apart() -> None:
    for size in (1, 4):
        asked = [rescale for rescale in cases.rescales() if rescale.result_bytes == size]
        results = {
            (rounding, zero_point, saturation): tuple(
                predicted(rescale, rounding, zero_point, saturation).tobytes() for rescale in asked
            )
            for rounding in ROUNDINGS
            for zero_point in ("ignored", "added")
            for saturation in ("saturate", "wrap")
        }
        assert len(set(results.values())) == len(results) == 20


def test_values_of_cases_are_those_of_the_packing() -> None:
    case = cases.Case(cases.PACKED_SIGNED, 3, 64, 128)
    values = cases.values_of(case, 5)
    weights = jobs.unpack_int8(values.packed.view(np.int8), 128, 64)
    a = cases.hashed(3 * 64, 5 * 8 + 1).view(np.int8).reshape(3, 64)
    bias = (cases.hashed(128, 5 * 8 + 3).astype(np.int64) - 128) * 37
    assert np.array_equal(values.results, a.astype(np.int64) @ weights.T.astype(np.int64) + bias)


def test_a_folder_without_a_compiler_has_the_line_that_compiles(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    make("imx95", tmp_path / "check")
    assert "aarch64-linux-gnu-gcc -std=c11 -O2 -o board_check board_check.c -ldl" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "check").iterdir()) == [
        "NeutronErrors.h", "NeutronMatmul.h", "README.md", "board_check.c", "cases.h",
    ]  # fmt: skip


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(InvalidTargetError) as unknown:
        make("imxrt700", tmp_path / "check")
    assert str(unknown.value) == f"board: there is no check for 'imxrt700'. Choose {', '.join(BOARDS)}."
    with pytest.raises(MissingToolError) as missing:
        make("imx95", tmp_path / "check", compiler="no-such-gcc")
    assert str(missing.value) == "board: the compiler 'no-such-gcc' is not installed. Name another one with --compiler."
    cut = tmp_path / "cut.json"
    cut.write_text('{"openneutron_board":1,\n "kernel":')
    with pytest.raises(InvalidOptionError) as broken:
        read_findings(cut)
    assert str(broken.value) == (
        f"{cut}: it is no file of board_check. Run the program of `openneutron board make` on the board, and give the file "
        "that it writes."
    )
    cut.write_text('{"openneutron_board":2,"kernel":"","system":"","library":{}}')
    with pytest.raises(InvalidOptionError) as newer:
        read_findings(cut)
    assert str(newer.value) == (
        f"{cut}: board_check of version 2 wrote it; this package reads version 1. Make the program again."
    )
