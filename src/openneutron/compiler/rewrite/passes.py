# SPDX-License-Identifier: BSD-3-Clause
"""The passes over kernel calls in one table, in the order they run, and the lists of calls that they make.

A row of ``PASSES`` states which calls a pass needs, its group, and its edit. The group decides for which lists of calls
the pass runs. Passes of the group ``ALWAYS`` run over every list. The other groups are choices: the search compiles
lists with them and without them, and takes the fastest that fits. ``VARIANTS`` has the groups for each list that is
computed on whole tensors. For cascades a row states ``routes``: sequences of passes, each of which makes one more list
from a variant.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import Any

from openneutron.compiler.legalize.legalize import legalize
from openneutron.compiler.legalize.quantize import as_asked
from openneutron.compiler.rewrite import attention, divide, fold, jobs, join, order, shapes
from openneutron.compiler.rewrite.call_list import CallList, Cause, Edit, Skipped, edited
from openneutron.compiler.select.calls import KernelCall, Storages
from openneutron.compiler.select.needs import in_place
from openneutron.compiler.select.select import Selection, calls_of_nodes
from openneutron.compiler.select.tables import COMBINED
from openneutron.errors import InvalidOptionError
from openneutron.ir import Graph
from openneutron.isa.kernels.row import Function
from openneutron.options import ARENA, ON_CPU, CompileOptions
from openneutron.options.flags import did_you_mean
from openneutron.targets import Target


class Family(Enum):
    """The kind of change that a pass makes."""

    JOIN = "join"
    CHAIN = "chain"
    MERGE = "merge"
    SPLIT = "split"
    ORDER = "order"


class Group(Enum):
    """The lists of calls over which a pass runs. The value is the name of the group in reports."""

    ALWAYS = "every list"
    VIEWS = "lists with copies as views"
    JOINED = "lists of joined calls"
    PRODUCTS = "lists of blocks with their product"
    FEWEST = "lists of the fewest calls"
    JOBS = "lists with jobs"
    WHOLE = "whole tensors"
    CASCADES = "cascades"


Route = tuple[str, ...]
"""Names of passes that run one after the other. The step IN_PLACE assigns results to the memory of their operands."""

IN_PLACE, IN_PLACE_CHAINED = "results in place", "results in place, chained"


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass over kernel calls. ``needs`` returns whether a call is one that the pass can change. ``calls`` names
    such calls in reports.

    Each of ``routes`` is a sequence of passes that makes one list of calls for cascades. There is no such list if a
    pass of the route changes nothing, unless this pass only restates calls (``restates``).
    """

    name: str
    family: Family
    group: Group
    calls: str
    needs: Callable[[KernelCall], bool]
    edit: Callable[[Edit], None]
    routes: tuple[Route, ...] = ()
    restates: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a pass for one list: the calls that it made, and the calls that it skipped, with the cause."""

    name: str
    made: tuple[str, ...]
    skipped: tuple[Skipped, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Passes:
    """The passes of a compile, without those that are switched ``off``. ``outcomes`` records the result of each
    pass that runs, unless it is None."""

    target: Target | None = None
    io: str = ARENA
    off: frozenset[str] = frozenset()
    outcomes: list[Outcome] | None = None
    rescale: str = ON_CPU

    def __post_init__(self) -> None:
        for name in self.off:
            if name not in BY_NAME:
                raise InvalidOptionError(
                    f"without_passes: '{name}' is unknown; there are {', '.join(BY_NAME)}.{did_you_mean(name, BY_NAME)}"
                )

    def run(self, name: str, given: CallList) -> CallList | None:
        """Return the list that a pass makes; None if the pass changes nothing or is switched off."""
        row = BY_NAME[name]
        if name in self.off:
            self._skip(name, Cause.SWITCHED_OFF)
            return None
        if not any(map(row.needs, given.calls)):
            self._skip(name, Cause.NO_CALLS)
            return None
        edit = Edit(given, self.target, self.io, self.rescale)
        row.edit(edit)
        made = edit.finished() if edit.is_changed else None
        if self.outcomes is not None:
            known = set(map(id, given.calls))
            fired = tuple(call.name for call in made.calls if id(call) not in known) if made else ()
            skipped = tuple(edit.skipped) or ((Skipped(Cause.UNCHANGED),) if made is None else ())
            self.outcomes.append(Outcome(name, fired, skipped))
        return made

    def follow(self, route: Route, given: CallList, made: dict[Route, CallList | None]) -> CallList | None:
        """Return the list that the passes of a route make; None if one of them does not apply. ``made`` caches the
        lists of routes, and is updated."""
        if not route:
            return given
        if route not in made:
            before, name = self.follow(route[:-1], given, made), route[-1]
            if before is None:
                made[route] = None
            elif name in (IN_PLACE, IN_PLACE_CHAINED):
                storages = in_place(before.storages, before.calls, chained=name == IN_PLACE_CHAINED)
                made[route] = replace(before, storages=storages)
            else:
                made[route] = self.run(name, before) or (before if BY_NAME[name].restates else None)
        return made[route]

    def _skip(self, name: str, cause: Cause) -> None:
        if self.outcomes is not None:
            self.outcomes.append(Outcome(name, (), (Skipped(cause),)))


def _of_kernels(*names: str) -> Callable[[KernelCall], bool]:
    return lambda call: call.kernel in names


def _any(_call: KernelCall) -> bool:
    return True


def _moves(call: KernelCall) -> bool:
    return call.traits.function is not None


def _is_copy(call: KernelCall) -> bool:
    return call.traits.function is Function.IDENTITY


def _is_attention(call: KernelCall) -> bool:
    return call.traits.columns_apart


def _is_attention_of_batches(call: KernelCall) -> bool:
    return call.traits.columns_apart and call.views["output"].extents[0] > 1


def _has_batches(call: KernelCall) -> bool:
    return divide.batches_apart(call) > 1


def _has_passes(call: KernelCall) -> bool:
    return call.traits.passes is not None


def _two_passes(edit: Edit, share: int) -> None:
    """Compute norms in two passes. The call before a norm is computed again if that is possible and its result has at
    least 1 / ``share`` of the bytes of the largest input of a norm; with a ``share`` of 0, the size does not matter."""
    sizes = join.norm_bytes(edit.given.calls, edit.storages)
    join.in_two_passes(edit, max(sizes, default=0) // share if share else 0)


def _in_head_groups(edit: Edit, parts: int | None, batches: bool = False) -> None:
    """Divide attention into groups of heads, unless ``join`` can still join calls of the list. In that case another
    list, which has the calls joined, is divided instead."""
    if edited(edit.given, join.join) is None:
        divide.head_groups(edit, parts, batches)
    else:
        edit.skip(Cause.LEFT_TO_OTHERS)


def _columns(edit: Edit) -> None:
    shapes.merge_columns(edit, edit.chip)


def _patches(edit: Edit, sequences: bool) -> None:
    shapes.merge_without_edges(edit, edit.chip, sequences)


_HEADS: tuple[Route, ...] = tuple(
    route
    for name in ("queries-last", "head-by-head")
    for route in (("positions", name, "sequences"), ("positions", name, "sequences", "again"))
)
_FROM_PLACE = tuple((IN_PLACE, *route) for route in _HEADS)
_STATED = (IN_PLACE, "positions", "sequences")
_GROUPS = ("queries-apart", "two-head-groups", "single-head-groups")
_OF_BATCHES = tuple(f"{name}-of-batches" for name in _GROUPS)
_BY_BATCH: tuple[Route, ...] = tuple(
    (name, "chain-to-next", *_STATED, "layers-by-batch", *groups, "one-batch")
    for name in _OF_BATCHES
    # Without groups, one joined call for all heads and batches takes fewer dispatches than the calls without a budget.
    for groups in ((("two-batch-groups",), ()) if name != _OF_BATCHES[0] else (("two-batch-groups",),))
)
_WINDOWS = tuple(("windows", *route) for route in (_STATED, *_FROM_PLACE))
_OF = "attention of several batches"
_GROUP_ROUTES = tuple((name, "chain-to-next", *_STATED) for name in _GROUPS)
_chain_to_next = partial(join.chain, last_first=False)
_TWICE = (IN_PLACE_CHAINED, "positions", "sequences")
_CHAINED = _of_kernels(*(second for _, second in join.CHAINED))
_IS_FIRST = _of_kernels(*(first for first, _ in join.JOINED))
_PAIRS = "calls of a pair that a kernel"

JOIN, CHAIN, MERGE, SPLIT, ORDER = Family
ALWAYS, VIEWS, JOINED, PRODUCTS, FEWEST, JOBS, WHOLE, CASCADES = Group

PASSES: tuple[Pass, ...] = (
    Pass("functions", JOIN, ALWAYS, "calls of two operands", _of_kernels(*COMBINED), fold.as_tables),
    Pass("fold", JOIN, ALWAYS, "copies and tables", _moves, fold.fold),
    Pass("attention", JOIN, ALWAYS, "products of matrices", _of_kernels(attention.PRODUCT), attention.fuse_attention),
    # Once attention is one call without copies around it, more copies can be folded.
    Pass("fold", JOIN, ALWAYS, "copies and tables", _moves, fold.fold),
    Pass("views", JOIN, VIEWS, "copies", _is_copy, fold.copies_as_views),
    Pass("excitation", JOIN, JOINED, "means of images", _of_kernels(join.MEAN), join.join_excitations),
    Pass("join", JOIN, JOINED, f"first {_PAIRS} joins", _IS_FIRST, join.join),
    Pass("product", JOIN, PRODUCTS, "joined excitations", _of_kernels(join.KERNEL), join.join_products),
    Pass("merge", MERGE, FEWEST, "linear layers", _of_kernels(join.LINEAR), join.merge),
    Pass("chain", CHAIN, FEWEST, f"second {_PAIRS} chains", _CHAINED, join.chain),
    Pass("jobs", SPLIT, JOBS, "matrix products", jobs.is_product, jobs.by_jobs),
    Pass("order", ORDER, WHOLE, "calls", _any, order.in_order_of_least_peak, restates=True),
    Pass("columns", SPLIT, WHOLE, "convolutions", shapes.has_window, _columns),
    Pass("planes", SPLIT, CASCADES, "copies", _is_copy, shapes.patches_of_planes),
    Pass("patches", MERGE, CASCADES, "convolutions", shapes.has_window, partial(_patches, sequences=False)),
    Pass("patches-of-sequences", MERGE, CASCADES, "convolutions", shapes.has_window, partial(_patches, sequences=True)),
    Pass("positions", ORDER, CASCADES, "calls", _any, shapes.with_rows_of_neighbours, restates=True),
    Pass("sequences", ORDER, CASCADES, "sequences", shapes.is_sequence, shapes.by_rows, restates=True),
    Pass("one-batch", ORDER, CASCADES, "calls", _any, shapes.in_one_batch, restates=True),
    Pass("batches", SPLIT, CASCADES, "calls of several batches", _has_batches, divide.batch_by_batch),
    *(
        Pass(
            name,
            family,
            CASCADES,
            "attention",
            _is_attention,
            partial(divide.heads_apart, all_heads=one_by_one),
            routes,
        )
        for name, family, one_by_one, routes in (
            ("queries-last", ORDER, False, _FROM_PLACE[:2]),
            ("head-by-head", SPLIT, True, _FROM_PLACE[2:]),
        )
    ),
    Pass("again", SPLIT, CASCADES, "calls", _any, join.computed_again),
    *(
        Pass(name, SPLIT, CASCADES, "attention", _is_attention, partial(_in_head_groups, parts=parts))
        for name, parts in zip(_GROUPS, (1, 2, None), strict=True)
    ),
    *(
        Pass(name, SPLIT, CASCADES, _OF, _is_attention_of_batches, partial(_in_head_groups, parts=parts, batches=True))
        for name, parts in zip(_OF_BATCHES, (1, 2, None), strict=True)
    ),
    Pass("chain-to-next", CHAIN, CASCADES, f"second {_PAIRS} chains", _CHAINED, _chain_to_next, _GROUP_ROUTES, True),
    Pass("layers-by-batch", JOIN, CASCADES, _OF, _is_attention_of_batches, divide.attention_of_layers, _BY_BATCH),
    Pass(
        "two-batch-groups",
        SPLIT,
        CASCADES,
        "calls of several batches",
        _has_batches,
        partial(divide.batch_by_batch, groups=2),
    ),
    Pass("windows", SPLIT, CASCADES, _OF, _is_attention_of_batches, divide.windows_apart, _WINDOWS),
    *(
        Pass(name, SPLIT, CASCADES, "norms over all rows", _has_passes, edit, (("sequences", name, *_TWICE),))
        for name, edit in (
            ("two-passes", join.in_two_passes),
            ("two-passes-largest-again", partial(_two_passes, share=2)),
            ("two-passes-again", partial(_two_passes, share=0)),
        )
    ),
)
"""All passes in the order they run."""

BY_NAME: Mapping[str, Pass] = MappingProxyType({row.name: row for row in PASSES})

VARIANTS: tuple[tuple[Group, ...], ...] = (
    (VIEWS, JOINED, FEWEST),
    (VIEWS, JOINED, PRODUCTS, FEWEST),
    (JOINED, FEWEST),
    (VIEWS, JOINED),
    (VIEWS, JOINED, PRODUCTS),
    (JOINED,),
    (),
)
"""The groups of passes of each list for whole tensors, in addition to ``ALWAYS``."""


ALL = Passes()
"""Every pass, for lists that need no target."""


def select_calls(
    legal: Graph, known: Mapping[str, list[KernelCall]] = MappingProxyType({}), passes: Passes = ALL
) -> Selection:
    """Return the storages and the calls that ``calls_of_nodes`` selects, after the passes of ``ALWAYS``."""
    storages, calls = calls_of_nodes(legal, known)
    made = CallList(tuple(calls), storages)
    for row in PASSES:
        if row.group is Group.ALWAYS:
            made = passes.run(row.name, made) or made
    return made.storages, list(made.calls)


def selections(
    legal: Graph, known: Mapping[str, list[KernelCall]] = MappingProxyType({}), passes: Passes = ALL
) -> list[Selection]:
    """Return the selections to compile, each with storages and kernel calls: those of ``VARIANTS``, without
    duplicates. They do not depend on the budget.

    Variants with fewer calls are faster, but may take more memory in cascades or with prefetch.
    """
    storages, calls = select_calls(legal, known, passes)
    given = CallList(tuple(calls), storages)
    known_lists: dict[Route, CallList | None] = {}
    found: list[CallList] = []
    for groups in VARIANTS:
        at = given
        route: Route = ()
        for row in PASSES:
            if row.group in groups:
                route = (*route, row.name)
                if route not in known_lists:
                    known_lists[route] = passes.run(row.name, at)
                at = known_lists[route] or at
        if not any(_are_equal(at, other) for other in found):
            found.append(at)
    return [(each.storages, list(each.calls)) for each in found]


def with_jobs(
    selected: Sequence[Selection], apart: Callable[[], Sequence[Selection]], passes: Passes
) -> list[Selection]:
    """Return the selections, with matrix products as jobs that the NPU's driver runs, without duplicates. The target
    of ``passes`` has the facts about jobs.

    If a selection has attention calls, the selections that ``apart`` returns follow. In these, the products of
    attention are separate calls, so that they can be jobs.
    """
    if any(_is_attention(call) for _, calls in selected for call in calls):
        selected = [*selected, *apart()]
    found: list[CallList] = []
    for storages, calls in selected:
        given = CallList(tuple(calls), storages)
        made = passes.run("jobs", given) or given
        if not any(_are_equal(made, other) for other in found):
            found.append(made)
    return [(each.storages, list(each.calls)) for each in found]


def _are_equal(one: CallList, other: CallList) -> bool:
    return one is other or (len(one.calls) == len(other.calls) and one.calls == other.calls)


def takes_routes(calls: Sequence[KernelCall]) -> bool:
    """Return whether routes may make further lists of these calls for cascades: they include attention, or a norm
    over all rows."""
    return any(_is_attention(call) or _has_passes(call) for call in calls)


def for_cascades(given: CallList, storages: Storages, passes: Passes) -> Iterator[CallList]:
    """Yield the lists of calls for cascades: first those that keep each order that is tried (``of_one_order``), then
    those of the passes' routes.

    ``given`` has the storages before ``in_place``, and ``storages`` are those after it. Networks with attention or
    norms begin with convolutions that cut an image or a signal into patches. If these have no edges, their columns
    are merged first, so that cascades profit from that too. Further lists have convolutions that read the planes of
    an image directly (``patches_of_planes``).
    """
    firsts = [given]
    if takes_routes(given.calls):
        images, sequences = (passes.run(name, given) or given for name in ("patches", "patches-of-sequences"))
        firsts = [images] if images.calls == sequences.calls else [images, sequences]
        planes = passes.run("planes", given)
        firsts += [] if planes is None else [passes.run("patches-of-sequences", planes) or planes]
    for first in firsts:
        flow, found = order.flow_of(first.calls, storages, passes.io), [tuple(range(len(first.calls)))]
        if not order.stays(flow) and "order" not in passes.off:
            least = order.order_of_least_peak(flow)
            closest = order.order_of_least_sum(flow, flow.peak_bytes(least))
            found += [least] if closest is None else [least, closest]
            found += [order.order_by_depth(flow)] if any(map(_is_attention, first.calls)) else []
        for numbers in dict.fromkeys(found):
            yield from of_one_order([first.calls[number] for number in numbers], storages, passes)
        made: dict[Route, CallList | None] = {}
        for row in PASSES if takes_routes(first.calls) else ():
            for route in row.routes:
                one = passes.follow(route, first, made)
                if one is not None:
                    yield one


def of_one_order(calls: Sequence[KernelCall], storages: Storages, passes: Passes = ALL) -> list[CallList]:
    """Return the lists for cascades that keep the order of ``calls``. One has every sequence restated with rows for
    columns. One has the calls unchanged, if that may suit cascades better. One is computed batch by batch, if that
    divides a tensor."""
    given = CallList(tuple(calls), storages)
    found = [given]
    turned = passes.run("sequences", given)
    if any(map(_is_attention, calls)):
        stated = passes.run("positions", given) or given
        found.append(passes.run("sequences", stated) or stated)
    elif turned is not None:
        found = [turned] if shapes.apart(given) else [given, turned]
    cut = passes.run("batches", found[-1])
    return found if cut is None else [*found, cut]


@dataclass(frozen=True, slots=True)
class Explained:
    """The effect of one pass on a graph, over all of its lists: the names of the calls that it made, and the names of
    those that it left unchanged, by cause."""

    row: Pass
    made: tuple[str, ...]
    skipped: Mapping[Cause, tuple[str, ...]]

    def to_dict(self) -> dict[str, Any]:
        """Return the effect as a dict for JSON. The keys of ``skipped`` are the names of causes in lower case."""
        row, skipped = self.row, {cause.name.lower(): list(names) for cause, names in self.skipped.items()}
        return {
            "name": row.name,
            "family": row.family.value,
            "lists": row.group.value,
            "made": list(self.made),
            "skipped": skipped,
        }

    def __str__(self) -> str:
        """Return a text that names the calls that were made, or the causes why there are none."""
        if self.made:
            return f"made {_some(self.made)}"
        causes = {
            cause: f"there are no {self.row.calls}" if cause is Cause.NO_CALLS else cause.value
            for cause in self.skipped
            # A list without such calls is of no interest where another list has some.
            if cause is not Cause.NO_CALLS or len(self.skipped) == 1
        }
        return "; ".join(
            f"{words} ({_some(self.skipped[cause])})" if self.skipped[cause] else words
            for cause, words in causes.items()
        )


def _some(names: Sequence[str]) -> str:
    """Return a text with the first three names and the number of further ones."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def explained(graph: Graph, target: Target, options: CompileOptions) -> tuple[Explained, ...]:
    """Return the effect of each pass on ``graph``, over all lists that a search may ask for. The graph must be one
    that compiles. A compile asks for fewer lists if whole tensors fit."""
    outcomes: list[Outcome] = []
    passes = Passes(target, options.place, frozenset(options.without_passes), outcomes, options.rescale)
    legal = legalize(as_asked(graph, options).graph)
    selected = selections(legal, passes=passes)
    if target.jobs is not None:
        off = passes.off | {"attention"}
        selected = with_jobs(selected, lambda: selections(legal, passes=Passes(off=off)), passes)
    for storages, calls in selected:
        given = CallList(tuple(calls), storages)
        if target.moves_tiles:
            of_one_order(calls, storages, passes)
            passes.follow(("sequences", "two-passes"), given, {})
            continue
        shared = in_place(storages, calls)
        passes.run("order", CallList(given.calls, shared))
        passes.run("columns", given)
        collections.deque(for_cascades(given, shared, passes), maxlen=0)
    found = []
    for name, row in BY_NAME.items():
        own = [outcome for outcome in outcomes if outcome.name == name]
        made = dict.fromkeys(call for outcome in own for call in outcome.made)
        skipped: dict[Cause, dict[str, None]] = {} if own else {Cause.NOT_TRIED: {}}
        for each in (each for outcome in own for each in outcome.skipped):
            skipped.setdefault(each.cause, {}).update(dict.fromkeys(each.calls))
        found.append(Explained(row, tuple(made), {cause: tuple(names) for cause, names in skipped.items()}))
    return tuple(found)
