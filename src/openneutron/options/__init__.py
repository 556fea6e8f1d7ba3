# SPDX-License-Identifier: BSD-3-Clause
"""The options of ``openneutron.compile``, declared, documented and checked: ``CompileOptions`` for the compiler, and the
quantization, delegation, loading and outputs of a model."""

from __future__ import annotations

import dataclasses
import difflib
import operator
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, SupportsIndex

from openneutron import targets
from openneutron.errors import InvalidOptionError
from openneutron.options.flags import (
    check_choice,
    did_you_mean,
    flags_of,
    option,
    sizes_between,
    sizes_of_regions,
    split_flags,
    split_names,
    whole_number,
)
from openneutron.options.frames import FrameFormat as FrameFormat
from openneutron.options.frames import InputOptions as InputOptions

ARENA = "arena"
CALLER = "caller"
IO_PLACES = (ARENA, CALLER)
"""The places of inputs and outputs."""

USED, UNUSED = "used", "none"
NPU_USES = (USED, UNUSED)
"""The uses of a chip's NPU."""

DEFAULT_EFFORT = "default"
HIGH_EFFORT = "high"
EFFORTS = (DEFAULT_EFFORT, HIGH_EFFORT)
"""The efforts of the search for a schedule."""

OPEN = "open"
EIQ = "eiq"
DRIVER = "driver"
CONVERTERS = (OPEN, EIQ, DRIVER)
"""The converters: this project's compiler; NXP's ``eiq_neutron_sdk``; and this project's compiler for the host core, which gives matrix
products to the driver of NXP's NPU."""


PORTABLE, XNNPACK = "portable", "xnnpack"
CPU_KERNELS = (PORTABLE, XNNPACK)
"""The kernels of ExecuTorch for operators outside of all programs: its portable ones, and those of its XNNPACK backend."""

FAMILIES = {XNNPACK: "Cortex-A"}
"""The family of cores that a backend's kernels run on."""

ON_CPU, ON_NPU = "cpu", "npu"
RESCALERS = (ON_CPU, ON_NPU)
"""The processors that can rescale the results of the NPU driver's matrix products."""


def _check_target(_subject: str, name: str) -> None:
    targets.get(name)


def _check_threads(subject: str, value: Any) -> None:
    if (
        not isinstance(value, SupportsIndex)
        or isinstance(value, bool)
        or not 1 <= operator.index(value) <= targets.MOST_THREADS
    ):
        raise InvalidOptionError(
            f"{subject}: it is {value!r}; it is a number of threads from 1 to {targets.MOST_THREADS}."
        )


RegionSizes = tuple[tuple[str, int], ...]
"""The budget of each memory region in bytes, by its name."""


def _check_budget(subject: str, size: Any) -> None:
    if isinstance(size, tuple) and size:
        for each in size:
            if not isinstance(each, tuple) or len(each) != 2 or not isinstance(each[0], str):
                raise InvalidOptionError(f"{subject}: it has {each!r}; a region has a name and a size in bytes.")
            _check_budget(f"{subject} of {each[0]}", each[1])
        return
    if not isinstance(size, SupportsIndex) or isinstance(size, bool):
        raise InvalidOptionError(f"{subject}: it is {size!r}; a budget is a whole number of bytes.")
    if operator.index(size) <= 0:
        raise InvalidOptionError(f"{subject}: it is {size} bytes; a budget is above 0.")


def _check_list(subject: str, values: Any) -> None:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidOptionError(f"{subject}: it is {values!r}. Pass a list, such as [{values!r}].")


def _check_texts(subject: str, values: Any) -> None:
    if not isinstance(values, tuple) or not all(isinstance(item, str) for item in values):
        raise InvalidOptionError(f"{subject}: it is {values!r}; it is a tuple of texts.")


def _check_text(subject: str, value: Any) -> None:
    if not isinstance(value, str):
        raise InvalidOptionError(f"{subject}: it is {value!r}; it is a text.")


