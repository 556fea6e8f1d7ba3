# SPDX-License-Identifier: BSD-3-Clause
"""Programs that call every kernel between them, as seeds of mutations. Kernels of the NPU's own driver have seeds of their own."""

from __future__ import annotations

import dataclasses
import functools
import pickle
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from openneutron import litert, targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.rewrite.jobs import KERNELS as JOB_KERNELS
from openneutron.compiler.schedule.schedule import Loop, Rows
from openneutron.device.neutron_jobs import Int4Weights
from openneutron.ir import Graph
from openneutron.isa import Program, Record, decode, encode
from openneutron.language.decoder import Activation, Decoder, Layer, Matrix, Norm, Rotary, rotary_angles
from openneutron.language.program import Plan, compiled, never
from tests.fuzz import driver
from tests.support import programs, random_graphs, random_wide, token_blocks
from tests.support.attention_graphs import attention, block
from tests.support.built_once import built_once
from tests.support.embedding_tables import table
from tests.support.excitation_graphs import ACTIVATIONS, squeeze_excite
from tests.support.hand_made_cascade import compiled_with, three_operators
from tests.support.joined_graphs import graph_of
from tests.support.norm_graphs import stem
from tests.support.oracle import least_budget
from tests.support.recurrent_files import random_wide_lstm
from tests.support.stateful_graphs import delayed, streaming_convolution
from tests.support.widened import widened

FAR = 2**31 - 8


def as_window(call: Record) -> tuple[Record, ...]:
    """A window that covers more than the whole output."""
    ends = {"row0": -1, "row1": FAR, "step": 0, "batch0": 0, "batch1": FAR, "col0": -8, "col1": FAR}
    return (programs.instruction("WINDOW", operator=call["operator"], cycles=1, channel0=0, channel1=FAR, **ends),)


def as_stripes(call: Record) -> tuple[Record, ...]:
    """A loop of stripes of two rows, which ends where the longest tensors end."""
    loop = programs.instruction("LOOP", count=40, body_words=6)
    return loop, programs.rows(call["operator"], 0, 2, 2)


def rewritten(program: Program, form: Callable[[Record], tuple[Record, ...]]) -> Program:
    """The program with each CALL in another form."""
    microcode = decode(program)
    code = [new for item in microcode.code for new in (form(item) if item.row.name == "CALL" else (item,))]
    return encode(dataclasses.replace(microcode, code=tuple(code)), program.weights)


def cascade() -> Program:
    """Three operators through rolling buffers, in one loop."""
    steps = (Rows(0, 0, 1), Loop(8, (Rows(0, 1, 3, 2), Rows(1, 0, 1, 1), Rows(2, 0, 1, 1))))
    return compiled_with(three_operators(), steps, {"a": 3, "b": 1}).program


def stateful() -> list[Graph]:
    """Graphs with states: a stream, and random graphs that read values of the run before."""
    made = [delayed(random_graphs.several(seed), seed) for seed in range(40, 52)]
    return [streaming_convolution(), *(graph for graph in made if graph is not None)]


def in_tiles() -> list[Program]:
    """Programs that copy tiles between external memory and a memory of the NPU's own."""
    target = targets.get("imx95").with_sram(8)
    return [compile_graph(random_graphs.several(seed), target).program for seed in range(3)]


@functools.cache
def seeds() -> tuple[Program, ...]:
    """Hand-made programs and compiled ones, which call every kernel but one between them. One process of a run compiles them."""

    def build(folder: Path) -> None:
        (folder / "programs").write_bytes(pickle.dumps(_compiled()))

    made: tuple[Program, ...] = pickle.loads((built_once("fuzz-seeds", build) / "programs").read_bytes())
    return made


