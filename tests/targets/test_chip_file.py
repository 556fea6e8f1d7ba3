# SPDX-License-Identifier: BSD-3-Clause
"""Files of chips: those of the package are complete, and a mistake in a user's file is an error with its line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from openneutron import targets
from openneutron.compiler import compile_graph
from openneutron.errors import InvalidTargetError
from openneutron.features.export.forms import FORMS
from openneutron.isa import decode
from openneutron.options import CompileOptions
from openneutron.targets.target import KINDS, PORT_NAMES
from scripts.published_networks import cifarnet
from tests.support.chip_files import changed_chip, text_of_chip


def test_every_fact_of_every_chip_has_a_source() -> None:
    for name in targets.KNOWN:
        target = targets.described(name)
        assert target.name == name
        assert {fact.kind for _, _, fact in target.facts()} <= KINDS.keys()
        assert set(target.assumed) == {
            place for place, _, fact in target.facts() if fact.source.startswith("assumed: ")
        }
    assert targets.names() == [*targets.NPUS] == ["imx943", "imx95", "imx952", "imxrt700", "mcxn54x", "mcxn94x"]
    assert [*targets.CPUS] == ["cortex-a55", "cortex-m33", "cortex-m4", "cortex-m55", "cortex-m7", "cortex-m85"]


def test_numbers_are_written_out() -> None:
    shown = {place: str(fact) for place, _, fact in targets.get("imx95").facts()}
    assert (shown["memory ddr: size"], shown["memory tcm: latency"]) == ("2,097,152 KiB", "1 cycle")
    assert (shown["memory ddr: latency"], shown["costs.fill_cycles"]) == ("150 cycles", "0.88 cycles")
    assert (shown["host.conversion_cycles"], shown["copies by data mover: rate"]) == (
        "1.7 cycles/element",
        "12 bytes/cycle",
    )


def test_the_c_port_of_a_chip_is_one_that_bundles_have() -> None:
    ports = {name: targets.described(name).port for name in targets.KNOWN}
    assert set(PORT_NAMES) == {"", *(name for name, form in FORMS.items() if not form.is_nxp)}
    assert {port.name for port in ports.values()} <= set(PORT_NAMES)
    assert {name for name, port in ports.items() if port.name} == {
        name for name in targets.KNOWN if not targets.get(name).moves_tiles
    }


@pytest.mark.parametrize(("one", "other"), [("imx95", "imx952"), ("mcxn94x", "mcxn54x")])
def test_two_chips_of_one_npu_have_one_program(one: str, other: str) -> None:
    """All figures are equal, so that each test of one chip is a test of the other. The microcode differs in the chip that it is for.

    Matrix products by the driver are published for i.MX 95 alone.
    """
    chips = [targets.get(one), targets.get(other)]
    facts = [[(place, fact.value) for place, _, fact in replace(chip, jobs=None).facts()] for chip in chips]
    assert facts[0] == facts[1] and (chips[0].family, chips[0].hw_version) == (chips[1].family, chips[1].hw_version)
    assert chips[0].limits == chips[1].limits
    programs = [compile_graph(cifarnet(), chip).program for chip in chips]
    code = [replace(decode(program), target=0) for program in programs]
    assert code[0] == code[1] and programs[0].weights == programs[1].weights


def test_a_neutron_s_works_on_a_memory_of_its_own() -> None:
    chip = targets.get("imx95")
    assert (chip.macs_per_cycle, chip.subsystem, chip.moves_tiles) == (1024, True, True)
    assert (chip.arena_memory.name, chip.external_memory.name, chip.constants_memory.name) == ("tcm", "ddr", "tcm")
    assert (chip.units, chip.all_pipelines, chip.macs_per_cycle) == (4, 64, 1024)


def test_a_neutron_s_needs_a_copy_engine_from_another_memory(tmp_path: Path) -> None:
    path = tmp_path / "changed.toml"
    path.write_text(text_of_chip("imx95").replace('source = "ddr"\ndestination', 'source = "tcm"\ndestination'))
    with pytest.raises(InvalidTargetError) as caught:
        targets.get(str(path))
    assert str(caught.value) == (
        f"Target `{path}` has an NPU with a memory of its own, and no copy engine copies to this memory from another one. "
        "Choose one of `['imx943', 'imx95', 'imx952', 'imxrt700', 'mcxn54x', 'mcxn94x']`."
    )


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = str(changed_chip(tmp_path, {"pipelines": 16}))
    assert targets.get(path).pipelines == 16
    changed_chip(tmp_path, {"pipelines": 4})
    assert targets.get(path).pipelines == 4
    assert targets.get(path).with_sram(24).sram.value == 24


CLOCK = 'clock = { value = 324, unit = "MHz", source = "published: NXP\'s latency tables for the MIMXRT700-EVK" }'

MISTAKES = {
    "an unknown entry": (
        "pipelines = {",
        "pipeline = {",
        "12: npu.pipeline: it is unknown. Did you mean 'pipelines'?",
    ),
    "a missing entry": (
        'macs = { value = 8, source = "published: ExecuTorch\'s target object" }\n',
        "",
        "10: npu.macs: it is missing: multipliers of a pipeline, which share a dot product. "
        'Write macs = { value = 1, source = "assumed: ..." }.',
    ),
    "a number without a source": (
        CLOCK,
        'clock = { value = 324, unit = "MHz" }',
        '15: npu.clock: it has no source; a source begins with one of published, secondary, fitted, measured, assumed, then ": " and by '
        "whom or why.",
    ),
    "a bare number": (
        CLOCK,
        "clock = 324",
        '15: npu.clock: it is 324; it has a value and a source: { value = 1, unit = "MHz", source = "assumed: ..." }.',
    ),
    "another unit": (CLOCK, CLOCK.replace("MHz", "GHz", 1), "15: npu.clock: its unit is 'GHz'; it is in MHz."),
    "a value out of its range": (
        "pipelines = { value = 8",
        "pipelines = { value = 0.5",
        "12: npu.pipelines: its value is 0.5; it is a whole number from 1 on.",
    ),
    "a band that holds any latency": (
        "error = { value = 20",
        "error = { value = 135",
        "60: costs.error: its value is 135; it is a number from 0 to 99.",
    ),
    "unknown words": (
        '"int8", "int16"',
        '"int4"',
        "16: npu.data_types: its value is ['int4']; it is a list of words from int8, int16.",
    ),
    "an unknown family": (
        '"Neutron-C"',
        '"Neutron-X"',
        "7: family: it is 'Neutron-X'; it is one of Neutron-C, Neutron-S, CPU.",
    ),
    "an unknown memory": (
        'source = "flash"',
        'source = "disk"',
        "41: copy_engine.0.source: it is 'disk'; it is one of sram, flash.",
    ),
    "two memories of activations": (
        'value = ["constants"]',
        'value = ["activations"]',
        "19: memory: 2 memories hold activations; exactly one does.",
    ),
    "an alignment that programs do not have": (
        "alignment = { value = 16,",
        "alignment = { value = 64,",
        "25: memory.0.alignment: its value is 64; buffers of activations are at multiples of 16 bytes.",
    ),
    "an entry twice": (
        "pipelines = {",
        "units = { value = 2 }\npipelines = {",
        "12: npu.units: line 11 has it too. Delete one of the two.",
    ),
    "a table twice": (
        "[costs]",
        "[host]",
        "54: host: line 47 has it too. Delete one of the two.",
    ),
    "a list of tables that begins as a table": (
        "[[memory]]",
        "[memory]",
        "29: memory: line 19 has [memory] and this line [[memory]]. Write [[memory]] in both.",
    ),
    "a list in place of a table": (
        "[npu]",
        "[[npu]]",
        "10: npu: it is no table [npu]. Write one table [npu].",
    ),
    "two memories of one name": (
        'name = "flash"',
        'name = "sram"',
        "30: memory.1.name: 'sram' is the name of another one. Choose another name.",
    ),
    "activations that the NPU does not read": (
        'readers = { value = ["npu", "host"]',
        'readers = { value = ["host"]',
        "26: memory.0.readers: npu is missing; the NPU reads and writes the memory of activations. Add 'npu'.",
    ),
    "activations that the NPU does not write": (
        'writers = { value = ["npu", "host"]',
        "writers = { value = []",
        "27: memory.0.writers: npu is missing; the NPU reads and writes the memory of activations. Add 'npu'.",
    ),
    "a copy into the same memory": (
        'source = "flash"',
        'source = "sram"',
        "41: copy_engine.0.source: it is 'sram', as the destination is; a copy engine copies between two memories.",
    ),
    "no int8": (
        '["int8", "int16"]',
        '["int16"]',
        "16: npu.data_types: int8 is missing; the compiler takes it for granted. Add 'int8'.",
    ),
    "two modes of a copy engine": (
        'mode = { value = ["synchronous"]',
        'mode = { value = ["synchronous", "background"]',
        "44: copy_engine.0.mode: its value is ['synchronous', 'background']; it is one of synchronous, background.",
    ),
    "an unknown port": (
        'name = "cortex_m33"',
        'name = "cortex_m4"',
        "63: port.name: it is 'cortex_m4'; it is one of cortex_m33, zephyr, mcuxpresso, mcxn947, cmake, arduino, cmsis-pack, esp-idf or empty.",
    ),
    "no table": (
        "[host]",
        "[guest]",
        "47: guest: it is unknown. There are name, title, family, hw_version, npu, memory, copy_engine, host, costs, jobs, port, limits.",
    ),
    "no TOML": (
        "[npu]",
        "[npu",
        "10: it is no TOML: Expected ']' at the end of a table declaration (at line 10, column 5).",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_with_its_line(mistake: str, tmp_path: Path) -> None:
    before, after, message = MISTAKES[mistake]
    text = text_of_chip()
    assert before in text
    path = tmp_path / "my_chip.toml"
    path.write_text(text.replace(before, after, 1))
    with pytest.raises(InvalidTargetError) as caught:
        targets.get(str(path))
    assert str(caught.value) == f"{path}:{message}"


def test_constants_need_a_memory(tmp_path: Path) -> None:
    path = tmp_path / "my_chip.toml"
    text = text_of_chip().replace('value = ["activations", "constants"]', 'value = ["activations"]')
    path.write_text(text.replace('holds = { value = ["constants"]', "holds = { value = []"))
    with pytest.raises(InvalidTargetError) as caught:
        targets.get(str(path))
    assert str(caught.value) == f"{path}:19: memory: no memory holds constants; at least one does."


def test_an_option_takes_a_path_and_no_other_object(tmp_path: Path) -> None:
    path = changed_chip(tmp_path, {"pipelines": 16})
    assert CompileOptions(target=path) == CompileOptions(target=str(path))  # type: ignore[arg-type]
    with pytest.raises(InvalidTargetError) as caught:
        CompileOptions(target=None)  # type: ignore[arg-type]
    assert str(caught.value) == "target: it is None; it is the name of a chip, or the path of a .toml file, as a text."


def test_limits_are_a_table(tmp_path: Path) -> None:
    path = tmp_path / "my_chip.toml"
    path.write_text("limits = 5\n" + text_of_chip().partition("[limits]")[0])
    with pytest.raises(InvalidTargetError) as caught:
        targets.get(str(path))
    assert str(caught.value) == f"{path}:1: limits: it is no table [limits]. Write one table [limits]."


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "my_chip.toml"
    path.write_text(text_of_chip(), encoding="utf-8-sig")
    assert targets.get(str(path)).name == "changed"


def test_a_file_under_another_name_is_suggested(tmp_path: Path) -> None:
    words = f"is not a valid target. Must be one of `{[*targets.names(), *targets.CPUS]}`, or the path of a .toml file."
    path = tmp_path / "my_chip.toml"
    path.write_text(text_of_chip())
    (tmp_path / "my_chip.txt").write_text(text_of_chip())
    for name, hint in (
        ("my_chip", f"Did you mean '{path}'?"),
        ("my_chip.txt", f"The name of the file '{tmp_path / 'my_chip.txt'}' does not end in .toml; rename it."),
    ):
        with pytest.raises(InvalidTargetError) as caught:
            targets.get(str(tmp_path / name))
        assert str(caught.value) == f"Target `{tmp_path / name}` {words} {hint}"


def test_a_file_that_is_absent_or_has_a_known_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidTargetError) as caught:
        targets.get("absent.toml")
    assert (
        str(caught.value) == "absent.toml: it can't be read: No such file or directory. Give the path of a .toml file."
    )
    path = tmp_path / "mine.toml"
    path.write_text(targets.KNOWN["imxrt700"].read_text())
    with pytest.raises(InvalidTargetError) as caught:
        targets.get(str(path))
    assert str(caught.value) == (
        f"{path}:5: name: 'imxrt700' is the name of a chip that comes with OpenNeutron. Give the chip another name."
    )


def test_a_copy_engine_in_the_background_shortens_the_latency(tmp_path: Path) -> None:
    chips = {}
    for mode in ("synchronous", "background"):
        path = tmp_path / f"{mode}.toml"
        path.write_text(text_of_chip().replace('mode = { value = ["synchronous"]', f'mode = {{ value = ["{mode}"]'))
        chips[mode] = targets.get(str(path))
    options = CompileOptions(prefetch_constants=True)
    waits, hides = (compile_graph(cifarnet(), chip, options) for chip in chips.values())
    assert replace(decode(hides.program), target=0) == replace(decode(waits.program), target=0)
    assert hides.report.cycles == hides.report.overlapped_cycles == waits.report.overlapped_cycles < waits.report.cycles
    kernels = waits.report.cycles - waits.report.copy_cycles
    assert hides.report.cycles - hides.report.copy_cycles == kernels


def test_a_neutron_s_copies_in_the_background(tmp_path: Path) -> None:
    path = tmp_path / "changed.toml"
    path.write_text(text_of_chip("imx95").replace('value = ["background"]', 'value = ["synchronous"]'))
    with pytest.raises(InvalidTargetError) as caught:
        targets.get(str(path))
    assert str(caught.value) == (
        f"{path}:44: copy_engine.0.mode: its value is synchronous; the data mover of a Neutron-S works beside the kernels. Write "
        "'background'."
    )
