# SPDX-License-Identifier: BSD-3-Clause
"""Faults of a user give one clear message and exit code 2, without a traceback and without a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Command
from tests.support.litert_files import int16_file, mixed_file

Refused = Callable[..., str]

FORMS = "a built-in name, file.py:function, or a .pt2, .onnx, .keras, .pt or .tflite file"


def test_a_wrong_target(refused: Refused) -> None:
    assert refused("compile", "mixed.tflite", "--target", "imxrt70") == (
        "Target `imxrt70` is not a valid target. Must be one of `['imx943', 'imx95', 'imx952', 'imxrt700', 'mcxn54x', 'mcxn94x', 'cortex-a55', 'cortex-m33', 'cortex-m4', 'cortex-m55', 'cortex-m7', 'cortex-m85']`, or the path of a .toml file. Did you mean 'imxrt700'?"
    )


def test_int16_tensors_without_scales(refused: Refused, folder: Path) -> None:
    (folder / "old.tflite").write_bytes(int16_file())
    assert refused("compile", "old.tflite") == (
        "'old.tflite': its one operator does not run on the NPU; ADD 'y': input 'x' has no quantization parameters. "
        "`openneutron explain` gives the reason for each."
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("mixd.tflite", "'mixd.tflite' does not exist. Did you mean 'mixed.tflite'?"),
        ("zzz.tflite", "'zzz.tflite' does not exist."),
        ("no/such/x.tflite", "'no/such/x.tflite' does not exist: there is no folder 'no/such'."),
        ("absent.py:net", "'absent.py:net' does not exist.".replace("absent.py:net", "absent.py")),
        ("net.py", "'net.py' names no function. Write net.py:function; it returns a module and example inputs."),
        ("net.py:two words", "'net.py:two words': 'two words' is no function's name. Write file.py:function."),
        ("net.onnx", "'net.onnx' does not exist."),
        (
            "net.pte",
            f"'net.pte': it is compiled already; compile the model that it was made from, or run it with `openneutron run`. MODEL is {FORMS}.",
        ),
        ("net.xyz", f"'net.xyz' is no model: MODEL is {FORMS}."),
    ],
)
def test_a_model_that_is_none(refused: Refused, given: str, message: str) -> None:
    assert refused("compile", given) == message
    assert refused("explain", given) == message


def test_a_folder_and_code_in_the_place_of_a_file(refused: Refused, folder: Path) -> None:
    (folder / "album").mkdir()
    assert refused("compile", "album") == f"'album' is no model: MODEL is {FORMS}."
    for command in ("run", "profile", "disasm", "doctor"):
        assert refused(command, "net.py:net") == (
            "'net.py:net' names a function of a model; a file is needed here. Compile it first: openneutron compile net.py:net."
        )


def test_an_unknown_choice_is_named_in_our_words(openneutron: Command) -> None:
    ended = openneutron("compile", "mixed.tflite", "--io-dtype", "int18")
    assert ended.code == 2
    assert ended.err.splitlines()[-1] == (
        "Error: Invalid value for '--io-dtype': 'int18' is unknown; there are float32, int8, int16. Did you mean 'int8' or 'int16'?"
    )


def test_a_folder_of_transformers(refused: Refused, folder: Path) -> None:
    (folder / "llama").mkdir()
    (folder / "llama" / "config.json").write_text("{}")
    for given in ("llama", "./llama"):
        assert refused("compile", given) == (
            "'llama' is a folder of transformers. A language model's is for openneutron.llm.export, Whisper's for openneutron.speech.export. "
            f"MODEL is {FORMS}."
        )


def test_a_file_of_another_kind(refused: Refused, folder: Path) -> None:
    (folder / "text.tflite").write_text("no flatbuffer at all")
    message = "'text.tflite' is no LiteRT model: bytes 4 to 7 are b'latb'; a .tflite file has b'TFL3' there."
    for command in ("compile", "explain", "run", "disasm"):
        assert refused(command, "text.tflite") == message


def test_a_truncated_file(refused: Refused, folder: Path) -> None:
    (folder / "cut.tflite").write_bytes(mixed_file()[:900])
    message = "'cut.tflite' is damaged: its flatbuffer can't be read. Convert the model again."
    for command in ("compile", "explain", "run", "disasm"):
        assert refused(command, "cut.tflite") == message


def test_a_corrupt_program_in_a_file(openneutron: Command, refused: Refused, folder: Path) -> None:
    openneutron("compile", "mixed.tflite")
    data = bytearray((folder / "mixed_neutron.tflite").read_bytes())
    data[data.rindex(b"nMCd") + 200] ^= 1
    (folder / "mixed_neutron.tflite").write_bytes(data)
    message = "NeutronGraph (operator 1): program: the microcode's checksum is wrong. The file is corrupt."
    assert refused("run", "mixed_neutron.tflite", "--random", "0") == message
    assert refused("disasm", "mixed_neutron.tflite") == message


def test_options_that_do_not_go_with_a_tflite(refused: Refused) -> None:
    for option, value, kind, fact in (
        ("--calibration", "somewhere", "float", "quantized and has its own types"),
        ("--weights", "w.pt", "PyTorch", "a .tflite"),
        ("--io-dtype", "int8", "float", "quantized and has its own types"),
    ):
        assert refused("compile", "mixed.tflite", option, value) == (
            f"{option}: it is for {kind} models; 'mixed.tflite' is {fact}. Leave it out."
        )


def test_results_that_can_not_be_written(refused: Refused) -> None:
    assert refused("compile", "mixed.tflite", "-o", "nowhere/x.tflite") == (
        "'nowhere/x.tflite' can't be written: No such file or directory."
    )
    assert refused("compile", "mixed.tflite", "-o", "mixed.tflite") == (
        "--output: 'mixed.tflite' is the model itself. Choose another name."
    )
    assert refused("compile", "mixed.tflite", "-o", "x.pte") == (
        "--output: a .tflite compiles to a .tflite; 'x.pte' is named otherwise."
    )
    assert refused("run", "mixed.tflite", "--random", "0", "--output", "mixed.tflite/out") == (
        "'mixed.tflite/out' can't be used as a folder: Not a directory."
    )


def test_an_unknown_operator_not_to_delegate(refused: Refused) -> None:
    assert refused("compile", "mixed.tflite", "--operators-not-to-delegate", "MAXPOOL") == (
        "operators_not_to_delegate: 'MAXPOOL' is neither an operator nor an output of one in 'mixed.tflite'. "
        "Did you mean 'MAX_POOL_2D'?"
    )


def test_missing_inputs_say_what_is_needed(refused: Refused) -> None:
    assert refused("run", "mixed.tflite") == (
        "'mixed.tflite' takes 1 input (0: x float32[1,8,8,4]); 0 given. Give each with --input X.npy, in this order, or try "
        "--random SEED."
    )


def test_inputs_that_do_not_fit(refused: Refused, folder: Path) -> None:
    np.save(folder / "x.npy", np.zeros((1, 8, 8, 3), np.float32))
    assert refused("run", "mixed.tflite", "--input", "x.npy") == (
        "--input x.npy: it is float32[1,8,8,3]; input 0 ('x') of 'mixed.tflite' is float32[1,8,8,4]."
    )
    assert refused("run", "mixed.tflite", "--input", "y.npy") == "'y.npy' does not exist."
    assert refused("run", "mixed.tflite", "--input", ".") == ("'.' is a folder; give each .npy file in it by its name.")
    (folder / "z.npy").write_bytes(b"not NumPy's")
    assert refused("run", "mixed.tflite", "--input", "z.npy").startswith("'z.npy' is no NumPy file that can be read: ")
    np.savez(folder / "many.npz", a=np.zeros(1))
    assert refused("run", "mixed.tflite", "--input", "many.npz") == (
        "'many.npz' holds several arrays; a .npy file with one is needed here."
    )
    assert refused("run", "mixed.tflite", "--input", "x.npy", "--random", "0") == (
        "--random: it makes the inputs; leave out --input, or --random."
    )


def test_float_values_for_an_int8_input_say_how_it_is_quantized(
    openneutron: Command, refused: Refused, folder: Path
) -> None:
    openneutron("compile", "mixed.tflite", "--intermediates", "parts")
    np.save(folder / "x.npy", np.zeros((1, 8, 8, 4), np.float32))
    assert refused("run", "parts/neutron_graph_0.tflite", "--input", "x.npy") == (
        "--input x.npy: it is float32[1,8,8,4]; input 0 ('q') of 'neutron_graph_0.tflite' is int8[1,8,8,4]. "
        "Its values are quantized: real = 0.03 * (stored - 5)."
    )


def test_a_file_that_does_not_run(refused: Refused, folder: Path) -> None:
    (folder / "notes.txt").write_text("")
    assert refused("run", "notes.txt") == "'notes.txt' is neither a .pte nor a .tflite; only these run."


def test_a_file_with_nothing_to_list(refused: Refused) -> None:
    assert refused("disasm", "mixed.tflite") == (
        "'mixed.tflite' has no NeutronGraph in it. Compile it first: openneutron compile mixed.tflite."
    )


def test_damaged_payloads(refused: Refused, folder: Path) -> None:
    for name, data in (
        ("short.bin", b"\1\1\1"),
        ("none.bin", bytes(512)),
        ("main.c", b"int main(void) { return 0; }\n"),
    ):
        (folder / name).write_bytes(data)
        assert refused("disasm", name) == (
            f"'{name}' is no compiled .tflite or .pte, nor a delegate's payload: there is no Neutron microcode in it."
        )
    (folder / "cut.bin").write_bytes(b"\1\1\1" + b"nMCd")
    assert refused("disasm", "cut.bin") == "payload: it is 7 bytes; its headers alone have 144."
    (folder / "text.pte").write_text("no program either")
    message = "'text.pte' is no ExecuTorch program: bytes 4 to 7 are b'rogr'; a .pte file has b'ET12' there."
    assert refused("disasm", "text.pte") == message
    assert refused("run", "text.pte") == message


def test_usage_errors_leave_with_2(openneutron: Command) -> None:
    for arguments in (
        ["compile"],
        ["frobnicate"],
        ["compile", "mixed.tflite", "--sram-budget", "0"],
        ["run", "--wrong"],
    ):
        assert openneutron(*arguments).code == 2


def test_nothing_is_kept_of_a_result_that_can_not_be_written(openneutron: Command, folder: Path) -> None:
    before = sorted(folder.iterdir())
    ended = openneutron("compile", "mixed.tflite", "-o", "nowhere/x.tflite", "--intermediates", "kept/here")
    assert (ended.code, ended.err) == (2, "error: 'nowhere/x.tflite' can't be written: No such file or directory.\n")
    assert sorted(folder.iterdir()) == before


def test_an_intermediate_that_can_not_be_written_leaves_nothing(openneutron: Command, folder: Path) -> None:
    (folder / "taken").write_bytes(b"")
    before = sorted(folder.iterdir())
    ended = openneutron("compile", "mixed.tflite", "--intermediates", "taken")
    assert (ended.code, ended.err) == (2, "error: 'taken' can't be used as a folder: File exists.\n")
    assert sorted(folder.iterdir()) == before


def test_no_half_written_file_stays(openneutron: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fills up just as the result is moved to its place."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    before = sorted(folder.iterdir())
    ended = openneutron("compile", "mixed.tflite")
    assert (ended.code, ended.err) == (2, "error: 'mixed_neutron.tflite' can't be written: No space left on device.\n")
    assert sorted(folder.iterdir()) == before
