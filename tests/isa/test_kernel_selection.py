# SPDX-License-Identifier: BSD-3-Clause
"""Kernel selections: what is in a file comes back, and merging is a union of sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openneutron.errors import InvalidProgramError
from openneutron.isa import rows
from openneutron.isa.kernel_selection import KernelSelection, merge, parse
from openneutron.isa.kernels.row import Row

NAMES = [name for row in rows.KERNELS for name in (row.name, *(f"{row.name}:{item.name}" for item in row.variants))]
US = "OpenNeutron 1.2.3"


def selection(kernels: set[str]) -> KernelSelection:
    """A selection of these, written as the compiler writes it."""
    return merge({"a.c": KernelSelection(US, tuple(kernels))})


def registered(kernels: set[str]) -> set[str]:
    """These, but whole kernels instead of all of their variants, and of those that are not to be beside another kernel."""
    there = {name.partition(":")[0] for name in kernels}
    for row in rows.KERNELS:
        taken = [item for item in row.variants if f"{row.name}:{item.name}" in kernels]
        if len(taken) == len(row.variants) > 1 or any(there & set(item.not_beside) for item in taken):
            kernels = kernels | {row.name}
    return {name for name in kernels if name.partition(":")[0] not in kernels - {name}}


SELECTIONS = st.sets(st.sampled_from(NAMES)).map(selection)


@given(SELECTIONS)
def test_a_file_says_what_it_was_made_of(item: KernelSelection) -> None:
    assert parse("a.c", item.text()) == item


@given(st.lists(SELECTIONS, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_merging_is_a_union(items: list[KernelSelection], random: object) -> None:
    merged = merge({f"{place}.c": item for place, item in enumerate(items)})
    assert set(merged.kernels) == registered({name for item in items for name in item.kernels})
    shuffled = list(enumerate(items))
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert merge({f"{place}.c": item for place, item in shuffled}).text() == merged.text()
    assert merge({"a.c": merged, "b.c": merged, **{f"{i}.c": item for i, item in enumerate(items)}}) == merged
    for place in range(1, len(items)):
        parts = [merge({f"{i}.c": item for i, item in enumerate(some)}) for some in (items[:place], items[place:])]
        assert merge({"a.c": parts[0], "b.c": parts[1]}) == merged


def test_all_of_a_kernel_has_its_variants_in_it() -> None:
    each = [name for name in NAMES if name.startswith("compare_s8:")]
    assert len(each) == 6
    assert selection(set(each)).kernels == ("compare_s8",)
    assert selection(set(each[1:])).kernels == tuple(each[1:])
    assert selection({"compare_s8", each[0]}).kernels == ("compare_s8",)


def test_a_variant_that_gives_way_to_the_kernel() -> None:
    assert selection({"conv_2d_1x1_s8:vector", "add_s8"}).kernels == ("conv_2d_1x1_s8:vector", "add_s8")
    assert selection({"conv_2d_1x1_s8:vector", "conv_2d_s8"}).kernels == ("conv_2d_s8", "conv_2d_1x1_s8")


@pytest.mark.parametrize("row", [row for row in rows.KERNELS if row.variants], ids=lambda row: row.name)
def test_conditions_are_about_words_that_there_are(row: Row) -> None:
    names = [item.name for item in row.variants]
    assert len(set(names)) == len(names)
    for condition in (condition for item in row.variants for condition in item.conditions):
        field, dot, of_buffer = condition.field.partition(".")
        (column,) = (column for column in row.fields if column.name == field)
        assert (column.refers == "buffer") == bool(dot)
        assert not dot or of_buffer in {column.name for column in rows.BUFFER.fields}
    assert {name for item in row.variants for name in item.not_beside} <= {other.name for other in rows.KERNELS} - {
        row.name
    }


def test_files_of_two_versions() -> None:
    with pytest.raises(InvalidProgramError) as caught:
        merge({"a.c": selection(set()), "b.c": KernelSelection("OpenNeutron 1.3.0", ()), "c.c": selection(set())})
    assert str(caught.value) == (
        "kernel selections: files of 2 versions can't be merged ('a.c': OpenNeutron 1.2.3, microcode format 0x4F4E0004; "
        "'b.c': OpenNeutron 1.3.0, microcode format 0x4F4E0004; 'c.c': OpenNeutron 1.2.3, microcode format 0x4F4E0004). "
        "Compile the models with one version."
    )


def test_files_of_another_microcode_format() -> None:
    with pytest.raises(InvalidProgramError) as caught:
        merge({"a.c": KernelSelection(US, (), 0x4F4EFFFF)})
    assert str(caught.value) == (
        "kernel selections: the files are of OpenNeutron 1.2.3, microcode format 0x4F4EFFFF; this compiler can't merge them: "
        f"it speaks 0x{rows.FORMAT_VERSION:08X}. Merge them with the compiler that wrote them."
    )


def test_kernels_that_are_not_ours() -> None:
    with pytest.raises(InvalidProgramError, match=r"this compiler can't merge them: it has no kernel foo_s8\. Merge"):
        merge({"a.c": KernelSelection(US, ("foo_s8",))})


def test_files_that_are_none() -> None:
    with pytest.raises(InvalidProgramError) as caught:
        parse("x.c", "int main(void) { return 0; }\n")
    assert str(caught.value) == (
        "'x.c' is no kernel selection: it does not say which compiler wrote it. "
        "`openneutron compile --dump-kernel-selection` writes one."
    )
    with pytest.raises(
        InvalidProgramError, match=r"^kernel selections: there are no files to merge\. Name one at least\.$"
    ):
        merge({})
