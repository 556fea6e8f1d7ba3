# SPDX-License-Identifier: BSD-3-Clause
"""A kernel selection makes an image smaller by the kernels that it leaves out, and by nothing else."""

from __future__ import annotations

from openneutron.isa import rows
from openneutron.isa.kernel_selection import parse
from tests.cortex_m33 import link_map
from tests.cortex_m33.firmware import RUNTIME, image, library
from tests.cortex_m33.models import CIFARNET, model

TABLE, COUNT = ".rodata.neutron_kernels", ".rodata.neutron_kernel_count"
SHARED = {path.stem for path in RUNTIME.glob("kernels/*.c")}
SELECTION = "kernel_selection.o"
KERNELS = sorted((row.name for row in rows.KERNELS), key=len, reverse=True)


def kernel_of(member: str) -> str:
    """The kernel that an archive's object belongs to: ``conv_2d_s8`` for ``libneutron.a(conv_2d_s8_dsp.o)``."""
    stem = member.removeprefix("libneutron.a(").removesuffix(".o)")
    return next((name for name in KERNELS if stem.startswith(name)), stem)


def plain(section: str) -> str:
    """The section of a function, whether or not the compiler takes it for one that rarely runs."""
    return section.replace(".text.unlikely.", ".text.")


def kernels_in(found: link_map.LinkMap) -> set[str]:
    sections = {plain(section) for _, section in found.sections}
    return {name for name in KERNELS if f".text.{name}_check" in sections}


def test_the_linker_drops_exactly_the_kernels_that_are_not_selected() -> None:
    archive = library()  # first: skips where the compiler is absent
    text = model(CIFARNET).selection
    names = [name.split(":") for name in parse("cifarnet", text).kernels]
    selected = {kernel for kernel, *_ in names}
    variants = [(kernel, variant) for kernel, *rest in names for variant in rest]
    every = link_map.read(image(archive).map)
    chosen = link_map.read(image(archive, selection=text).map)
    assert kernels_in(every) == set(KERNELS)
    assert kernels_in(chosen) == selected
    assert not any("queue" in member for member, _ in every.sections), "no part of the queue without a call of it"

    for found in (every, chosen):
        assert found.size == sum(found.sections.values()) + found.padding
    dropped = {key: size for key, size in every.sections.items() if key not in chosen.sections}
    added = {key: size for key, size in chosen.sections.items() if key not in every.sections}
    assert all(every.sections[key] == size for key, size in chosen.sections.items() if key not in added)

    own_table = {key: dropped.pop(key) for key in list(dropped) if key[0] == "libneutron.a(table.o)"}
    assert {section for _, section in own_table} == {TABLE, COUNT}
    # The selection's own table and, for each variant in it, which calls it takes; the library's table has none.
    table = {(SELECTION, section): added.pop((SELECTION, section)) for section in (TABLE, COUNT)}
    assert {plain(section) for _, section in added} == {
        f".text.{kernel}_{part}_{variant}" for kernel, variant in variants for part in ("takes", "run")
    }
    # Whose functions went: kernels that are not selected, what only these share, and calls that no variant takes.
    of_variants = {kernel for kernel, _ in variants}
    # The kernels of language models call the compiler's functions for floats and for divisions of 64 bits.
    gone = {kernel_of(member) for member, _ in dropped if not member.startswith("libgcc.a")}
    assert gone - of_variants - SHARED == set(KERNELS) - selected

    kernels, extra = sum(dropped.values()), sum(added.values())
    tables = sum(own_table.values()) - sum(table.values())
    padding = every.padding - chosen.padding
    print(f"{every.size} bytes with all kernels, {chosen.size} with CifarNet's: {kernels} of kernels less {extra} of")
    print(f"variants, {tables} of the table, {padding} of padding")
    assert every.size - chosen.size == kernels - extra + tables + padding
    # A table is as long as it has entries, and padding is below a word for each section that went.
    assert own_table["libneutron.a(table.o)", TABLE] * len(names) == table[SELECTION, TABLE] * len(KERNELS)
    assert abs(padding) < 4 * len(dropped)