def _check_seconds(subject: str, value: Any) -> None:
    if not isinstance(value, SupportsIndex) or isinstance(value, bool) or operator.index(value) < 1:
        raise InvalidOptionError(f"{subject}: it is {value!r}; it is a whole number of seconds above 0.")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOptions:
    """The options of a compile.

    ``openneutron.compile``, the command line, ``generate_neutron_compile_spec`` and the compiler share this class. A subclass may add
    fields with ``openneutron.options.flags.option``. Each of them gets a flag, a check and a place in compile specs.

    Raises InvalidTargetError for an unknown target, InvalidOptionError for any other unusable value.

    >>> CompileOptions(sram_budget=64 * 1024, effort="high").sram_budget
    65536
    >>> CompileOptions(sram_budget=0)
    Traceback (most recent call last):
        ...
    openneutron.errors.InvalidOptionError: sram_budget: it is 0 bytes; a budget is above 0.
    """

    target: str = option(
        targets.DEFAULT,
        "The chip, see `openneutron targets`, or the path of its .toml file.",
        metavar="NAME",
        check=_check_target,
        in_text=False,
    )
    """The name of the chip, or the path of its file (docs/how-to/add-a-chip.md)."""

    npu: str = option(
        USED, "Use the chip's NPU, or none: the host core then runs all kernels.", choices=NPU_USES, in_text=False
    )
    """``used``, or ``none``: the target is then the chip's host core, such as ``mcxn94x-cpu``."""

    sram_budget: int | tuple[tuple[str, int], ...] | None = option(
        None,
        "SRAM that a run may take, such as 287 or 1.5MiB, or that of each region: dtcm=64,sram=256; default: the target's.",
        metavar="KIB",
        read=sizes_of_regions,
        span=sizes_between,
        check=_check_budget,
        eiq=(),
    )
    """The SRAM in bytes that arena, prefetch buffer, inputs and outputs of a delegate call may take together; None: the
    target's SRAM. A target with several memory regions can have a budget for each, such as ``{"dtcm": 65536, "sram": 262144}``."""

    io_place: str | None = option(
        None,
        "Place inputs and outputs in the arena (default of a .tflite) or in the caller's buffers (of a .pte).",
        choices=IO_PLACES,
        eiq=(CALLER,),
    )
    """The place of inputs and outputs: ``arena``, where their memory is reused after their last use and a run copies
    them, or ``caller``, the caller's buffers. None: ``arena`` in a ``.tflite``, ``caller`` in a ``.pte``."""

    prefetch_constants: bool = option(False, "Copy constants from flash to SRAM before each use.")
    """True copies each operator's constants from flash to SRAM ahead of their use. The budget covers their memory
    too."""

    host_calls: bool = option(
        True, "Compute operators that the NPU can't in kernel calls on the host core, in the same program.", eiq=()
    )
    """True computes operators that only a limit of the NPU speaks against in kernel calls on the host core, in the same program. Such
    operators leave the program where it is False, and where the host core does not reach the memory of activations."""

    cpu: str | None = option(
        None,
        "Kernels of operators outside of all programs, in a .pte: ExecuTorch's portable ones, or XNNPACK's (default where the host core is "
        "a Cortex-A).",
        choices=CPU_KERNELS,
        in_text=False,
    )
    """The kernels of operators outside of all programs, in a ``.pte``: ExecuTorch's ``portable`` ones, which every runtime has, or those
    of its backend ``xnnpack`` for a Cortex-A, which the application links. None: ``xnnpack`` where the host core is a Cortex-A, and
    ``portable`` elsewhere and with the converter ``eiq`` (docs/how-to/run-on-a-cpu.md)."""

    cut_by_cost: bool = option(
        True,
        "Leave a partition between operators on the CPU to the CPU where that takes less time.",
        eiq=(False,),
        in_text=False,
    )
    """True leaves a partition of a PyTorch model to the CPU if operators on the CPU are before and behind it and the CPU takes less time by
    the cost model, with the conversions between float and quantized values. Its operators then compute in float. The summary and
    ``explain`` list them."""

    fold_quantize: bool = option(
        False,
        "Write results in the scale of the QUANTIZE behind them: one rounding instead of two, other bytes than the file's.",
        eiq=(),
    )
    """True folds each QUANTIZE of a model that rescales one operator's result into this operator. It then rounds once instead of twice: its result
    is nearer to the float model, and its bytes may differ from those of LiteRT's kernels for the file. The summary and the JSON list what was
    folded (docs/how-to/tflite.md)."""

    threads: int = option(
        1,
        "Threads that share each kernel call, for the modelled times and the choices that depend on them; a run sets its own number.",
        metavar="N",
        read=whole_number,
        check=_check_threads,
        eiq=(),
        in_text=False,
    )
    """The number of threads that the cost model assumes on a processor with several cores. The target is then one such as
    ``cortex-a55-4-threads``. The program does not have the number: the application sets that of a run (docs/runtime.md)."""

    effort: str = option(
        DEFAULT_EFFORT,
        "Effort of the search for a faster schedule in little memory; high takes longer and reports its gain.",
        choices=EFFORTS,
        eiq=(),
    )
    """The effort of the search for a schedule: ``default`` or ``high``."""

    check: bool = option(
        True, "Audit each compiled program byte by byte: every read byte must be the right one.", eiq=(False,)
    )
    """True audits each program byte by byte before it is returned (compiler/emit/audit). Where the audit finds a fault, the next best
    schedule is compiled, and the report has the fault; where all are faulty, the compile ends with CompilerFaultError."""

    without_passes: tuple[str, ...] = option(
        (),
        "Passes that are not applied, such as join,chain; explain --passes lists all.",
        metavar="NAMES",
        read=split_names,
        check=_check_texts,
        eiq=(),
    )
    """The passes over kernel calls that are not applied (docs/how-to/add-a-pass.md). Programs compute the same without a pass, in more time or
    memory."""

    profile: bool = option(False, "Record an event for each kernel call of a run, which takes memory.")
    """True reserves memory for an event of each kernel call of a run."""

    converter: str = option(
        OPEN,
        "Compiler: this project's, NXP's eiq_neutron_sdk, or this project's with matrix products for the NPU's own driver.",
        choices=CONVERTERS,
        in_text=False,
    )
    """The converter of a model's partitions: ``open`` is this project's compiler, ``eiq`` NXP's SDK. ``driver`` compiles for the chip's
    host core, and gives matrix products to the NPU by NXP's driver; the target is then one such as ``imx95-driver`` (docs/converters.md)."""

    converter_flags: tuple[str, ...] = option(
        (),
        "Flags for NXP's eiq_neutron_sdk, such as --minNumOpsPerGraph=2, in one text.",
        metavar="FLAGS",
        read=split_flags,
        check=_check_texts,
        in_text=False,
    )
    """Flags for the converter ``eiq``: fields of its compilationOpts, such as ``--minNumOpsPerGraph=2``."""

    converter_release: str | None = option(
        None,
        "Release of NXP's SDK, such as 3.1, whose published limits decide what its converter is asked for (default: the installed one's); with "
        "driver: the release of the NPU's driver, or the version of its firmware (default: the newest).",
        metavar="RELEASE",
        read=str,
        check=_check_text,
        in_text=False,
    )
    """The release of NXP's SDK, such as ``3.1``: operators beyond its published limits stay on the CPU with the converter ``eiq``. An
    installed SDK of another release is an error. None: the installed SDK's, or the newest that is published. With the converter ``driver`` it
    is the release of driver and firmware that decides the form of jobs, such as ``second`` or ``3.1.1``; None: the one in the chip's file,
    which is the newest."""

    rescale: str = option(
        ON_CPU,
        "Rescale the results of matrix products of the converter driver on the CPU, with LiteRT's bytes, or on the NPU, in less time.",
        choices=RESCALERS,
        eiq=(),
        in_text=False,
    )
    """Where the results of matrix products are rescaled with the converter ``driver``. ``cpu``: the bytes are those of LiteRT. ``npu``: the NPU
    stores results of 1 byte, which takes less time; its rounding is not published, so that bytes may differ (docs/converters.md)."""

    converter_timeout: int = option(
        300,
        "Seconds after which NXP's eiq_neutron_sdk is stopped; what it hangs on goes to the CPU.",
        metavar="SECONDS",
        read=whole_number,
        check=_check_seconds,
        in_text=False,
    )
    """The seconds that one call of the converter ``eiq`` may take. A graph that takes longer counts as refused (docs/converters.md)."""

    def __post_init__(self) -> None:
        if isinstance(self.target, os.PathLike):
            object.__setattr__(self, "target", os.fspath(self.target))
        if self.npu == UNUSED and self.target in targets.NPUS:
            object.__setattr__(self, "target", self.target + targets.HOST_SUFFIX)
        says_more = self.converter == DRIVER or self.converter_release or self.threads != 1
        if says_more and isinstance(self.target, str):
            object.__setattr__(self, "target", self._complete_target(self.target))
        if isinstance(self.sram_budget, Mapping):
            object.__setattr__(self, "sram_budget", tuple(self.sram_budget.items()))
        for name, flag in flags_of(type(self)).items():
            value = getattr(self, name)
            flag.check(value)
            accepted = flag.declared.eiq
            if self.converter == EIQ and accepted is not None and value not in (flag.default, *accepted):
                raise InvalidOptionError(
                    f"{name}: it is {value!r}; NXP's converter has no such option. Leave it out with converter='eiq'."
                )
        if self.rescale == ON_NPU and targets.divided(self.target) is None:
            raise InvalidOptionError(
                "rescale: it is 'npu'; only converter='driver' gives matrix products to the NPU's driver. Leave it out, or set "
                "converter='driver'."
            )
        core = targets.get(self.target).host.core
        if self.cpu in FAMILIES and not core.startswith(FAMILIES[self.cpu]):
            raise InvalidOptionError(
                f"cpu: it is '{self.cpu}', which runs on a {FAMILIES[self.cpu]}; the host core of {self.target} is a {core}. Leave it "
                "out, or set cpu='portable'."
            )
        if self.converter != EIQ and self.converter_flags:
            raise InvalidOptionError(
                f"converter_flags: '{self.converter_flags[0]}' is for NXP's converter. Leave it out, or set "
                "converter='eiq'."
            )

    def _complete_target(self, name: str) -> str:
        """Return the full name of the target: ``name`` with what the other options add to it. With NXP's driver, these are the driver's
        suffix and its release, if one is given. With several threads, it is their number."""
        core = targets.without_threads(name)
        shared = name.removeprefix(core)
        if self.converter == DRIVER and targets.divided(core) is None:
            core += targets.DRIVER_SUFFIX
        if self.converter_release and self.converter != EIQ and targets.divided(core) is not None:
            core = targets.with_release(core, targets.release_named(self.converter_release))
        if self.threads == 1:
            return core + shared
        _check_threads("threads", self.threads)
        return targets.in_threads(core, self.threads)

    @property
    def cpu_kernels(self) -> str:
        """Return which kernels compute the operators outside of all programs: ``cpu``, or a default if ``cpu`` is None. The default is
        ``xnnpack`` if XNNPACK runs on the target's host core and the converter is not ``eiq``. Otherwise it is ``portable``."""
        has_xnnpack = targets.get(self.target).host.core.startswith(FAMILIES[XNNPACK]) and self.converter != EIQ
        return self.cpu or (XNNPACK if has_xnnpack else PORTABLE)

    @property
    def cuts_by_cost(self) -> bool:
        """Return ``cut_by_cost``; False with the converter ``eiq``, whose times are not known."""
        return self.cut_by_cost and self.converter != EIQ

    @property
    def makes_host_calls(self) -> bool:
        """Return whether programs may have kernel calls of the host core. Programs of other converters have none."""
        return self.host_calls and self.converter == OPEN

    @property
    def takes_int16(self) -> bool:
        """Return whether programs that are compiled with these options take int16 activations."""
        return targets.takes_int16(targets.get(self.target), self.makes_host_calls)

    @property
    def place(self) -> str:
        """Return the place of inputs and outputs in a program: ``arena`` where ``io_place`` is None."""
        return self.io_place or ARENA

    def placed(self, default: str) -> Self:
        """Return the options with ``io_place`` set: to ``default`` where it is None."""
        return self if self.io_place is not None else dataclasses.replace(self, io_place=default)

    def to_dict(self) -> dict[str, Any]:
        """Return the options by name, for JSON; ``from_dict`` reads them.

        >>> CompileOptions.from_dict(CompileOptions(profile=True).to_dict()) == CompileOptions(profile=True)
        True
        """
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the options with these values. Raises InvalidOptionError for an unknown name."""
        for name in values.keys() - flags_of(cls).keys():
            raise InvalidOptionError(f"compile options: '{name}' is unknown.{did_you_mean(name, flags_of(cls))}")
        return cls(**{name: _as_tuples(value) for name, value in values.items()})


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def region_bytes(given: int | RegionSizes | None, target: targets.Target) -> tuple[int, ...]:
    """Return the budget of each memory region of the target in bytes.

    ``given`` has the budgets by region name. A region that it does not name gets 0. If ``given`` is a number, it is the total: the
    fastest region gets as much of it as fits, then the next one. None stands for the whole memory.

    Raises InvalidOptionError if the target has less memory than that, or has no region of a given name.
    """
    sizes = {region.name: int(region.size.value * 1024) for region in target.regions}
    if isinstance(given, tuple):
        for name, size in given:
            if name not in sizes:
                raise InvalidOptionError(
                    f"sram_budget: {target.name} has no region '{name}'; it has {', '.join(sizes)}.{did_you_mean(name, sizes)}"
                )
            if size > sizes[name]:
                raise InvalidOptionError(
                    f"sram_budget: it is {-(-size // 1024)} KiB of {name}; {target.name} has {sizes[name] // 1024} KiB. "
                    "Give at most that."
                )
        return tuple(dict(given).get(name, 0) for name in sizes)
    left, found = budget_bytes(given, target), []
    for size in sizes.values():
        found.append(min(left, size))
        left -= found[-1]
    return tuple(found)


def budget_bytes(given: int | RegionSizes | None, target: targets.Target) -> int:
    """Return the budget in bytes; without one, the target's whole SRAM. Raises InvalidOptionError where the target has less."""
    there = int(target.sram.value * 1024)
    if given is None:
        return there
    if isinstance(given, tuple):
        return sum(region_bytes(given, target))
    if given > there:
        raise InvalidOptionError(
            f"sram_budget: it is {-(-given // 1024)} KiB; {target.name} has {there // 1024} KiB of SRAM. Give at most that."
        )
    return given


