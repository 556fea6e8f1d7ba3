# SPDX-License-Identifier: BSD-3-Clause
"""The driver's functions fit into a stack of 4 KiB with every kernel, whatever a program calls."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from openneutron.compiler.rewrite import jobs
from scripts.firmware_build import BUILDS, ROOT, Build, Library, machine_flags, run
from scripts.firmware_page import other_depth
from scripts.firmware_stack import CallGraph, Depth, UnboundedStackError, call_graph, pushed_bytes

LIMIT = 4096

EMPTY = {f"{name}_run" for name in jobs.KERNELS}
"""Kernels that do nothing on a microcontroller: NXP's driver for matrix products is one for Linux."""


@pytest.fixture(scope="module")
def graphs(libraries: Mapping[Build, Library]) -> dict[Build, CallGraph]:
    return {build: call_graph(library) for build, library in libraries.items()}


@pytest.mark.parametrize("build", BUILDS, ids=str)
def test_prepare_and_run_stay_below_the_limit(build: Build, graphs: dict[Build, CallGraph]) -> None:
    graph = graphs[build]
    runs = graph.runs()
    assert len(runs) == len(re.findall(r"^NEUTRON_KERNEL\(", (ROOT / "runtime/kernels/kernels.def").read_text(), re.M))
    depths = {name: graph.depth("neutronRunBlocking", [name]) for name in runs}
    depths["prepare"] = graph.depth("neutronModelPrepare")
    assert other_depth(graph) <= depths["prepare"].bytes, "the validation alone, and what is shallower"
    assert {name: depth for name, depth in depths.items() if depth.bytes > LIMIT} == {}
    for name, depth in depths.items():
        assert depth.chain[0] in ("neutronRunBlocking", "neutronModelPrepare")
        assert name in {*depth.chain, "prepare", *EMPTY}, "a kernel that is not in its own chain was not followed"
    assert any(name.endswith("_check") for name in depths["prepare"].chain)


@pytest.mark.parametrize("build", BUILDS, ids=str)
def test_frames_agree_with_the_code(build: Build, graphs: dict[Build, CallGraph]) -> None:
    """The bytes that all instructions of a function push are never fewer than the frame that its compiler states."""
    functions = graphs[build].functions.values()
    assert [(item.name, item.frame, item.pushed) for item in functions if item.frame > item.pushed] == []
    assert sum(item.frame > 0 for item in functions) > 50


def test_only_the_validation_calls_checks(root: Path) -> None:
    """As the call graph has it: checks are called from one file of the driver, run functions from another one.

    A third one, for threads, is empty in firmware.
    """
    sources = {path.name: path.read_text() for path in (root / "runtime" / "driver").glob("*.c")}
    threads = sources.pop("parts.c")
    assert threads.partition("#ifdef NEUTRON_THREADS")[2] and threads.rstrip().endswith("#endif")
    assert [name for name, text in sources.items() if "->check(" in text] == ["validate.c"]
    assert [name for name, text in sources.items() if "->run(" in text] == ["driver.c"]


def graph_of(text: str, folder: Path, libraries: Mapping[Build, Library]) -> CallGraph:
    """The graph of one more source beside the library."""
    library = libraries[BUILDS[0]]
    (folder / "added.c").write_text(text)
    run("arm-none-eabi-gcc", *machine_flags("gcc"), "-Os", "-c", "added.c", folder=folder)
    return call_graph(Library(library.build, folder, (*library.objects, folder / "added.o"), library.sources))


def test_a_chain_adds_up(tmp_path: Path, libraries: Mapping[Build, Library]) -> None:
    text = """
void use(char *at);
char *kept;
__attribute__((noinline)) void use(char *at) { volatile char own[16]; own[0] = 0; kept = at; }
__attribute__((noinline)) static void inner(void) { char block[200]; use(block); __asm volatile("" ::: "memory"); }
__attribute__((noinline)) static void other(void) { char block[100]; use(block); __asm volatile("" ::: "memory"); }
void outer(int which) { char block[1000]; (which ? inner : other)(); use(block); __asm volatile("" ::: "memory"); }
"""
    graph = graph_of(text, tmp_path, libraries)
    outer, inner, use = (graph.find("added.o", name) for name in ("outer", "inner", "use"))
    assert outer.frame >= 1000 and inner.frame >= 200
    assert graph.depth("outer") == Depth(outer.frame + inner.frame + use.frame, ("outer", "inner", "use"))


def test_a_recursion_is_refused(tmp_path: Path, libraries: Mapping[Build, Library]) -> None:
    text = """
int even(unsigned n); int odd(unsigned n); int asked(unsigned n);
__attribute__((noinline)) int even(unsigned n) { int r = n == 0 || odd(n - 1); __asm volatile("" : "+r"(r)); return r; }
__attribute__((noinline)) int odd(unsigned n) { int r = n != 0 && even(n - 1); __asm volatile("" : "+r"(r)); return r; }
int asked(unsigned n) { return even(n) + 1; }
"""
    with pytest.raises(UnboundedStackError, match=r"^stack: asked -> even -> odd -> even is a recursion$"):
        graph_of(text, tmp_path, libraries).depth("asked")


def test_a_frame_of_unknown_size_is_refused(tmp_path: Path, libraries: Mapping[Build, Library]) -> None:
    text = "void use(char *at); void sized(int n); void sized(int n) { char block[n]; use(block); }"
    with pytest.raises(UnboundedStackError, match=r"^stack: added\.c:1:\d+:sized has a dynamic frame: its size is not"):
        graph_of(text, tmp_path, libraries)


def test_a_pointer_to_nothing_known_is_refused(tmp_path: Path, libraries: Mapping[Build, Library]) -> None:
    text = "int through(int (*f)(void)); int through(int (*f)(void)) { return f() + 1; }"
    with pytest.raises(UnboundedStackError, match=r"^stack: through calls through a pointer from elsewhere$"):
        graph_of(text, tmp_path, libraries).depth("through")


@pytest.mark.parametrize(
    ("code", "operands", "taken"),
    [
        ("push", "{r4, r5, lr}", 12),
        ("push", "{r4-r7, lr}", 20),
        ("stmdb", "sp!, {r4, r5, r6, r7, r8, r9, sl, fp, lr}", 36),
        ("sub", "sp, #24", 24),
        ("sub.w", "sp, sp, #520", 520),
        ("str.w", "r8, [sp, #-4]!", 4),
        ("strd", "r4, r5, [sp, #-16]!", 16),
        ("pop", "{r4, pc}", 0),
        ("sub", "r3, #8", 0),
    ],
)
def test_instructions_that_push(code: str, operands: str, taken: int) -> None:
    assert pushed_bytes(code, operands) == taken


def test_an_instruction_that_moves_the_stack_by_a_register() -> None:
    with pytest.raises(UnboundedStackError, match=r"^stack: sub sp, r3 moves the stack by what is not known before it"):
        pushed_bytes("sub.w", "sp, r3")
