# SPDX-License-Identifier: BSD-3-Clause
"""Declare the kernels of language models: float32 activations, products of 8-bit integers, and a cache of keys and values.

docs/explanation/language-models.md states their arithmetic. Every kernel has the operand ``span``, two int64 integers: the position of
the run's first token, and the number of its tokens. A kernel computes the rows of these tokens only, and never leaves its buffers whatever
the span is. Parameters named ``..._bits`` are float32 values as their 32 bits.
"""

from __future__ import annotations

from openneutron.isa.kernels.row import (
    Operand,
    Packing,
    Row,
    Traits,
    buffer,
    constant,
    scratch,
    signed,
    state,
    unsigned,
)

_SPAN = buffer("span", "int64; a column of 2 channels: the position of the first token, and the number of tokens", 8)
_OUTPUT = buffer("output", "float32; a row for each token", 4)
_INPUT = buffer("input", "float32; a row for each token", 4)
_RESIDUAL = buffer("residual", "float32; as the output; it is read only with `add`", 4)

_MATRIX_WORDS = (
    signed("inputs", "columns of the matrix, K"),
    signed("bits", "8, or 4: weights in groups"),
    signed("group", "the columns that share a decode scale; 0 for int8"),
    signed(
        "part_inputs",
        "the columns of each part of the matrix, a multiple of 16 and of the group; the last part may have fewer",
    ),
    signed("matrix_rows", "rows of the matrix with those that fill up a block"),
    signed("cores", "the runs that take turns in a block, 1 for a matrix in plain order"),
    signed("block", "rows of a core's run in a block"),
    signed("last_cores", "the same of the last part"),
    signed("last_block", "the same of the last part"),
)
"""The words that state the form of a matrix: each part of its columns is in the packed order of a job (device/neutron_jobs.py)."""

_MATRIX = (
    *_MATRIX_WORDS,
    *constant(
        "weights",
        "the parts of the matrix; behind the int4 weights of a part its decode scales, decode biases and lengths",
    ),
    *constant("scales", "float32, for each row of the matrix"),
)
_PACKED = (("weights", Packing.JOB_WEIGHTS),)

CACHED_ATTENTION_F32 = Row(
    "cached_attention_f32",
    "Attention of the queries of each token to keys and values in the cache: those of its own token and of all before it, or with `cross` all. "
    "The keys and values of new tokens are appended first.",
    (
        buffer(
            "input",
            "float32; a row for each token: the heads of queries, and without `cross` those of keys and of values",
            4,
        ),
        buffer(
            "source",
            "float32; with `cross` a row for each new position: the heads of keys and of values; else the input",
            4,
        ),
        _SPAN,
        buffer(
            "source_span",
            "int64; with `cross` as `span`: of the rows of the source, 0 rows append nothing; else `span`",
            8,
        ),
        buffer("output", "float32; a row for each token: the results of the heads", 4),
        state("cache", "bytes: int8 keys, int8 values, float32 scales of the keys and of the values"),
        scratch("scores", "bytes: a float32 for each position of the cache, and an int16 for each value of a head"),
        signed("heads", "of queries"),
        signed("groups", "heads of keys, and of values; they divide the heads of queries"),
        signed("size", "values of a head"),
        signed("positions", "of the cache"),
        signed(
            "cross",
            "1: keys and values are those of a source, and a token sees all positions; it has no window and no rotation",
        ),
        signed("window", "the positions that a token sees, its own included; 0: all"),
        signed("rotated", "values of a head that rotate, an even number; 0: none"),
        signed("interleaved", "1: neighbours are pairs; 0: a value and that half of `rotated` behind it"),
        signed("normed", "1: heads of queries and keys are normalized"),
        unsigned("scale_bits", "float32, the factor of the scores"),
        unsigned("cap_bits", "float32, the cap of the scores; 0: none"),
        unsigned("epsilon_bits", "float32, of the heads' norm"),
        *constant("rotary", "float32 [positions, rotated]: cosines, then sines, of each position"),
        *constant("query_scale", "float32, of the norm of a head of queries"),
        *constant("key_scale", "float32, of the norm of a head of keys"),
    ),
    111,
    traits=Traits(
        operands=(
            Operand("input"),
            Operand("source"),
            Operand("span"),
            Operand("source_span"),
            Operand("cache"),
            Operand("scores"),
        )
    ),
)