FLOAT32, INT8, INT16 = "float32", "int8", "int16"
IO_DTYPES = (FLOAT32, INT8, INT16)
"""The types of a compiled PyTorch model's inputs and outputs."""

ACTIVATIONS = (INT8, INT16)
"""The types of quantized activations."""

HISTOGRAM = "histogram"
OBSERVERS = (HISTOGRAM, "minmax", "percentile", "entropy")
"""The observers, which choose the ranges of activations from calibration."""

Progress = Callable[[str, int, int], None]
"""A function that is called with the name of a step, the number of its finished parts, and the number of all."""


def silent(_step: str, _done: int, _total: int) -> None:
    """Ignore the progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizationOptions:
    """The quantization of a PyTorch model. ``keep_float``, ``io_dtype`` and ``activations`` are for a float ``.tflite`` too.

    Raises InvalidOptionError for an unusable value, and for an ``observer`` beside ``train_fn``.

    >>> QuantizationOptions(io_dtype="int8", keep_float=["classifier.*"]).io_dtype
    'int8'
    """

    keep_float: Sequence[object] = ()
    """Modules (names such as ``classifier.*``, or classes) and operators (``aten.softmax.int``) that stay float. Of a float ``.tflite``:
    operators (``SOFTMAX``) and names of output tensors."""

    train_fn: Callable[[Any], None] | None = None
    """A function that trains a model (a GraphModule) with its quantization simulated, in place. The model is in
    training mode; int8 scales come from the values it sees there, and ``calibration`` is not needed. The original model stays as it
    is."""

    io_dtype: str = option(FLOAT32, "Type of inputs and outputs (float models).", choices=IO_DTYPES)
    """The type of inputs and outputs: ``float32``, with quantization on the CPU, or the type of the activations that they become,
    ``int8`` or ``int16``."""

    activations: str = option(
        INT8,
        "Type of quantized activations: int8, or int16 with int8 weights, which is finer and slower (float models).",
        choices=ACTIVATIONS,
    )
    """The type of quantized activations: ``int8``, or ``int16`` with zero point 0. Weights are int8 in either case. int16 is finer,
    takes twice the memory and runs longer."""

    observer: str = option(
        HISTOGRAM, "Observer that chooses the ranges of activations (PyTorch models).", choices=OBSERVERS
    )
    """The observer that chooses the ranges of activations from calibration: ``histogram`` has the smallest squared error,
    ``minmax`` the smallest and the largest value, ``percentile`` all but 0.01 % of the values, ``entropy`` the smallest
    divergence. Training has ranges of its own."""

    channels_last: bool | None = None
    """True: the program takes and returns images with the channels innermost, which saves a transpose at each input and
    output. None: as the example inputs are in memory. ``run`` accepts either."""

    layer_observers: Sequence[tuple[str, str]] = ()
    """Other observers for the results of single modules: pairs of a name, which may have wildcards, and an observer."""

    layer_activations: Sequence[tuple[str, str]] = ()
    """Other types of activations in single modules: pairs of a name, which may have wildcards, and a type. Where two types meet, the
    values are converted."""

    equalize: bool = False
    """True multiplies each channel between two layers by a factor so that the channels have similar ranges, and
    divides the weights of the second layer by it. The float model computes the same."""

    smooth: float | None = None
    """The exponent of SmoothQuant, from 0 to 1, for linear layers: 0.5 divides the difficulty evenly between a layer's inputs and its
    weights. None: inputs as they are."""

    adaptive_rounding: bool = False
    """True rounds each weight up or down so that its layer's result is nearest to the float model's on the calibration data."""

    correct_biases: bool = False
    """True adds to each bias the mean difference that quantization makes on the calibration data."""

    def __post_init__(self) -> None:
        for name, flag in flags_of(type(self)).items():
            flag.check(getattr(self, name))
        if self.train_fn is not None and self.observer != HISTOGRAM:
            raise InvalidOptionError("observer: training has ranges of its own. Leave observer out with train_fn.")
        for name in ("keep_float", "layer_observers", "layer_activations"):
            _check_list(name, getattr(self, name))
        for _, observer in self.layer_observers:
            check_choice("layer_observers", observer, OBSERVERS)
        for _, activations in self.layer_activations:
            check_choice("layer_activations", activations, ACTIVATIONS)
        if self.smooth is not None and not 0.0 <= self.smooth <= 1.0:
            raise InvalidOptionError(f"smooth: it is {self.smooth}; the exponent is from 0 to 1.")

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Return the options of a quantization file (docs/how-to/find-the-layer.md), which ``openneutron accuracy --repair`` writes.

        Raises:
            InvalidOptionError: The file can't be read, or has a wrong entry.
        """
        from openneutron.options.flags import entries_in

        return cls(**entries_in(path))

    def to_file(self) -> dict[str, Any]:
        """Return the entries of a quantization file with these options, for JSON. Options at their defaults are left
        out, and so are those that a file has no entry for, such as ``io_dtype`` and ``train_fn``."""
        from openneutron.options.flags import entries_of

        names = changed(self)
        return entries_of({name: getattr(self, name) for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationOptions:
    """The operators that run on the NPU. All but the first two fields are for PyTorch models only.

    >>> DelegationOptions(operators_not_to_delegate=["aten.relu"]).must_delegate
    True
    """

    operators_not_to_delegate: Sequence[str] = ()
    """Operators (``aten.relu``, ``aten.add.Tensor``), functions (``conv2d (net.py:28)``) and modules
    (``features.3``) of a PyTorch model that stay on the CPU; ``*``, ``?`` and ``[...]`` are wildcards. Of a
    ``.tflite``: operators (``CONV_2D``) and names of output tensors. A name that matches nothing is an error."""

    must_delegate: bool = True
    """True: a model without any operator for the NPU is an error. False: such a model is compiled for the CPU."""

    preserve_ops: Sequence[Any] = ()
    """Operators (OpOverload) to keep whole where they can be delegated, beside those that the lowering rules keep."""

    allow_no_op_partitions: bool = False
    """True delegates partitions that only rename values."""

    use_neutron_for_format_conversion: bool = True
    """True transposes contiguous images at inputs and outputs on the NPU, False in ExecuTorch's runtime."""

    any_runtime: bool = False
    """True permits CPU fallbacks for which ExecuTorch's runtime on this machine has no kernel, for another runtime that
    has one. Otherwise such a program is an error, since it would not load here."""

    def __post_init__(self) -> None:
        _check_list("operators_not_to_delegate", self.operators_not_to_delegate)
        _check_list("preserve_ops", self.preserve_ops)
        # Operators themselves are as good as their names.
        object.__setattr__(self, "operators_not_to_delegate", tuple(map(str, self.operators_not_to_delegate)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOptions:
    """How calibration data, such as a folder of pictures, becomes the inputs of a PyTorch model.

    >>> DataOptions(preprocess="resize=256,crop=224,mean=0.485:0.456:0.406,std=0.229:0.224:0.225").sample_rate is None
    True
    """

    preprocess: str | Callable[[Any], Any] | None = None
    """The steps from a picture or a sound to the model's input, as the text above; or ``file.py:function``, or a function, that takes
    a picture of Pillow, or a sound's values, and returns the input. docs/data.md has the steps."""

    sample_rate: int | None = None
    """The rate in Hz that WAV files are resampled to. None: as they are."""

    calibration_samples: int | None = None
    """The largest number of samples, which are spread evenly over the data. None: all samples."""


BOXES, DECODED, RAW = "boxes", "decoded", "raw"
HEADS = (BOXES, DECODED, RAW)
"""The results of a detector of Ultralytics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadingOptions:
    """Options for loading a model's file, or a model of Ultralytics.

    >>> LoadingOptions(imports=["my_operators"]).trust
    False
    """

    trust: bool = False
    """True permits code in the file to run."""

    imports: Sequence[str] = ()
    """Modules to import first: those that register the file's classes or operators."""

    input_shapes: Mapping[str, Sequence[int]] | None = None
    """The shapes of inputs of a ``.onnx``, ``.keras``, ``.pt`` or ``.tflite`` file by name, for those that the file does not fix; that of
    ``images`` of a model of Ultralytics."""

    head: str = BOXES
    """The results of a detector of Ultralytics: ``boxes`` after non-maximum suppression, ``decoded`` boxes and scores of all anchors, or
    ``raw``, the results of the head's layers. The steps after the raw results are computed in float on the CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """Files that a compile writes beside its result.

    >>> OutputOptions(kernel_selection="net_kernel_selection.c").intermediates_dir is None
    True
    """

    intermediates_dir: str | os.PathLike[str] | None = None
    """A folder for each partition's files, before and after compiling."""

    kernel_selection: str | os.PathLike[str] | None = None
    """A C file (``net_kernel_selection.c``) that registers only the kernels that the model calls, for the linker to drop
    the others; beside it one file for each partition (docs/kernel-selection.md)."""


def changed(options: object) -> list[str]:
    """Return the names of a dataclass's fields that are not at their defaults."""
    assert dataclasses.is_dataclass(options)
    return [item.name for item in dataclasses.fields(options) if getattr(options, item.name) != item.default]


def with_changes(options: CompileOptions, changes: Mapping[str, Any], function: str) -> CompileOptions:
    """Return the options with these changes. Raises TypeError for an unknown name, as a call of ``function`` would."""
    for keyword in changes.keys() - flags_of(type(options)).keys():
        hint = did_you_mean(keyword, flags_of(type(options)))
        raise TypeError(f"{function}() got an unexpected keyword argument '{keyword}'.{hint}")
    return dataclasses.replace(options, **changes)


GROUPS: Mapping[str, type] = {
    "options": CompileOptions,
    "quantization": QuantizationOptions,
    "delegation": DelegationOptions,
    "data": DataOptions,
    "inputs": InputOptions,
    "loading": LoadingOptions,
    "outputs": OutputOptions,
}
"""The parameters whose values are objects with options, and the classes of these objects."""


def suggestion(keyword: str, parameters: Collection[str]) -> str:
    """Return a suggestion for an unknown keyword, as the end of an error message: the options object that has the keyword, or the nearest known
    keyword. It is empty if no known keyword is near.

    >>> suggestion("sram_buget", ["options", "name"])
    ' Did you mean options=CompileOptions(sram_budget=...)?'
    """
    known = {parameter: parameter for parameter in parameters}
    for parameter, group in GROUPS.items():
        if parameter in parameters:
            known |= {item.name: f"{parameter}={group.__name__}({item.name}=...)" for item in dataclasses.fields(group)}
    if keyword in known:
        return f" Pass {known[keyword]}."
    near = difflib.get_close_matches(keyword, known, 1)
    return f" Did you mean {known[near[0]]}?" if near else ""


def as_group(parameter: str, given: Any) -> Any:
    """Return the value of a parameter as its options object. A dict is converted: it has the options by name.

    Raises InvalidOptionError for an unknown option in a dict, and for a value of another type.

    >>> as_group("data", {"sample_rate": 16000}).sample_rate
    16000
    """
    group = GROUPS[parameter]
    if isinstance(given, group):
        return given
    if not isinstance(given, Mapping):
        raise InvalidOptionError(
            f"{parameter}: it is a {type(given).__name__}. Pass openneutron.{group.__name__}(...)."
        )
    known = [item.name for item in dataclasses.fields(group)]
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            hint = f"Did you mean '{near[0]}'?" if near else f"There are {', '.join(known)}."
            raise InvalidOptionError(f"{parameter}: '{name}' is no field of {group.__name__}. {hint}")
    return group(**given)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Request:
    """A model with all arguments of a compile. Each field is an argument of ``openneutron.compile``, which documents it.

    A field for an options object also takes a dict, which maps the names of options to values. Raises as ``as_group`` does.

    >>> Request(model=None, options={"effort": "high"}).options.effort
    'high'
    """

    model: Any
    example_inputs: Any = None
    example_kwargs: Mapping[str, Any] | None = None
    calibration: Any = None
    data: DataOptions = DataOptions()
    options: CompileOptions = CompileOptions()
    quantization: QuantizationOptions = QuantizationOptions()
    delegation: DelegationOptions = DelegationOptions()
    inputs: InputOptions = InputOptions()
    loading: LoadingOptions = LoadingOptions()
    outputs: OutputOptions = OutputOptions()
    name: str = ""
    cache: str | os.PathLike[str] | None = None
    progress: Progress = silent

    def __post_init__(self) -> None:
        for parameter in GROUPS:
            object.__setattr__(self, parameter, as_group(parameter, getattr(self, parameter)))
        name = self.name or ("model" if self.file is None else self.file.name)
        object.__setattr__(self, "name", name)

    @classmethod
    def of_call(cls, function: str, others: Mapping[str, Any], **arguments: Any) -> Self:
        """Return the request of a call of ``function``. Raises TypeError for an unknown keyword among ``others``."""
        known = [item.name for item in dataclasses.fields(cls)][1:]
        for keyword in others.keys() - known:
            hint = suggestion(keyword, known)
            raise TypeError(f"{function}() got an unexpected keyword argument '{keyword}'.{hint}")
        return cls(**arguments, **others)

    @property
    def file(self) -> Path | None:
        """Return the path of the model's file; None for a model in memory."""
        return Path(self.model) if isinstance(self.model, (str, os.PathLike)) else None

    def for_figures(self) -> Self:
        """Return the request of a compile that is made only for its figures: it does not fail where no operator runs on the NPU, or
        where this machine's ExecuTorch runtime lacks a kernel."""
        return dataclasses.replace(
            self, delegation=dataclasses.replace(self.delegation, must_delegate=False, any_runtime=True)
        )
