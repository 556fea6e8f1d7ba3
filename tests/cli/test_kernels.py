# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron compile --dump-kernel-selection``, ``openneutron kernels list`` and ``openneutron kernels merge``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import openneutron as package
from openneutron.isa import rows
from openneutron.isa.kernel_selection import KernelSelection, parse
from openneutron.isa.microcode import Program
from openneutron.isa.payload import Format, Payload
from tests.cli.conftest import Command
from tests.support import programs
from tests.support.programs import comparison
from tests.support.pte_files import pte_file

Refused = Callable[..., str]
US = f"OpenNeutron {package.__version__}"


def kernels_in(path: Path) -> tuple[str, ...]:
    found = parse(path.name, path.read_text())
    assert found.compiler == US
    return found.kernels


def payload(program: Program) -> bytes:
    return Payload(program, (Format.CONTIGUOUS,), (Format.CONTIGUOUS,), (0,), (0,), 1).compose()


def test_a_file_of_the_model_and_one_of_each_partition(openneutron: Command, folder: Path) -> None:
    before = set(folder.iterdir())
    ended = openneutron("compile", "mixed.tflite", "--dump-kernel-selection")
    stem = "mixed_neutron"
    assert ended.code == 0
    assert f"  Kernels      {stem}_kernel_selection.c, for the firmware's linker" in ended.out.splitlines()
    assert {path.name for path in set(folder.iterdir()) - before} == {
        f"{stem}.tflite",
        f"{stem}_kernel_selection.c",
        f"{stem}_neutron_graph_0_kernel_selection.c",
        f"{stem}_neutron_graph_1_kernel_selection.c",
    }
    parts = [kernels_in(folder / f"{stem}_neutron_graph_{index}_kernel_selection.c") for index in range(2)]
    assert parts == [("conv_2d_s8", "max_pool_2d_s8"), ("conv_2d_s8", "add_s8")]
    whole = folder / f"{stem}_kernel_selection.c"
    assert kernels_in(whole) == ("conv_2d_s8", "add_s8", "max_pool_2d_s8")
    merged = openneutron(
        "kernels", "merge", "-o", "all.c", *(f"{stem}_neutron_graph_{index}_kernel_selection.c" for index in (1, 0))
    )
    assert (merged.code, merged.out, merged.err) == (0, "", "")
    assert (folder / "all.c").read_text() == whole.read_text()


def test_a_file_where_it_is_asked_for(openneutron: Command, folder: Path) -> None:
    (folder / "firmware").mkdir()
    ended = openneutron(
        "compile", "mixed.tflite", "-o", "m.tflite", "--kernel-selection", "firmware/net_kernel_selection.c", "--json"
    )
    assert json.loads(ended.out)["kernel_selection"] == "firmware/net_kernel_selection.c"
    assert sorted(path.name for path in (folder / "firmware").iterdir()) == [
        "net_kernel_selection.c",
        "net_neutron_graph_0_kernel_selection.c",
        "net_neutron_graph_1_kernel_selection.c",
    ]


def test_what_can_not_be_a_selection(refused: Refused) -> None:
    assert refused("compile", "mixed.tflite", "--kernel-selection", "selection.txt") == (
        "kernel selection: it is a C file; 'selection.txt' is none. Name a file that ends in .c."
    )
    assert refused("compile", "mixed.tflite", "--kernel-selection", "absent/selection.c") == (
        "'absent/selection.c' can't be written: No such file or directory."
    )
    assert refused("compile", "cifarnet", "--converter", "eiq", "--dump-kernel-selection") == (
        "kernel selection: with converter 'eiq' the kernels are NXP's. dump_kernel_selection_code of "
        "generate_neutron_compile_spec asks its converter for a file of each partition, which its own tool merges."
    )


def test_the_list_of_a_compiled_model(openneutron: Command) -> None:
    openneutron("compile", "mixed.tflite", "--dump-kernel-selection")
    assert openneutron("kernels", "list", "mixed_neutron.tflite").out == (
        "mixed_neutron.tflite  microcode format 0x4F4E0004\n"
        "  operator 1: neutron_graph_0  conv_2d_s8, max_pool_2d_s8\n"
        "  operator 3: neutron_graph_1  conv_2d_s8, add_s8\n"
        "  all                          conv_2d_s8, add_s8, max_pool_2d_s8\n"
    )
    assert openneutron("kernels", "list", "mixed_neutron_kernel_selection.c").out == (
        f"mixed_neutron_kernel_selection.c  {US}, microcode format 0x4F4E0004\n"
        "  registers  conv_2d_s8, add_s8, max_pool_2d_s8\n"
    )