def _compiled() -> tuple[Program, ...]:
    made = [
        programs.inverted_twice(),
        programs.inverted_twice(profile_size=32),
        programs.striped(),
        programs.through_scratch(),
        programs.fetched(),
        programs.two_ports(),
        cascade(),
    ]
    target = targets.get("imxrt700")
    graphs = [random_graphs.single(op, seed) for op in sorted(random_graphs.SAMPLERS) for seed in (0, 1)]
    graphs += [random_graphs.several(seed) for seed in range(40)]
    graphs += [random_wide.several(seed) for seed in range(40)]
    graphs += [widened(random_graphs.single(op, 0)) for op in ("sum", "layer_norm", "group_norm")]
    graphs += [graph_of(op, shape=(5, 9)) for op in ("gelu", "add", "mul")]
    graphs += [squeeze_excite(seed, ACTIVATIONS[seed], shape=(1, 3, 4, 9)) for seed in range(4)]
    graphs += [squeeze_excite(seed, outputs=("second/logistic", "z")) for seed in range(2)]
    graphs += [*token_blocks.chained().values(), token_blocks.merged((3, -20, 11))]
    graphs += [table(200, (3, 4), (9,)), table(200)]
    graphs += stateful()
    graphs += [attention(seed) for seed in range(6)]
    graphs += [litert.read(random_wide_lstm(seed)).graph for seed in range(6)]
    for number, graph in enumerate(graphs):
        options = CompileOptions(io_place=("arena", "caller")[number % 2], prefetch_constants=number % 3 == 0)
        program = compile_graph(graph, target, options).program
        made.append((program, rewritten(program, as_window), rewritten(program, as_stripes))[number % 3])
    made += in_tiles()
    norms = [stem(0, (20, 4, 3), 8, 4, (3, 3), logistic) for logistic in (True, False)]
    for graph in (*norms, block(6, 4, 6, 2, 8)):
        least = least_budget(graph, target=target)
        made.append(compile_graph(graph, target, CompileOptions(sram_budget=least)).program)
    return tuple(made)


@functools.cache
def of_jobs() -> tuple[Program, ...]:
    """Compiled programs with matrix products for the NPU's own driver, which the other seeds lack: a run takes such a driver."""
    graphs = [
        random_graphs.single(op, seed) for op in ("conv_2d", "fully_connected", "transpose_conv") for seed in range(8)
    ]
    graphs += [driver.matrices(*sizes) for sizes in ((5, 32, 48), (3, 40, 20), (2, 1152, 16))]
    graphs += [
        random_graphs.single(op, seed) for op in ("unidirectional_sequence_lstm", "gru", "rnn") for seed in (0, 1)
    ]
    with driver.every_product():
        compiled = [
            compile_graph(graph, driver.with_release(), CompileOptions(io_place="arena")).program for graph in graphs
        ]
    return tuple(each for each in compiled if any(call.row.name in JOB_KERNELS for call in decode(each).operators))


@functools.cache
def of_language() -> tuple[Program, ...]:
    """Small decoders of int8 and of int4 weights: random inputs are no tokens, so that a run of them ends with an error."""
    return tuple(compiled(_decoder(bits), targets.described("cortex-a55"), Plan(3, never)).program for bits in (8, 4))


def _decoder(bits: int) -> Decoder:
    random = np.random.default_rng(bits)

    def matrix(rows: int, columns: int) -> Matrix:
        values = random.integers(-8, 8, (rows, columns), dtype=np.int8)
        int4 = Int4Weights.exact(values, 32) if bits == 4 else None
        return Matrix(values, np.full(rows, 0.01, np.float32), int4)

    ones = Norm(np.ones(32, np.float32))
    rotary = Rotary(rotary_angles([1.0, 0.1], 8))
    layer = Layer(ones, matrix(64, 32), matrix(32, 32), matrix(128, 32), matrix(32, 64), ones, rotary=rotary)
    words = matrix(24, 32)
    return Decoder("small", (layer,), words, words, ones, 4, 2, 8, 8, Activation.SILU, 1e-6, 0.35)


def covering() -> list[Program]:
    """Return few of the seeds that call every kernel between them."""
    called = {number: {call.row.name for call in decode(program).operators} for number, program in enumerate(seeds())}
    missing = set().union(*called.values())
    chosen = []
    for number in sorted(called, key=lambda number: (-len(called[number]), number)):
        if called[number] & missing:
            chosen.append(seeds()[number])
            missing -= called[number]
    return chosen


def write_seeds(folder: Path, made: Sequence[Program]) -> list[Path]:
    """Write each program to a file of its own: the bytes of its microcode and of its weights as two words, then both blobs."""
    paths = []
    for number, program in enumerate(made):
        path = folder / f"seed{number:03}"
        sizes = struct.pack("<2I", len(program.microcode), len(program.weights))
        path.write_bytes(sizes + program.microcode + program.weights)
        paths.append(path)
    return paths