KERNELS = (
    Row(
        "token_embedding_f32",
        "The row of a matrix for each token, as float32. The run ends with an error where the span or a token is out of bounds.",
        (
            buffer("tokens", "int64; a channel for each token", 8),
            _SPAN,
            _OUTPUT,
            signed("vocabulary", "tokens that have a row"),
            signed("positions", "of the cache"),
            signed("learned", "1: the rows of learned positions are added"),
            unsigned("multiplier_bits", "float32, the factor of each value"),
            *_MATRIX,
            *constant("learned_positions", "float32 [positions, channels]"),
        ),
        112,
        traits=Traits(operands=(Operand("tokens"), Operand("span"))),
        packings=_PACKED,
    ),
    Row(
        "norm_f32",
        "RMSNorm or LayerNorm of each row.",
        (
            _INPUT,
            _RESIDUAL,
            _SPAN,
            _OUTPUT,
            signed("centred", "0: RMSNorm; 1: LayerNorm"),
            signed("add", "1: the residual is added"),
            unsigned("epsilon_bits", "float32"),
            *constant("scale", "float32, for each channel"),
            *constant("bias", "float32, for each channel"),
        ),
        113,
        traits=Traits(operands=(Operand("input"), Operand("residual"), Operand("span"))),
    ),
    Row(
        "dynamic_linear_f32",
        "A linear layer whose input is quantized to int8 with a scale for each row. NXP's NPU can multiply its first channels, and the CPU the others.",
        (
            _INPUT,
            _RESIDUAL,
            _SPAN,
            buffer("output", "float32; a row for each token, or with `last` one row", 4),
            scratch(
                "memory",
                "bytes: as that of conv_2d_job_s8, for `job_rows` rows and the larger number of channels, with `flipped` the integers of all rows in front of the results; at least the integers of a row, better of 32: the CPU multiplies so many at once",
            ),
            signed("last", "1: only the row of the last token is computed"),
            signed("add", "1: the residual is added"),
            unsigned("cap_bits", "float32, the cap of the results; 0: none"),
            signed(
                "job_from", "the tokens from which on the NPU multiplies `job_channels`; 0: the NPU never multiplies"
            ),
            signed("job_channels", "the first channels, whole blocks of each part"),
            signed("few_channels", "those that the NPU multiplies in shorter runs; 0: none"),
            signed("job_rows", "most rows of a job, at most 2048; 0 without jobs"),
            signed("job_kind", "word 0 of a job's header, or the kind of an int4 job"),
            signed("flipped", "128: operands of a job are uint8, with this added; 0: int8"),
            *_MATRIX,
            *constant("bias", "float32, for each channel"),
            *constant(
                "job",
                "tables for jobs as those of conv_2d_job_s8: the first part's biases, zeros, factors, 16 ones; empty without jobs",
            ),
        ),
        114,
        traits=Traits(operands=(Operand("input"), Operand("residual"), Operand("span"), Operand("memory"))),
        packings=_PACKED,
    ),
    Row(
        "activation_f32",
        "A function of each value, or of the first half of a row, multiplied by the second half.",
        (
            buffer("input", "float32; a row for each token, with twice the channels of the output if `gated`", 4),
            _SPAN,
            _OUTPUT,
            signed("kind", "0: SiLU; 1: GELU with tanh; 2: GELU; 3: ReLU"),
            signed("gated", "1: the second half multiplies"),
        ),
        115,
        traits=Traits(operands=(Operand("input"), Operand("span"))),
    ),
    CACHED_ATTENTION_F32,
)
