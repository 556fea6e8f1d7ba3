# SPDX-License-Identifier: BSD-3-Clause
"""Compile a decoder to a program.

The program has the inputs ``tokens`` (int64, ``rows`` entries, of which a run reads as many as it has tokens) and ``span`` (int64: the
position of the first token, and the number of tokens), and the output ``logits`` (float32, those of the run's last token). Its states are the
caches. A run of several tokens and one of a single token are the same program, over one copy of the weights.

The decoder behind an encoder has two more inputs: ``source`` (float32, the encoder's result) and ``source_span`` (int64: the first position and
the number of positions whose keys and values the run computes; 0 of them where the caches have all).

The calls of a decoder are known, and none can begin before the one in front of it ends: there is nothing to select or search.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from openneutron.compiler import Compiled
from openneutron.compiler.driver import checked, finish
from openneutron.compiler.rewrite.jobs import LINE_BYTES, RESULT_BYTES, UNSIGNED, job_table, known_sizes, whole_lines
from openneutron.compiler.schedule.schedule import whole_schedule
from openneutron.compiler.select.calls import (
    Constant,
    JobWeights,
    KernelCall,
    Storage,
    Storages,
    View,
    dense_pitches,
    four,
    storages_of_states,
)
from openneutron.device import neutron_jobs as jobs
from openneutron.errors import InvalidOptionError
from openneutron.ir import DType, Graph, State, Tensor
from openneutron.language.decoder import MOST_INPUTS, Cross, Decoder, Layer, Matrix, Norm
from openneutron.language.times import ALONE, Share
from openneutron.options import CompileOptions
from openneutron.targets import Target

TOKENS, SPAN, LOGITS = "tokens", "span", "logits"
SOURCE, SOURCE_SPAN = "source", "source_span"

TOGETHER, TOGETHER_IN_DDR = 8, 32
"""The number of tokens for which the CPU reads a row of weights once: on a microcontroller, and on a core with an operating system."""

ON_CPU = {
    bits: jobs.KnownSizes(frozenset({jobs.MACS}), frozenset(), most)
    for bits, most in ((8, MOST_INPUTS), (4, jobs.INT4_MOST_K))
}
"""The bounds on the columns of a part that the CPU multiplies, by the number of bits of a weight. int8 weights may have any columns up to
MOST_INPUTS, int4 weights as many as one table of decode scales covers."""


THREADS = 8
"""The largest number of threads that compute the attention of a call together. Each thread has its own memory for scores."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The choices that a decoder's program depends on.

    * ``rows``: the largest number of tokens in a run.
    * ``share``: a function that returns which output channels of a matrix the NPU multiplies, in jobs (matrix
      products for NXP's driver). Its arguments are the matrix, the step and the maximum of a job's number of
      channels, and whether only the run's last token is multiplied.
    * ``job_rows``: the largest number of rows in a job.
    """

    rows: int
    share: Callable[[Matrix, int, int, bool], Share]
    job_rows: int = 256


def check_chunk(chunk: int, context: int) -> None:
    """Raise InvalidOptionError where a run can't take up to ``chunk`` tokens of a cache with ``context`` positions. A
    cache without a position is left to the check of the model."""
    if context > 0 and not 1 <= chunk <= context:
        raise InvalidOptionError(
            f"chunk: {chunk} tokens; a run takes 1 to {context}, the positions of the cache. Give chunk={context} or less."
        )


def never(_matrix: Matrix, _block: int, _most: int, _is_last: bool) -> Share:
    """Return the share that leaves a matrix to the CPU. As ``Plan.share`` it leaves all matrices to the CPU."""
    return ALONE


@dataclass(slots=True)
class _Calls:
    """The kernel calls of a decoder's program so far, with the tensors that they read and write."""

    decoder: Decoder
    target: Target
    plan: Plan
    calls: list[KernelCall] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    scratch: dict[str, int] = field(default_factory=dict)
    states: list[State] = field(default_factory=list)
    packed: dict[tuple[int, bool], JobWeights] = field(default_factory=dict)

    def floats(self, name: str, channels: int, rows: int | None = None) -> View:
        """Add a float32 tensor [rows, channels], and return a view of it. By default it has a row for each token of
        the longest run (``plan.rows``)."""
        shape = (self.plan.rows if rows is None else rows, channels)
        self.tensors[name] = Tensor(name, shape, DType.FLOAT32)
        return _floats_of(self.tensors[name])

    def memory(self, name: str, size_bytes: int) -> View:
        """Return a new scratch buffer of a call."""
        self.scratch[name] = size_bytes
        return _bytes(name, size_bytes)

    def add(
        self,
        kernel: str,
        name: str,
        views: Mapping[str, View],
        params: Mapping[str, int],
        constants: Mapping[str, Constant] | None = None,
        span: str = SPAN,
    ) -> View:
        """Add a kernel call, and return its output. ``span`` is the input that states the positions whose rows the call computes."""
        views = {**views, "span": _integers(span, 2)}
        self.calls.append(KernelCall(kernel, name, views, params, constants or {}))
        return views["output"]

    @property
    def threads(self) -> int:
        """Return the number of threads for which a call has scratch memory."""
        return 1 if self.target.threads is None else THREADS

    def weights(self, matrix: Matrix, with_jobs: bool) -> JobWeights:
        """Return the weights of a matrix. With ``with_jobs`` they have the layout of jobs, the matrix products that
        NXP's driver computes on the NPU. Otherwise int8 weights are in row order, and int4 weights in the layout for
        jobs of the driver's first release. Matrices with the same array ``values`` get the same object, so that their
        weights are stored once."""
        key = id(matrix.values), with_jobs
        if key not in self.packed:
            facts = self.target.jobs
            if with_jobs:
                assert facts is not None
                release, sizes = jobs.release(facts.release.value[0]).name, known_sizes(facts)
            else:
                release, sizes = jobs.RELEASES[0].name, ON_CPU[matrix.bits]
            self.packed[key] = JobWeights(matrix.values, release, sizes, matrix.int4)
        return self.packed[key]

    def share(self, matrix: Matrix, rows: int, last: bool) -> Share:
        """Return which output channels of a linear layer the NPU multiplies, chosen by ``plan.share`` within the
        bounds of a job. ``rows`` is the largest number of rows of the input. ``last`` states that only the run's last
        token is multiplied. There are no such channels if the target's NPU takes no jobs."""
        if self.target.jobs is None:
            return ALONE
        packed = self.weights(matrix, True)
        most = min(packed.channels, jobs.MOST_CHANNELS // packed.block * packed.block)
        found = self.plan.share(matrix, packed.block, most, last)
        return ALONE if found.job_from > rows else found

    def norm(self, name: str, x: View, norm: Norm, residual: View | None = None) -> View:
        """Add a norm over each row, and return its output."""
        channels = x.extents[3]
        bias = np.zeros(channels, np.float32) if norm.bias is None else norm.bias
        params = {
            "centred": int(self.decoder.centred),
            "add": int(residual is not None),
            "epsilon_bits": float_bits(self.decoder.epsilon),
        }
        views = {"input": x, "residual": residual or x, "output": self.floats(name, channels)}
        return self.add("norm_f32", name, views, params, {"scale": norm.scale, "bias": bias})

    def linear(
        self,
        name: str,
        x: View,
        matrix: Matrix,
        residual: View | None = None,
        last: bool = False,
        cap: float = 0.0,
        span: str = SPAN,
    ) -> View:
        """Add a linear layer, and return its output. ``last``: only the last row of the span is computed."""
        most = 1 if last else x.extents[1]
        share = self.share(matrix, most, last)
        at, packed = share.job_from, self.weights(matrix, share.job_from > 0)
        output = self.floats(name, matrix.rows, most)
        form, parts = jobs.release(packed.release), packed.parts
        rows = min(most, self.plan.job_rows, jobs.MOST_ROWS) if at else 0
        together = TOGETHER if self.target.threads is None else TOGETHER_IN_DDR
        size = min(most, together) * packed.inputs
        if rows:
            operands = whole_lines(rows * packed.inputs) * (1 if form.kind_in_header else 2)
            channels = max(share.job_channels, share.few_channels)
            shared = LINE_BYTES + jobs.HEADER_BYTES + operands + len(parts) * rows * channels * RESULT_BYTES
            size = max(size, shared)
        params = {
            "last": int(last),
            "add": int(residual is not None),
            "cap_bits": float_bits(cap),
            "job_from": at,
            "job_channels": share.job_channels,
            "few_channels": share.few_channels,
            "job_rows": rows,
            "job_kind": jobs.kind(True, packed.group is not None or form.int8_packed)
            if at and form.kind_in_header
            else 0,
            "flipped": UNSIGNED if at and not form.kind_in_header else 0,
            **matrix_words(packed, matrix),
        }
        views = {
            "input": x,
            "residual": residual or x,
            "output": output,
            "memory": self.memory(f"{name}@memory", size),
        }
        constants: dict[str, Constant] = {
            "weights": packed,
            "scales": matrix.scales,
            "bias": np.zeros(matrix.rows, np.float32) if matrix.bias is None else matrix.bias,
            "job": job_tables(packed, form) if at else np.zeros(0, np.int32),
        }
        return self.add("dynamic_linear_f32", name, views, params, constants, span)

    def attention(self, name: str, x: View, layer: Layer, source: View | None = None) -> View:
        """Add the attention of a layer, and return its output. Without ``source`` it attends to the cache of tokens (self attention), with
        ``source`` to the keys and values of the encoder's result (cross attention)."""
        d, is_cross, cache = (
            self.decoder,
            source is not None,
            f"{name.rpartition('.')[0]}.{'source_cache' if source else 'cache'}",
        )
        size, rotary = d.head_size, None if is_cross else layer.rotary
        is_normed = layer.query_norm is not None and not is_cross
        positions, ones = d.source_positions if is_cross else d.context, np.ones(size, np.float32)
        params = {
            "heads": d.heads,
            "groups": d.groups,
            "size": size,
            "positions": positions,
            "cross": int(is_cross),
            "window": 0 if is_cross else layer.window,
            "rotated": 0 if rotary is None else rotary.rotated,
            "interleaved": int(rotary is not None and rotary.interleaved),
            "normed": int(is_normed),
            "scale_bits": float_bits(d.score_scale),
            "cap_bits": float_bits(d.score_cap),
            "epsilon_bits": float_bits(d.epsilon),
        }
        self.tensors[cache] = Tensor(cache, (positions * d.bytes_of_position,), DType.INT8)
        self.states.append(State(cache, cache))
        views = {
            "input": x,
            "source": source or x,
            "source_span": _integers(SOURCE_SPAN if is_cross else SPAN, 2),
            "output": self.floats(name, d.heads * size),
            "cache": _bytes(cache, self.tensors[cache].size_bytes),
            "scores": self.memory(f"{name}@scores", self.threads * whole_lines(4 * positions + 2 * size)),
        }
        constants: dict[str, Constant] = {
            "rotary": np.zeros((0, 0), np.float32)
            if rotary is None
            else np.ascontiguousarray(rotary.table[: d.context]),
            "query_scale": layer.query_norm if is_normed and layer.query_norm is not None else ones,
            "key_scale": layer.key_norm if is_normed and layer.key_norm is not None else ones,
        }
        return self.add("cached_attention_f32", name, views, params, constants)

    def cross(self, name: str, x: View, layer: Layer, cross: Cross) -> View:
        """Add the cross attention of a layer and its residual addition, and return the sum."""
        d = self.decoder
        queries = self.linear(f"{name}.cross_query", self.norm(f"{name}.cross_norm", x, cross.norm), cross.query)
        source = _floats_of(self.tensors[SOURCE])
        made = self.linear(f"{name}.cross_source", source, cross.source, span=SOURCE_SPAN)
        assert d.source_positions == made.extents[1]
        attended = self.attention(f"{name}.cross_attention", queries, layer, made)
        return self.linear(f"{name}.cross_output", attended, cross.output, x)

    def feed_forward(self, name: str, x: View, layer: Layer, residual: View | None) -> View:
        """Add the feed-forward block of a layer, and return its output."""
        d = self.decoder
        up = self.linear(f"{name}.up", x, layer.up)
        views = {"input": up, "output": self.floats(f"{name}.activation", layer.down.columns)}
        params = {"kind": d.activation.value, "gated": int(d.is_gated)}
        inner = self.add("activation_f32", f"{name}.activation", views, params)
        return self.linear(f"{name}.down", inner, layer.down, residual)

    def layer(self, number: int, x: View, layer: Layer) -> View:
        """Add a layer, and return its output, the residual stream."""
        name = f"layers.{number}"
        normed = self.norm(f"{name}.attention_norm", x, layer.attention_norm)
        qkv = self.linear(f"{name}.qkv", normed, layer.qkv)
        attended = self.attention(f"{name}.attention", qkv, layer)
        if layer.after_attention is None:
            after = self.linear(f"{name}.output", attended, layer.output, x)
        else:
            made = self.linear(f"{name}.output", attended, layer.output)
            after = self.norm(f"{name}.after_attention", made, layer.after_attention, x)
        if layer.cross is not None:
            after = self.cross(name, after, layer, layer.cross)
        source = normed
        if layer.mlp_norm is not None:
            source = self.norm(f"{name}.mlp_norm", x if layer.is_parallel else after, layer.mlp_norm)
        if layer.after_mlp is None:
            return self.feed_forward(f"{name}.mlp", source, layer, after)
        made = self.feed_forward(f"{name}.mlp", source, layer, None)
        return self.norm(f"{name}.after_mlp", made, layer.after_mlp, after)

    def embedded(self) -> View:
        """Add the embedding of the run's tokens, and return its output."""
        d = self.decoder
        # An embedding that is the head too has the head's form: one copy of the weights.
        is_shared = d.embedding.values is d.head.values
        packed = self.weights(d.embedding, is_shared and self.share(d.head, 1, True).job_from > 0)
        params = {
            "vocabulary": d.vocabulary,
            "positions": d.context,
            "learned": int(d.positions is not None),
            "multiplier_bits": float_bits(d.embedding_multiplier),
            **matrix_words(packed, d.embedding),
        }
        views = {"tokens": _integers(TOKENS, self.plan.rows), "output": self.floats("embedding", d.width)}
        constants: dict[str, Constant] = {
            "weights": packed,
            "scales": d.embedding.scales,
            "learned_positions": np.zeros((0, 0), np.float32) if d.positions is None else d.positions,
        }
        return self.add("token_embedding_f32", "embedding", views, params, constants)


def compiled(
    decoder: Decoder, target: Target, plan: Plan = Plan(128, never), options: CompileOptions = CompileOptions()
) -> Compiled:
    """Return the compiled program of a decoder, for a CPU or for a host core beside an NPU that multiplies matrices in jobs.

    Raises InvalidModelError if the decoder's parts do not fit together, and InvalidOptionError if a run has more rows than the cache.
    """
    decoder.verify()
    if not 1 <= plan.rows <= decoder.context:
        raise InvalidOptionError(
            f"rows: {plan.rows} tokens a run; the cache of '{decoder.name}' has {decoder.context} positions. Choose 1 to {decoder.context}."
        )
    made = _Calls(decoder, target, plan)
    inputs: tuple[str, ...] = (TOKENS, SPAN)
    if decoder.source_positions:
        shape = (decoder.source_positions, decoder.source_width)
        made.tensors[SOURCE] = Tensor(SOURCE, shape, DType.FLOAT32)
        made.tensors[SOURCE_SPAN] = Tensor(SOURCE_SPAN, (2,), DType.INT64)
        inputs += (SOURCE, SOURCE_SPAN)
    made.tensors[TOKENS] = Tensor(TOKENS, (plan.rows,), DType.INT64)
    made.tensors[SPAN] = Tensor(SPAN, (2,), DType.INT64)
    x = made.embedded()
    for number, layer in enumerate(decoder.layers):
        x = made.layer(number, x, layer)
    x = made.norm("final_norm", x, decoder.final_norm)
    made.linear(LOGITS, x, decoder.head, last=True, cap=decoder.logit_cap)
    graph = Graph(decoder.name, made.tensors, (), inputs, (LOGITS,), tuple(made.states))
    target, options = _with_memory(target, made, graph), replace(options, target=target.name)
    found = finish(graph, graph, _storages(graph, made), whole_schedule(made.calls), target, options)
    return checked(found) if options.check else found


def _with_memory(target: Target, made: _Calls, graph: Graph) -> Target:
    """Return the target with enough memory for all tensors. Its memory is enlarged only if it is too small and its
    size in the chip file is only assumed, as that of a board's DDR is."""
    first = target.arena_memory
    needed = (
        sum(made.scratch.values())
        + sum(tensor.size_bytes + 64 for tensor in graph.tensors.values())
        + 64 * len(made.scratch)
    )
    if first.size.kind != "assumed" or needed <= 1024 * first.size.value:
        return target
    larger = replace(first, size=replace(first.size, value=-(-needed // 1024)))
    return replace(target, memories=tuple(larger if each is first else each for each in target.memories))


def _storages(graph: Graph, made: _Calls) -> Storages:
    """Return a storage for each tensor, each state and each scratch buffer."""
    storages = {storage.name: storage for storage in storages_of_states(graph)}
    for position, name in enumerate(graph.inputs):
        storages[name] = Storage(name, graph[name].size_bytes, input=position)
    for position, name in enumerate(graph.outputs):
        storages[name] = Storage(name, graph[name].size_bytes, output=position)
    for name, tensor in graph.tensors.items():
        storages.setdefault(name, Storage(name, tensor.size_bytes))
    for name, size in made.scratch.items():
        storages[name] = Storage(name, size)
    return Storages(storages, {name: name for name in storages})


def matrix_words(packed: JobWeights, matrix: Matrix) -> dict[str, int]:
    """Return the kernel parameters that describe the layout of a matrix (isa/kernels/language.py)."""
    (cores, block), (last_cores, last_block) = (_turns(packed, k) for k in (packed.parts[0], packed.parts[-1]))
    return {
        "inputs": matrix.columns,
        "bits": matrix.bits,
        "group": matrix.group,
        "part_inputs": packed.parts[0],
        "matrix_rows": packed.channels,
        "cores": cores,
        "block": block,
        "last_cores": last_cores,
        "last_block": last_block,
    }


def _turns(packed: JobWeights, k: int) -> tuple[int, int]:
    """Return in which order the weights of a part with ``k`` columns are packed for a job. The first number is the
    number of cores of the NPU: rows are dealt to them in turn. The second is the number of rows that a core gets at a
    time."""
    form = jobs.release(packed.release)
    if packed.group is None:
        channels, cores, _ = jobs.tiling(k) if form.int8_packed else (1, 1, 1)
    elif form.int4_interleaved:
        channels, cores, _ = jobs.tiling(k, packed.group)
    else:
        channels, cores = jobs.tool_channels(k), 1
    return cores, channels


def job_tables(packed: JobWeights, form: jobs.Release) -> npt.NDArray[np.int32]:
    """Return the constants that a linear layer's jobs read beside the weights, as int32 words: the rows of
    ``job_table``, here without biases. For int4 weights, 16 bytes of value 1 follow."""
    ones = np.ones(0 if packed.group is None else jobs.MACS, np.int8).view(np.int32)
    return np.append(job_table(packed, np.zeros(packed.channels, np.int32), form), ones)


def float_bits(value: float) -> int:
    """Return the bits of the float32 nearest to a number."""
    return int(np.float32(value).view(np.uint32))


def _floats_of(tensor: Tensor) -> View:
    """Return the view of a float32 tensor [rows, channels]."""
    extents = (1, tensor.shape[0], 1, tensor.shape[1])
    return View(tensor.name, extents, dense_pitches(extents, 4), element_bytes=4)


def _bytes(name: str, size: int) -> View:
    extents = four((1, 1, 1, size))
    return View(name, extents, dense_pitches(extents))


def _integers(name: str, count: int) -> View:
    extents = four((1, 1, 1, count))
    return View(name, extents, dense_pitches(extents, 8), element_bytes=8)
