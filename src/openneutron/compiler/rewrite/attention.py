# SPDX-License-Identifier: BSD-3-Clause
"""Replace the calls of attention by one kernel call with the same bytes.

The pattern is matched among kernel calls, so that it applies to every front end::

    scores = query @ key               batch_matmul_s8
    scores = scores + mask             add_s8, where there is a mask
    result = softmax(scores) @ value   softmax_s8, batch_matmul_s8

or, with the division last, as the PyTorch front end states attention to many keys::

    parts  = exp(scores - max(scores))          reduce_max_s8, add_s8, lookup_s8
    result = parts @ value * 1 / mean(parts)    batch_matmul_s8, mean_s8, lookup_s8, mul_s8

Each row of scores is contiguous in memory between these calls, and no other call reads the intermediate results.

A product of matrices has a batch for each head. In memory the heads of a token are usually side by side, and copies
transpose them before and after the products. The attention call has a row for each token and a column for each head,
and reads and writes the tensors without these copies. The layers around it have the same rows, so that a cascade can
include them and the attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from openneutron.compiler.rewrite.call_list import Cause, Edit
from openneutron.compiler.select.calls import Constant, KernelCall, View, dense_pitches
from openneutron.compiler.select.needs import AccessMap, Axes, Axis, split_alike, view_of
from openneutron.isa.kernels.row import Function
from openneutron.ops.rescaling import INT8_MAX, INT8_MIN

PRODUCT = "batch_matmul_s8"
"""The kernel of both products of attention."""


@dataclass(frozen=True, slots=True)
class Operands:
    """The operands of attention as views of matrices.

    ``query`` is [batch, row, 1, depth], ``key`` [batch, depth, 1, key], ``scores`` [batch, row, 1, key] and ``value``
    [batch, key, 1, channel]. The last axis of ``mask`` is the key. Its first three axes have as many positions
    together as those of ``scores``.
    """

    query: View
    key: View
    scores: View
    value: View | None = None
    mask: View | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    """The views of an attention call, with the copies and the look-up that it replaces.

    ``table`` is the look-up table that the call applies to the query; None if it applies none. ``behind`` has the
    indices of the copies after the attention. They are removed, because the call writes their results directly.
    """

    views: Mapping[str, View]
    table: npt.NDArray[Any] | None
    behind: tuple[int, ...]


def placed(edit: Edit, operands: Operands, result: View) -> Placed | None:
    """Return the views of the attention call, with a column for each head. Return None if the tensors' axes do not
    split into batches, rows and heads.

    Where views of four axes allow it, the call reads the sources of the copies before the attention, and writes the
    destinations of the copies after it. Otherwise, these copies stay.
    """
    ways = _ways(operands, result)
    seen, table = _before_copies(edit, ways)
    seen["output"], behind = _behind_copies(edit, ways["output"])
    views = _views(seen)
    if views is not None:
        return Placed(views, table, behind)
    views = _views(ways)
    return None if views is None else Placed(views, None, ())


def _ways(operands: Operands, result: View) -> dict[str, AccessMap]:
    """Return each operand as a map from two or three indices to its bytes.

    The first index counts the rows of the scores over all batches. All rows of a batch share its keys and values,
    whose pitch along the rows is therefore 0. Only keys and values have three indices; the second is the key. The
    last index is the depth of a query or a key, the keys of a mask, or the channels of a value or of the output.
    """
    assert operands.value is not None
    rows = operands.scores.extents[1]

    def each_row(view: View) -> Axes:
        return tuple(zip(view.extents[:3], view.pitches[:3], strict=True))

    def each_batch(view: View) -> Axes:
        return (view.extents[0], view.pitches[0]), (rows, 0)

    def axis(view: View, place: int) -> Axes:
        return ((view.extents[place], view.pitches[place]),)

    key, value = operands.key, operands.value
    found = {
        "query": AccessMap(
            operands.query.tensor, (each_row(operands.query), axis(operands.query, 3)), operands.query.offset
        ),
        "key": AccessMap(key.tensor, (each_batch(key), axis(key, 3), axis(key, 1)), key.offset),
        "value": AccessMap(value.tensor, (each_batch(value), axis(value, 1), axis(value, 3)), value.offset),
        "output": AccessMap(result.tensor, (each_row(result), axis(result, 3)), result.offset),
    }
    if operands.mask is not None:
        mask = operands.mask
        found["mask"] = AccessMap(mask.tensor, (each_row(mask), axis(mask, 3)), mask.offset)
    return found


def _before_copies(edit: Edit, ways: Mapping[str, AccessMap]) -> tuple[dict[str, AccessMap], npt.NDArray[Any] | None]:
    """Return the maps of the operands, changed so that the call reads from the sources of the copies before it.
    Return also the table of a look-up before the query; None if there is none."""
    seen = dict(ways)
    table: npt.NDArray[Any] | None = None
    for name in ("query", "key", "value"):
        while (place := edit.writer(seen[name].tensor)) is not None:
            call = edit[place]
            looks_up = name == "query" and table is None and call.traits.function is Function.TABLE
            if not (looks_up and edit.only_reader(place)) and call.traits.function is not Function.IDENTITY:
                break
            further = seen[name].through(call.views["output"], call.views["input"])
            if call.views["input"].element_bytes > 1 or further is None or not _is_dense(further):
                break
            if looks_up:
                constant = call.constants["table"]
                assert isinstance(constant, np.ndarray)
                table = constant
            seen[name] = further
    return seen, table


def _behind_copies(edit: Edit, way: AccessMap) -> tuple[AccessMap, tuple[int, ...]]:
    """Return the map of the output, changed so that the call writes to the destinations of the copies after it.
    Return also the indices of these copies."""
    behind: list[int] = []
    place = edit.writer(way.tensor)
    while place is not None and (reader := edit.only_reader(place)) is not None:
        place, call = reader[0], edit[reader[0]]
        source = call.views["input"]
        whole = source.size_bytes == edit.storages[source.tensor].size_bytes
        if call.traits.function is not Function.IDENTITY or source.element_bytes > 1 or not whole:
            break
        further = way.through(source, call.views["output"])
        if further is None or not _is_dense(further):
            break
        way = further
        behind.append(place)
    return way, tuple(behind)


def _is_dense(way: AccessMap) -> bool:
    """Return whether the last index of the map steps through contiguous bytes."""
    return len(way.groups[-1]) <= 1 and all(pitch == 1 for _, pitch in way.groups[-1])


@dataclass(frozen=True, slots=True)
class _Shape:
    """The extents of attention. ``pitches`` has for each operand the pitches of its batches, rows and heads, in
    bytes. Each head of the keys and values serves ``group`` heads of the query."""

    batches: int
    rows: int
    heads: int
    group: int
    pitches: Mapping[str, tuple[int, int, int]]


_RESIDENT = ("key", "value")


def _views(ways: Mapping[str, AccessMap]) -> dict[str, View] | None:
    """Return the operands as views [batch, row, head, channel]. Return None if their axes do not split into these
    four.

    The rows of keys and values are the keys. Keys and values may have fewer heads than the queries. If there is no
    mask, the result has the view of the query in its place.
    """
    places = split_alike({name: way.groups[0] for name, way in ways.items()})
    if places is None or any(len(group) > 1 for way in ways.values() for group in way.groups[1:]):
        return None
    shape = _shape(places)
    if shape is None:
        return None
    found = {}
    for name, way in ways.items():
        batch, row, head = shape.pitches[name]
        inner = [group[0] if group else (1, 1) for group in way.groups[1:]]
        heads, rows = shape.heads, shape.rows
        if name in _RESIDENT:
            heads, (rows, row) = heads // shape.group, inner[0]
        channels, channel = inner[-1]
        found[name] = view_of(
            way.tensor, (shape.batches, rows, heads, channels), (batch, row, head, channel), way.offset
        )
    found.setdefault("mask", found["query"])
    return found


def _shape(places: Mapping[str, Axes]) -> _Shape | None:
    """Return the extents of attention, with the rows of the scores split into batches, heads and rows. Return None if
    more than one axis is left for the batches."""
    axes = [dict(zip(places, each, strict=True)) for each in zip(*places.values(), strict=True)]
    one: dict[str, Axis] = dict.fromkeys(places, (1, 0))
    rows = axes.pop() if axes and _is_shared(axes[-1]) else one
    heads, group = axes.pop() if axes else one, 1
    count = heads["output"][0]
    if _is_shared(heads):
        group = count
        outer = axes[-1] if axes else None
        if outer is not None and all(
            outer[name][1] == heads[name][1] * count for name in places if name not in _RESIDENT
        ):
            count *= axes.pop()["output"][0]
            heads = {name: (outer if name in _RESIDENT else heads)[name] for name in places}
    if len(axes) > 1:
        return None
    batches = axes[0] if axes else one
    if not axes and count == heads["output"][0] and heads["output"][1] >= rows["output"][0] * rows["output"][1] > 0:
        batches, heads, count, group = heads, one, 1, 1
    pitches = {name: (batches[name][1], rows[name][1], heads[name][1]) for name in places}
    return _Shape(batches["output"][0], rows["output"][0], count, group, pitches)


def _is_shared(axis: Mapping[str, Axis]) -> bool:
    """Return whether all positions along an axis use the same keys and values, so that the pitch of keys and values is
    0."""
    return all(axis[name][1] == 0 for name in _RESIDENT)


_HALF = 1 << 30
"""The multiplier of both operands of a difference (add_s8) whose scales are equal: 1/2 with 31 fractional bits."""

_SUM = ("a_zero_point", "a_multiplier", "a_shift", "b_zero_point", "b_multiplier", "b_shift")
_SUM_RESULT = {
    "sum_multiplier": "output_multiplier",
    "sum_shift": "output_shift",
    "sum_zero_point": "output_zero_point",
    "sum_min": "clamp_min",
    "sum_max": "clamp_max",
}
_ABSENT = dict.fromkeys(
    (
        *(f"sum_{name}" for name in _SUM),
        *_SUM_RESULT,
        *("probability_multiplier", "probability_shift"),
        *("mean_multiplier", "mean_shift", "mean_zero_point"),
        *("quotient_a_zero_point", "quotient_b_zero_point", "quotient_multiplier", "quotient_shift"),
        *("quotient_zero_point", "masked", "divides", "tabled"),
    ),
    0,
) | {"clamp_min": INT8_MIN, "clamp_max": INT8_MAX}
_EMPTY = np.zeros(0, np.int8)


@dataclass(frozen=True, slots=True)
class _Found:
    """A part of the pattern that is matched so far. ``places`` are the indices of its calls. ``at`` is the index of the
    call whose reader is matched next.

    ``operands`` and ``result`` are the views, as matrices, that the attention call will read and write. ``params`` and
    ``constants`` are those of the attention call.
    """

    places: tuple[int, ...]
    at: int
    operands: Operands
    params: MappingProxyType[str, int]
    constants: MappingProxyType[str, Constant] = field(default_factory=lambda: MappingProxyType({}))
    result: View | None = None

    def then(self, *places: int, **params: int) -> _Found:
        """Return the match extended by these calls and parameters. The reader of the last of these calls is matched
        next."""
        known = MappingProxyType({**self.params, **params})
        return replace(self, places=(*self.places, *places), at=places[-1], params=known)

    def reading(self, **operands: View) -> _Found:
        """Return the pattern with these operands added."""
        return replace(self, operands=replace(self.operands, **operands))

    def looking_up(self, **constants: Constant) -> _Found:
        """Return the pattern with these constants added."""
        return replace(self, constants=MappingProxyType({**self.constants, **constants}))


def fuse_attention(edit: Edit) -> None:
    """Replace the calls of each attention by one call. An attention stays as it is if no views of four axes describe
    its tensors. It also stays if a call would then read a state that is already overwritten."""
    for place in range(len(edit)):
        call = edit.find(place)
        if call is None or call.kernel != PRODUCT:
            continue
        found = _pattern(edit, place)
        if not found:
            continue
        made = _call(edit, found)
        if not made:
            edit.skip(Cause.LAYOUT, call)
            continue
        attention, behind = made
        if edit.replace({**dict.fromkeys((*found.places, *behind)), found.at: attention}):
            edit.remove_unread()


def _pattern(edit: Edit, place: int) -> _Found | None:
    """Return the attention whose scores the call at this index computes; None where the pattern does not match."""
    call = edit[place]
    p = call.params
    params = {
        **_ABSENT,
        "depth": p["depth"],
        "query_zero_point": p["a_zero_point"],
        "key_zero_point": p["b_zero_point"],
        "score_multiplier": p["output_multiplier"],
        "score_shift": p["output_shift"],
        "score_zero_point": p["output_zero_point"],
    }
    if not edit.is_flat(call.views["output"]):
        return None
    operands = Operands(call.views["input_a"], call.views["input_b"], call.views["output"])
    found: _Found | None = _Found((place,), place, operands, MappingProxyType(params))
    found = found and (_masked(edit, found) or found)
    found = found and (_softmax(edit, found) or _exponentials(edit, found))
    return found


def _masked(edit: Edit, found: _Found) -> _Found | None:
    """Return the match extended by the sum of the scores and a mask; None if no such sum follows."""
    readers = edit.readers_of_result(found.at)
    if len(readers) != 1 or edit[readers[0][0]].kernel != "add_s8":
        return None
    ((place, own),) = readers
    call = edit[place]
    other = "input_b" if own == "input_a" else "input_a"
    p = call.params
    if not (edit.is_flat(call.views[own]) and edit.is_flat(call.views["output"])):
        return None
    if own == "input_b" and p["b_multiplier"] < 0:
        return None
    (a, b) = ("a", "b") if own == "input_a" else ("b", "a")
    numbers = {
        f"sum_{side}_{name}": p[f"{mine}_{name}"]
        for side, mine in (("a", a), ("b", b))
        for name in ("zero_point", "multiplier", "shift")
    }
    numbers |= {name: p[own_name] for name, own_name in _SUM_RESULT.items()}
    return found.reading(mask=call.views[other]).then(place, **numbers, masked=1)


def _softmax(edit: Edit, found: _Found) -> _Found | None:
    """Return the match extended by a softmax and the product with the values; None if they do not follow."""
    readers = edit.readers_of_result(found.at)
    if len(readers) != 1 or edit[readers[0][0]].kernel != "softmax_s8":
        return None
    call, keys = edit[readers[0][0]], found.operands.scores.extents[3]
    flat = edit.is_flat(call.views["input"]) and edit.is_flat(call.views["output"])
    if not flat or call.params["channels"] != keys:
        return None
    zero_point = call.params["output_zero_point"] if call.params["multiplier"] else INT8_MIN
    found = found.looking_up(exp=call.constants["exp"], reciprocal=_EMPTY).then(
        readers[0][0],
        exp_count=call.params["exp_count"],
        probability_multiplier=call.params["multiplier"],
        probability_shift=call.params["shift"],
        probability_zero_point=zero_point,
    )
    readers = edit.readers_of_result(found.at)
    return _product(edit, found, readers[0]) if len(readers) == 1 else None


def _product(edit: Edit, found: _Found, reader: tuple[int, str]) -> _Found | None:
    """Return the match extended by the product of the probabilities and the values; None if ``reader`` is no such
    product."""
    place, operand = reader
    call, scores = edit[place], found.operands.scores
    if call.kernel != PRODUCT or operand != "input_a":
        return None
    p, read = call.params, call.views["input_a"]
    same = (read.extents, read.pitches[:2], read.offset) == (scores.extents, scores.pitches[:2], scores.offset)
    if not same or read.pitches[3] != 1 or p["a_zero_point"] != found.params["probability_zero_point"]:
        return None
    return replace(found.reading(value=call.views["input_b"]), result=call.views["output"]).then(
        place,
        value_zero_point=p["b_zero_point"],
        product_multiplier=p["output_multiplier"],
        product_shift=p["output_shift"],
        product_zero_point=p["output_zero_point"],
    )


def _exponentials(edit: Edit, found: _Found) -> _Found | None:
    """Return the match extended by exponentials, their product with the values, and the division by their mean; None if
    they do not follow."""
    largest = edit.reader(found.at, "reduce_max_s8")
    if largest is None or len(edit.readers_of_result(found.at)) != 2 or edit[largest].params["smaller"]:
        return None
    keys = found.operands.scores.extents[3]
    difference = edit.reader(found.at, "add_s8", "input_a")
    if not _reduces(edit, largest, keys) or difference is None or edit.only_reader(largest) != (difference, "input_b"):
        return None
    lookup = edit.only_reader(difference)
    if not _of_each_row(edit, difference, "input_b") or lookup is None or edit[lookup[0]].kernel != "lookup_s8":
        return None
    steps = differences(edit[difference])
    exp = edit[lookup[0]]
    if steps is None or not (edit.is_flat(exp.views["input"]) and edit.is_flat(exp.views["output"])):
        return None
    table = exp.constants["table"]
    assert isinstance(table, np.ndarray)
    mean = edit.reader(lookup[0], "mean_s8")
    product = edit.reader(lookup[0], PRODUCT, "input_a")
    if mean is None or product is None or len(edit.readers_of_result(lookup[0])) != 2 or not _reduces(edit, mean, keys):
        return None
    found = found.looking_up(exp=np.asarray(table[steps - INT8_MIN], np.int8)).then(
        largest,
        difference,
        lookup[0],
        exp_count=len(steps),
        probability_zero_point=edit[mean].params["input_zero_point"],
        divides=1,
    )
    after = _product(edit, found, (product, "input_a"))
    return after and _divided(edit, after, mean)


def _divided(edit: Edit, found: _Found, mean: int) -> _Found | None:
    """Return the match extended by the division: the product with the values, multiplied by the reciprocal of the mean
    of each row. Return None if no division follows."""
    p = edit[mean].params
    reciprocal, last = edit.only_reader(mean), edit.only_reader(found.at)
    if p["weight"] != 1 or reciprocal is None or last is None or edit[reciprocal[0]].kernel != "lookup_s8":
        return None
    call, (place, own) = edit[reciprocal[0]], last
    other = "input_b" if own == "input_a" else "input_a"
    flat = edit.is_flat(call.views["input"]) and edit.is_flat(call.views["output"])
    if not flat or edit[place].kernel != "mul_s8" or edit.only_reader(reciprocal[0]) != (place, other):
        return None
    if not _of_each_row(edit, place, other):
        return None
    table, m = call.constants["table"], edit[place].params
    assert isinstance(table, np.ndarray)
    (a, b) = ("a", "b") if own == "input_a" else ("b", "a")
    by_mean = np.clip(np.arange(INT8_MIN, INT8_MAX + 1), p["clamp_min"], p["clamp_max"]) - INT8_MIN
    found = replace(found, result=edit[place].views["output"])
    return found.looking_up(reciprocal=table[by_mean]).then(
        mean,
        reciprocal[0],
        place,
        mean_multiplier=p["output_multiplier"],
        mean_shift=p["output_shift"],
        mean_zero_point=p["output_zero_point"],
        quotient_a_zero_point=m[f"{a}_zero_point"],
        quotient_b_zero_point=m[f"{b}_zero_point"],
        quotient_multiplier=m["output_multiplier"],
        quotient_shift=m["output_shift"],
        quotient_zero_point=m["output_zero_point"],
        clamp_min=m["clamp_min"],
        clamp_max=m["clamp_max"],
    )


def _reduces(edit: Edit, place: int, keys: int) -> bool:
    """Return whether a call reduces each row of ``keys`` bytes of its input to one byte."""
    source, result = edit[place].views["input"], edit[place].views["output"]
    rows = source.extents[0] * source.extents[3]
    return (
        source.extents == (rows, 1, keys, 1)
        and result.extents == (rows, 1, 1, 1)
        and edit.is_flat(source)
        and edit.is_flat(result)
    )


def _of_each_row(edit: Edit, place: int, name: str) -> bool:
    """Return whether a call of two operands reads one value of operand ``name`` for each row of the other operand.
    The call must also read all of the other operand, and write all of the output."""
    views = edit[place].views
    other = "input_a" if name == "input_b" else "input_b"
    view = views[name]
    numbers = replace(view, extents=(*view.extents[:3], 1))
    return (
        (view.pitches[3] == 0 or view.extents[3] == 1)
        and edit.is_flat(numbers)
        and view.extents == views["output"].extents == views[other].extents
        and edit.is_flat(views[other])
        and edit.is_flat(views["output"])
    )


def differences(call: KernelCall) -> npt.NDArray[np.int64] | None:
    """Return the stored results of an add_s8 that computes a - b, for each stored difference b - a from 0 to 255:
    int64 [256]. Return None if the result depends on more than this difference.

    For operands of equal scales it depends on the difference only: each operand is its stored value times 2^19,
    without rounding.
    """
    p = call.params
    if (p["a_multiplier"], p["a_shift"], p["b_multiplier"], p["b_shift"]) != (_HALF, 0, -_HALF, 0):
        return None
    if p["a_zero_point"] != p["b_zero_point"] or p["output_shift"] > 0:
        return None
    below = -(np.arange(256, dtype=np.int64) << 19)
    high = (below * p["output_multiplier"] + (1 << 30)) >> 31
    shift = -p["output_shift"]
    rounded = np.sign(high) * ((np.abs(high) + ((1 << shift) >> 1)) >> shift)
    return np.asarray(np.clip(rounded + p["output_zero_point"], p["clamp_min"], p["clamp_max"]))


def _call(edit: Edit, found: _Found) -> tuple[KernelCall, tuple[int, ...]] | None:
    """Return the attention call of a pattern, and the indices of the copies after it that the call replaces; None
    if no views of four axes describe its tensors."""
    assert found.result is not None
    seen = placed(edit, found.operands, found.result)
    if seen is None:
        return None
    name, views = edit[found.at].name, dict(seen.views)
    keys, depth, channels = views["key"].extents[1], found.params["depth"], views["output"].extents[3]
    scores = (1, 1, 1, depth + keys)
    views["scores"] = View(edit.store(f"{name}/scores", dense_pitches(scores)[0]), scores, dense_pitches(scores))
    params = {
        **found.params,
        "work": -(-keys * (depth + channels) // channels),
        "group": views["query"].extents[2] // views["key"].extents[2],
        "tabled": int(seen.table is not None),
    }
    constants = {**found.constants, "table": _EMPTY if seen.table is None else seen.table}
    return KernelCall("attention_s8", name, views, params, constants), seen.behind