def test_the_list_has_variants(openneutron: Command, folder: Path) -> None:
    (folder / "less.bin").write_bytes(payload(comparison("less")))
    assert openneutron("kernels", "list", "less.bin").out == (
        "less.bin  microcode format 0x4F4E0004\n  less.bin  compare_s8 (less)\n"
    )
    selection = KernelSelection(US, ("softmax_s8", "compare_s8:equal", "compare_s8:less"))
    (folder / "two.c").write_text(selection.text())
    assert json.loads(openneutron("kernels", "list", "two.c", "--json").out) == {
        "schema_version": 2,
        "command": "kernels list",
        "file": "two.c",
        "compiler": US,
        "microcode_format": "0x4F4E0004",
        "programs": [],
        "kernels": [
            {"name": "softmax_s8", "variants": []},
            {"name": "compare_s8", "variants": ["equal", "less"]},
        ],
    }


def test_a_program_with_a_buffer_that_is_not_there(refused: Refused, folder: Path) -> None:
    words = dict.fromkeys((column.name for column in rows.KERNEL_BY_NAME["conv_2d_1x1_s8"].fields), 0)
    operator = programs.kernel("conv_2d_1x1_s8", **words | {"single_rounding": 1, "output": 9})
    program = programs.program(
        inputs=(programs.binding("INPUT", 0, 8),),
        outputs=(programs.binding("OUTPUT", 0, 8),),
        buffers=(programs.dense("INPUT", 0, (1, 1, 1, 8)),),
        operators=(operator,),
        code=(programs.END,),
    )
    (folder / "damaged.bin").write_bytes(payload(program))
    assert refused("kernels", "list", "damaged.bin") == ("microcode: conv_2d_1x1_s8 refers to buffer 9; there are 1.")


def test_files_that_are_none(refused: Refused, folder: Path) -> None:
    (folder / "main.c").write_text("int main(void) { return 0; }\n")
    none = (
        "'main.c' is no kernel selection: it does not say which compiler wrote it. "
        "`openneutron compile --dump-kernel-selection` writes one."
    )
    assert refused("kernels", "list", "main.c") == none
    assert refused("kernels", "merge", "-o", "all.c", "main.c") == none
    assert (
        refused("kernels", "merge", "-o", "all.c", "absent.c") == "'absent.c' can't be read: No such file or directory."
    )
    assert refused("kernels", "list", "absent.c") == "'absent.c' does not exist."
    assert refused("kernels", "list", "mixed.tflite") == (
        "'mixed.tflite' has no NeutronGraph in it. Compile it first: openneutron compile mixed.tflite."
    )
    (folder / "a.c").write_text(KernelSelection(US, ()).text())
    assert refused("kernels", "merge", "-o", "all.h", "a.c") == (
        "kernel selection: it is a C file; 'all.h' is none. Name a file that ends in .c."
    )


def test_files_that_were_changed(refused: Refused, folder: Path) -> None:
    text = KernelSelection(US, ("conv_2d_s8", "softmax_s8")).text()
    for changed in (text[: text.index("NEUTRON_KERNEL(1")], text[:-2], text.replace("softmax_s8", "softmax_u8")):
        (folder / "a.c").write_text(changed)
        for command in (("list", "a.c"), ("merge", "-o", "all.c", "a.c")):
            assert refused("kernels", *command) == (
                "'a.c': a kernel selection that was changed, or is truncated; firmware would lack kernels. "
                "`openneutron compile --dump-kernel-selection` writes it anew."
            )


def test_files_of_two_versions(refused: Refused, folder: Path) -> None:
    for name, version in (("a.c", "1.0"), ("b.c", "1.1")):
        (folder / name).write_text(KernelSelection(f"OpenNeutron {version}", ("lookup_s8",)).text())
    assert refused("kernels", "merge", "-o", "all.c", "a.c", "b.c") == (
        "kernel selections: files of 2 versions can't be merged ('a.c': OpenNeutron 1.0, microcode format 0x4F4E0004; "
        "'b.c': OpenNeutron 1.1, microcode format 0x4F4E0004). Compile the models with one version."
    )


def test_a_program_without_our_delegate(refused: Refused, folder: Path) -> None:
    (folder / "other.pte").write_bytes(pte_file(False, "XnnpackBackend"))
    assert refused("kernels", "list", "other.pte") == (
        "'other.pte' has no NeutronBackend delegate in it; its delegates: XnnpackBackend."
    )
    (folder / "zeros.pte").write_bytes(bytes(64))
    assert refused("kernels", "list", "zeros.pte") == (
        "'zeros.pte' is no ExecuTorch program: bytes 4 to 7 are b'\\x00\\x00\\x00\\x00'; a .pte file has b'ET12' there."
    )
