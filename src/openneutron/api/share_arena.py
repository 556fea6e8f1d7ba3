# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron.share_arena``: several models whose runs use one arena, one after the other, within one SRAM budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from openneutron.errors import BudgetError, InvalidOptionError
from openneutron.features.report.shared_arena import SharedMemory, arena_bytes, of_summaries
from openneutron.options import RegionSizes, region_bytes

if TYPE_CHECKING:
    from openneutron.api.litert import CompiledLiteRTModel
    from openneutron.api.pytorch import CompiledModel

    Compiled: TypeAlias = CompiledModel | CompiledLiteRTModel


@dataclass(frozen=True, slots=True, eq=False)
class SharedArena:
    """The result of ``openneutron.share_arena``: the compiled models, and the memory of all of them."""

    models: tuple[Compiled, ...] = field(repr=False)
    memory: SharedMemory


def share_arena(
    models: Sequence[Compiled], *, sram_budget: int | RegionSizes | Mapping[str, int] | None = None
) -> SharedArena:
    """Plan the memory of compiled models that run one after the other in one arena.

    The arena is as large as the largest arena of a model. States that a model keeps between its runs have memory of
    their own, outside the arena. A model that does not fit beside the states of the other models is compiled again.
    Its budget is then what these states leave of ``sram_budget``.

    Args:
        models: Results of ``openneutron.compile`` for one target, at least two.
        sram_budget: The SRAM in bytes that all models may take together, or that of each memory region; None: the largest budget of the
            models.

    Returns:
        The models, those that were compiled again among them, and their memory.

    Raises:
        InvalidOptionError: There are fewer than two models, two have the same name or different targets, one is
            compiled by NXP's converter, or the budget is unusable.
        BudgetError: A model does not fit the budget beside the states of the others. The error has the smallest sufficient budget.

    >>> import openneutron
    >>> models = [openneutron.compile(name) for name in ("wake_word.tflite", "anomaly.tflite")]  # doctest: +SKIP
    >>> openneutron.share_arena(models, sram_budget=64 * 1024).memory.sram_bytes  # doctest: +SKIP
    >>> openneutron.share_arena([])
    Traceback (most recent call last):
        ...
    openneutron.errors.InvalidOptionError: share_arena: there is no model. Give two or more.
    """
    check_names([model.name for model in models])
    first = models[0]
    for other in models[1:]:
        if other.target.name != first.target.name:
            raise InvalidOptionError(
                f"share_arena: '{first.name}' is compiled for {first.target.name} and '{other.name}' for {other.target.name}. "
                "Compile both for one target."
            )
    for model in models:
        if model.report.converted:
            raise InvalidOptionError(
                f"share_arena: '{model.name}' is compiled by NXP's converter, whose use of memory is not known. Compile it with "
                "converter='open'."
            )
    if sram_budget is None:
        own = (region_bytes(model.compile_options.sram_budget, first.target) for model in models)
        budget = tuple(max(sizes) for sizes in zip(*own, strict=True))
    else:
        given = tuple(sram_budget.items()) if isinstance(sram_budget, Mapping) else sram_budget
        budget = region_bytes(given, first.target)
    states = [model.report.state_bytes for model in models]
    made = tuple(_fitting(model, budget, sum(states) - own) for model, own in zip(models, states, strict=True))
    weights = [[program.weights for program in model.programs] for model in made]
    return SharedArena(made, of_summaries([model.report for model in made], weights, sum(budget)))


def check_names(names: Sequence[str], subject: str = "share_arena") -> None:
    """Raise InvalidOptionError where there are fewer than two models, or where two models have one name. ``subject`` begins the message."""
    if len(names) < 2:
        raise InvalidOptionError(f"{subject}: there is {len(names) or 'no'} model. Give two or more.")
    for name in names:
        if names.count(name) > 1:
            raise InvalidOptionError(
                f"{subject}: two models have the name '{name}'. Give each model a name of its own."
            )


def _fitting(model: Compiled, budget: tuple[int, ...], others: int) -> Compiled:
    """Return the model itself if it fits the budget of each memory region beside the states of the other models.
    Otherwise, return it compiled again with what these states leave of the budget.

    ``others`` is the size of these states in bytes. Raises BudgetError where the model does not fit even then.
    """
    room = _without(budget, others + model.report.state_bytes)
    if all(size <= there for size, there in zip(arena_bytes(model.report), room, strict=True)):
        return model
    left = _without(budget, others)
    if not any(left):
        raise _too_large(model, others + 1, sum(budget), others)
    names = (region.name for region in model.target.regions)
    sizes = tuple((name, size) for name, size in zip(names, left, strict=True) if size)
    try:
        return model.recompile(sram_budget=left[0] if len(left) == 1 else sizes)
    except BudgetError as error:
        raise _too_large(model, error.least_bytes + others, sum(budget), others) from error


def _without(budget: tuple[int, ...], states: int) -> tuple[int, ...]:
    """Return what states leave of each memory region. They are in the last region first."""
    left = []
    for size in reversed(budget):
        left.append(max(0, size - states))
        states = max(0, states - size)
    return tuple(reversed(left))


def _too_large(model: Compiled, least: int, budget: int, others: int) -> BudgetError:
    kib = -(-least // 1024)
    beside = f", {others} bytes of which are states of the other models" if others else ""
    return BudgetError(
        f"share_arena: '{model.name}' needs {_size(least)} of SRAM{beside}; the budget of all models is {_size(budget)}. Give at least {kib} KiB "
        f"with --sram-budget (sram_budget={kib * 1024} in Python), or a smaller input.",
        least,
    )


def _size(size: int) -> str:
    return f"{size / 1024:.1f} KiB ({size} bytes)"
