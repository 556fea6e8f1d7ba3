# SPDX-License-Identifier: BSD-3-Clause
"""Kernel selections: what is in a file comes back, and merging is a union of sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openneutron.errors import InvalidProgramError
from openneutron.isa import rows
from openneutron.isa.kernel_selection import KernelSelection, merge, parse

NAMES = [name for row in rows.KERNELS for name in (row.name, *(f"{row.name}:{item.name}" for item in row.variants))]
US = "OpenNeutron 1.2.3"


def selection(kernels: set[str]) -> KernelSelection:
    """A selection of these, written as the compiler writes it."""
    return merge({"a.c": KernelSelection(US, tuple(kernels))})


def code(kernels: tuple[str, ...]) -> set[str]:
    """What may run where these are registered: all variants of whole kernels, and kernels without variants."""
    found = set()
    for row in rows.KERNELS:
        variants = {f"{row.name}:{item.name}" for item in row.variants} or {row.name}
        found |= variants if row.name in kernels else variants & set(kernels)
    return found


SELECTIONS = st.sets(st.sampled_from(NAMES)).map(selection)


@given(SELECTIONS)
def test_a_file_says_what_it_was_made_of(item: KernelSelection) -> None:
    assert parse("a.c", item.text()) == item


@given(st.lists(SELECTIONS, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_merging_is_a_union(items: list[KernelSelection], random: object) -> None:
    merged = merge({f"{place}.c": item for place, item in enumerate(items)})
    assert code(merged.kernels) == {name for item in items for name in code(item.kernels)}
    shuffled = list(enumerate(items))
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert merge({f"{place}.c": item for place, item in shuffled}).text() == merged.text()
    assert merge({"a.c": merged, "b.c": merged, **{f"{i}.c": item for i, item in enumerate(items)}}) == merged
    for place in range(1, len(items)):
        parts = [merge({f"{i}.c": item for i, item in enumerate(some)}) for some in (items[:place], items[place:])]
        assert merge({"a.c": parts[0], "b.c": parts[1]}) == merged


def test_all_variants_are_the_kernel() -> None:
    each = [name for name in NAMES if name.startswith("compare_s8:")]
    assert len(each) == 6
    assert selection(set(each)).kernels == selection({"compare_s8", each[0]}).kernels == ("compare_s8",)
    assert selection(set(each[:5])).kernels == tuple(each[:5])


def test_files_of_two_versions() -> None:
    with pytest.raises(InvalidProgramError) as caught:
        merge({"a.c": selection(set()), "b.c": KernelSelection("OpenNeutron 1.3.0", ()), "c.c": selection(set())})
    assert str(caught.value) == (
        "kernel selections: files of 2 versions can't be merged ('a.c': OpenNeutron 1.2.3, microcode format 0x4F4E0001; "
        "'b.c': OpenNeutron 1.3.0, microcode format 0x4F4E0001; 'c.c': OpenNeutron 1.2.3, microcode format 0x4F4E0001). "
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
