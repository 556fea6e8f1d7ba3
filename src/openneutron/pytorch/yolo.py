# SPDX-License-Identifier: BSD-3-Clause
"""Divide a network of Ultralytics into the part that is quantized, which ends with its raw heads, and the steps from heads to boxes.

A ``.pt`` file of Ultralytics is read as data: nothing in the file is executed. Such a file is a pickle of a dict with a module under
``ema`` or ``model``. torch.load with ``weights_only`` reads it. The classes of PyTorch's and Ultralytics' layers are replaced by guarded
subclasses while it is read: an instance can be made and given its attributes, but the class can't be called, since the constructors of
some layers evaluate text or download files. Everything else that a pickle names, such as losses, paths and training settings, becomes
an object without content.
"""

from __future__ import annotations

import copy
import importlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan

from openneutron.device.third_party import suppressed
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.options import BOXES, HEADS, RAW, LoadingOptions
from openneutron.options.flags import check_choice
from openneutron.pytorch.source.exported_file import SEED, TRUST
from openneutron.pytorch.source.exporting import Staged

CLASS_OFFSET = 7680.0
"""The distance in pixels by which boxes of different classes are moved apart, so that they do not suppress each other. It is that of
Ultralytics' non_max_suppression (``max_wh``)."""

ROTATED_CANDIDATES = 1000
"""The largest number of rotated boxes above the confidence that are compared. Rotated boxes are suppressed by boxes that are suppressed
themselves, so that each candidate takes a step."""


class Suppression(nn.Module):
    """Greedy suppression of decoded boxes, with the result of Ultralytics' ``non_max_suppression``.

    Only boxes with a score above ``confidence`` take part. Each step of a scan takes the box with the highest score
    that is left; of equal scores the first one. It removes the boxes of the same class that overlap this box by more
    than ``iou``. Rotated boxes are also removed by boxes that are removed themselves. Once no box is left, the
    remaining steps do nothing. A step takes memory in proportion to the number of anchors, and no table of all pairs
    of boxes exists.

    The input is a decoded tensor (1, 4 + classes + others, anchors) with boxes (x, y, width, height), and further
    results, which are returned unchanged. The result is a tensor (1, detections, 6 + others): boxes as corners (x1,
    y1, x2, y2), score, class and others, by falling score. Rows after the last box are 0. Rotated boxes stay (x, y,
    width, height), and their angle is the last column.
    """

    def __init__(
        self, classes: int, anchors: int, confidence: float, iou: float, detections: int, is_rotated: bool = False
    ) -> None:
        super().__init__()
        self.classes, self.confidence, self.iou, self.is_rotated = classes, confidence, iou, is_rotated
        self.detections = min(detections, anchors)
        count = min(ROTATED_CANDIDATES, anchors) if is_rotated else self.detections
        self.register_buffer("places", torch.arange(anchors))
        self.register_buffer("steps", torch.arange(count, 0, -1))

    def forward(self, decoded: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        rows = decoded[0].transpose(0, 1)
        box, rest = rows[:, :4], rows[:, 4 + self.classes :]
        score, place = rows[:, 4 : 4 + self.classes].max(1, keepdim=True)
        number = place.float()
        if not self.is_rotated:
            half = box[:, 2:] / 2
            box = torch.cat((box[:, :2] - half, box[:, :2] + half), 1)
        found = torch.cat((box, score, number, rest), 1)
        left = torch.where(score > self.confidence, score, torch.zeros_like(score))[:, 0]
        moved = number * CLASS_OFFSET
        if self.is_rotated:
            apart = torch.cat((box[:, :2] + moved, box[:, 2:], rest[:, -1:]), 1)
            kept, scores = self._rotated(left, apart)
        else:
            kept, scores = self._upright(left, box + moved)
        chosen = found.index_select(0, kept)
        return (torch.where(scores[:, None] > 0, chosen, torch.zeros_like(chosen))[None], *others)

    def _upright(self, left: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the places of the kept boxes, and their scores; 0 for a step without a box."""
        iou = self.iou
        x1, y1, x2, y2 = (boxes[:, side].contiguous() for side in range(4))
        area = (x2 - x1) * (y2 - y1)

        def take(left: Tensor, places: Tensor, *sides: Tensor) -> tuple[Tensor, ...]:
            best = left.argmax(0, keepdim=True)
            x1, y1, x2, y2, area = sides
            first = [side.index_select(0, best) for side in sides]
            width = (torch.minimum(x2, first[2]) - torch.maximum(x1, first[0])).clamp(min=0)
            height = (torch.minimum(y2, first[3]) - torch.maximum(y1, first[1])).clamp(min=0)
            inside = width * height
            over = inside / (first[4] + area - inside) > iou
            gone = torch.logical_or(over, places == best)
            return torch.where(gone, torch.zeros_like(left), left), best, left.index_select(0, best)

        def step(left: Tensor, _number: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            left, best, score = _either(left.max() > 0, take, _nothing, (left, self.places, x1, y1, x2, y2, area))
            return left, (best, score)

        kept, scores = _steps(step, left, self.steps)
        return kept[:, 0], scores[:, 0]

    def _rotated(self, left: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
        """Return as ``_upright`` does. A rotated box is kept if no box of a higher score overlaps it."""
        from ultralytics.utils.metrics import batch_probiou

        iou = self.iou

        def take(left: Tensor, alive: Tensor, places: Tensor, boxes: Tensor) -> tuple[Tensor, ...]:
            best = left.argmax(0, keepdim=True)
            over = batch_probiou(boxes.index_select(0, best), boxes)[0] > iou
            score = left.index_select(0, best) * alive.index_select(0, best)
            zeros = torch.zeros_like(left)
            return (
                torch.where(places == best, zeros, left),
                torch.where(over, zeros, alive),
                best,
                score,
            )

        def rest(left: Tensor, alive: Tensor, _places: Tensor, _boxes: Tensor) -> tuple[Tensor, ...]:
            return left.clone(), alive.clone(), torch.zeros(1, dtype=torch.int64), torch.zeros(1)

        def step(carried: Any, _number: Tensor) -> tuple[Any, tuple[Tensor, Tensor]]:
            left, alive, best, score = _either(
                carried[0].max() > 0, take, rest, (carried[0], carried[1], self.places, boxes)
            )
            return (left, alive), (best, score)

        kept, scores = _steps(step, (left, torch.ones_like(left)), self.steps)
        # The kept boxes are moved to the front, in the order of the steps.
        order = torch.where(scores[:, 0] > 0, self.steps.float(), torch.zeros_like(scores[:, 0]))
        first = order.topk(min(self.detections, len(order))).indices
        return kept[:, 0].index_select(0, first), scores[:, 0].index_select(0, first)


def _nothing(left: Tensor, *_others: Tensor) -> tuple[Tensor, ...]:
    return left.clone(), torch.zeros(1, dtype=torch.int64), torch.zeros(1)


def _steps(step: Any, carried: Any, steps: Tensor) -> tuple[Tensor, Tensor]:
    """Return the results of steps, which are a scan in an exported program and a loop in Python otherwise."""
    if torch.compiler.is_exporting():
        return scan(step, carried, steps)[1]
    results = []
    for number in steps:
        carried, result = step(carried, number)
        results.append(result)
    kept, scores = zip(*results, strict=True)
    return torch.stack(kept), torch.stack(scores)


def _either(condition: Tensor, yes: Any, no: Any, operands: tuple[Tensor, ...]) -> Any:
    """Return the result of one of two functions, which are branches of the program in an export."""
    if torch.compiler.is_exporting():
        return torch.cond(condition, yes, no, operands)
    return (yes if condition else no)(*operands)


LAYERS = re.compile(r"(torch\.nn\.modules|ultralytics\.nn)(\.\w+)*")
"""The modules whose classes a network is made of."""


class _Guarded(type):
    """The metaclass of the guarded subclasses that stand for layers while a file is read. A call of such a class
    raises NeedsTrust. A pickle can make instances without a call."""

    def __call__(cls, *_arguments: Any, **_keywords: Any) -> NoReturn:
        raise NeedsTrust(f"it calls the class {cls.__name__}")


class NeedsTrust(Exception):
    """Raised for a file whose loading may run code that its author chose. The message is the reason."""


class _Unread:
    """An object of the file that no network needs. Its arguments and attributes are dropped."""

    name = ""

    def __init__(self, *_arguments: Any, **_keywords: Any) -> None:
        pass

    def __new__(cls, *_arguments: Any, **_keywords: Any) -> Any:
        return super().__new__(cls)

    def __setstate__(self, state: Any) -> None:
        pass

    def __hash__(self) -> int:
        return id(self)


def read_network(path: Path, trust: bool = False) -> nn.Module:
    """Return the network in a ``.pt`` file of Ultralytics, in float32 and in eval mode.

    Nothing in the file is executed, unless ``trust`` permits it. Raises InvalidModelError where the file has no network, or can only be
    loaded by running code in it.
    """
    try:
        with suppressed():
            found = torch.load(path, map_location="cpu", weights_only=False) if trust else _loaded(path)
    except NeedsTrust as reason:
        raise InvalidModelError(
            f"'{path.name}' is not loaded: {reason}, so that loading it may run code of whoever made it. {TRUST}."
        ) from reason
    except Exception as error:  # pickle, zipfile and torch each have errors of their own
        said = " ".join(str(error).split())[:240].rstrip(".") or type(error).__name__
        raise InvalidModelError(f"'{path.name}' can't be read as a file of Ultralytics: {said}.") from error
    network = (found.get("ema") or found.get("model")) if isinstance(found, dict) else None
    if isinstance(network, _Unread):
        raise InvalidModelError(
            f"'{path.name}' is not loaded: its network is a {network.name}, which is no class of Ultralytics, so that loading it may "
            f"run code of whoever made it. {TRUST}."
        )
    if not isinstance(network, nn.Module):
        raise InvalidModelError(f"'{path.name}' has no network of Ultralytics. Pass the .pt that a training saved.")
    return network.float().eval()


def _loaded(path: Path) -> Any:
    names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    allowed = [(_class_for(name), name) for name in names]
    with torch.serialization.safe_globals(allowed):
        found = torch.load(path, map_location="cpu", weights_only=True)
    for name in ("ema", "model"):
        if isinstance(found, dict) and isinstance(found.get(name), nn.Module):
            _unguard(found[name])
    return found


def _class_for(name: str) -> type:
    """Return the class to read a class of the file as: a guarded layer, or an object without content."""
    module, _, own = name.rpartition(".")
    if LAYERS.fullmatch(module):
        try:
            found = getattr(importlib.import_module(module), own, None)
        except ImportError:
            found = None
        if isinstance(found, type) and issubclass(found, nn.Module):
            return _Guarded(found.__name__, (found,), {"__module__": found.__module__})
    return type("_Unread", (_Unread,), {"name": name})


def _unguard(network: nn.Module) -> None:
    """Give each layer its own class back, and remove its hooks and its attributes without content (``_Unread``).

    Raises NeedsTrust for a layer that is no layer of PyTorch or Ultralytics.
    """
    waiting: list[tuple[str, nn.Module]] = [("", network)]
    while waiting:
        path, layer = waiting.pop()
        for child, module in layer._modules.items():
            place = f"{path}.{child}".lstrip(".")
            if isinstance(module, _Unread):
                raise NeedsTrust(f"its layer '{place}' is a {module.name}, which is no class of Ultralytics")
            if module is not None:
                waiting.append((place, module))
        for name in [name for name, value in vars(layer).items() if isinstance(value, _Unread)]:
            delattr(layer, name)
        for hooks in [value for name, value in vars(layer).items() if name.endswith("_hooks")]:
            hooks.clear()
        if isinstance(type(layer), _Guarded):
            layer.__class__ = type(layer).__bases__[0]


TASKS = ("detect", "segment", "pose", "obb", "classify")
"""The tasks whose networks are read."""

KINDS = ("boxes", "scores", "mask_coefficient", "kpts", "angle")
"""The results of a head, by Ultralytics' names, in the order of a compiled network's raw results."""

CONFIDENCE, IOU, DETECTIONS = 0.25, 0.7, 300
"""The thresholds and the number of detections of Ultralytics' ``predict`` (cfg/default.yaml of 8.4)."""


IMAGES = "images"
"""The name of the input, as in Ultralytics' exports."""

SIZE, SIZES = 640, {"classify": 224, "obb": 1024}
"""The sizes of images in pixels for networks that do not state the size that they were trained with: those of Ultralytics' own ones."""


class _Head(nn.Module):
    """The head without its decoding. It returns its results by kind, and prototypes of masks after them."""

    def __init__(self, head: Any) -> None:
        super().__init__()
        self.head = head
        self.f, self.i, self.type = head.f, head.i, head.type

    def forward(self, features: list[Tensor]) -> tuple[Tensor, ...]:
        head: Any = self.head
        found = head.forward_head(features, **(head.one2one if head.end2end else head.one2many))
        results = [found[kind] for kind in KINDS if kind in found]
        if hasattr(head, "proto"):
            results.append(head.proto(features if type(head.proto).__name__ == "Proto26" else features[0]))
        return tuple(results)


class Decoding(nn.Module):
    """The step from raw heads to boxes and scores, computed by Ultralytics' own code.

    The first result is a tensor (1, 4 + classes + others, anchors) with boxes (x, y, width, height) in pixels, or that of an end-to-end
    head, (1, detections, 6 + others). The prototypes of masks follow, where the network has them.
    """

    def __init__(self, head: Any, kinds: Sequence[str]) -> None:
        super().__init__()
        for name, _ in list(head.named_children()):
            if name != "dfl":
                setattr(head, name, nn.Identity())  # an end-to-end head is known by the absence of its other layers
        self.head, self.kinds = head, tuple(kinds)

    def forward(self, *raw: Tensor) -> tuple[Tensor, ...]:
        head: Any = self.head
        found: dict[str, Any] = dict(zip(self.kinds, raw, strict=False))
        result = head._inference({**found, "feats": [SimpleNamespace(shape=head.shape)]})
        if head.end2end:
            result = head.postprocess(result.permute(0, 2, 1))
        return (result, *raw[len(self.kinds) :])


class Later(nn.Sequential):
    """Modules one after the other; the results of each are the arguments of the next."""

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        for part in self:
            values = part(*values)
        return values


def read_yolo(
    path: Path, trust: bool = False, input_shapes: Mapping[str, Sequence[int]] | None = None, head: str = BOXES
) -> Staged:
    """Return the network in a ``.pt`` file of Ultralytics. The parameters are those of LoadingOptions.

    Raises InvalidModelError for a file that can't be used, InvalidOptionError for an unusable parameter.
    """
    importlib.import_module("ultralytics")
    network = read_network(path, trust)
    return staged(network, path.name, LoadingOptions(input_shapes=input_shapes, head=head))


def staged(model: Any, name: str, loading: LoadingOptions = LoadingOptions()) -> Staged:
    """Return a network of Ultralytics as the part that is quantized and the steps after it.

    Raises InvalidModelError for a task that has no such division, InvalidOptionError for a size that does not fit the network.
    """
    inner = getattr(model, "model", None)  # of a YOLO, or the layers of a network
    network: Any = inner if hasattr(inner, "yaml") else model
    task = str(getattr(network, "task", None) or _task_of(network))
    check_choice("head", loading.head, HEADS)
    if task not in TASKS:
        raise InvalidModelError(f"'{name}' is a network for the task '{task}'; {', '.join(TASKS)} can be compiled.")
    network = copy.deepcopy(network).float().eval()
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    with suppressed():
        network.fuse(verbose=False)
    _name_forwards(network)
    height, width = _size(network, task, name, loading)
    head = network.model[-1]
    generator = torch.Generator().manual_seed(SEED)
    images = torch.rand(1, _channels(network), height, width, generator=generator)
    head.export = True
    with torch.no_grad(), suppressed():
        network(images)  # computes the head's anchors
    metadata = _metadata(network, task, (height, width), loading.head)
    if task == "classify":
        return Staged(network, (images,), None, metadata)
    network.model[-1] = _Head(head)
    with torch.no_grad():
        raw = network(images)
    later: list[nn.Module] = []
    if loading.head != RAW:
        kinds = [kind for kind in KINDS if kind in _kinds(head)]
        later.append(Decoding(copy.deepcopy(head), kinds))
        if loading.head == BOXES and not head.end2end:
            later.append(Suppression(head.nc, raw[0].shape[-1], CONFIDENCE, IOU, DETECTIONS, is_rotated=task == "obb"))
    return Staged(network, (images,), Later(*later) if later else None, metadata, decides=True)


def _name_forwards(network: nn.Module) -> None:
    """Make the fused ``forward`` of each layer a method of its class: torch.export loses the paths of layers with one of their own."""
    for layer in network.modules():
        own = vars(layer).pop("forward", None)
        if own is not None:
            kind = type(layer)
            layer.__class__ = type(kind.__name__, (kind,), {"forward": getattr(kind, own.__name__)})


def _kinds(head: Any) -> tuple[str, ...]:
    others = {"nm": "mask_coefficient", "kpt_shape": "kpts", "ne": "angle"}
    return ("boxes", "scores", *(kind for attribute, kind in others.items() if hasattr(head, attribute)))


def _task_of(network: Any) -> str:
    """Return the task of a network without an attribute ``task``, from its class."""
    return (
        type(network)
        .__name__.removesuffix("Model")
        .replace("ification", "ify")
        .replace("Segmentation", "Segment")
        .replace("Detection", "Detect")
        .lower()
    )


def _size(network: Any, task: str, name: str, loading: LoadingOptions) -> tuple[int, int]:
    """Return the height and width of the images: those that the user asks for, else those of the training, else those
    of Ultralytics' own networks.

    Raises InvalidOptionError for a size that does not fit the network, and if the user states the shape of an input
    that the network does not have.
    """
    given = (loading.input_shapes or {}).get(IMAGES)
    if unknown := [key for key in loading.input_shapes or {} if key != IMAGES]:
        raise InvalidOptionError(f"input_shapes: '{name}' has no input '{unknown[0]}'; its input is {IMAGES}.")
    step = 1 if task == "classify" else int(max(network.stride))
    channels = _channels(network)
    if given is None:
        trained = getattr(network, "args", {})
        size = trained.get("imgsz") if isinstance(trained, dict) else getattr(trained, "imgsz", None)
        given = (1, channels, *(size if isinstance(size, (list, tuple)) else [size or SIZES.get(task, SIZE)] * 2))
    if (
        len(given) != 4
        or tuple(given[:2]) != (1, channels)
        or any(int(side) < 1 or int(side) % step for side in given[2:])
    ):
        said = "x".join(map(str, given))
        raise InvalidOptionError(
            f"input_shapes: {IMAGES} of '{name}' is {said}; it is 1x{channels}xHEIGHTxWIDTH, with sides that are multiples of {step}."
        )
    return int(given[2]), int(given[3])


def _channels(network: Any) -> int:
    """Return the number of channels of the network's images."""
    return int(network.yaml.get("channels", 3))


def _metadata(network: Any, task: str, size: tuple[int, int], results: str) -> dict[str, Any]:
    """Return the metadata of the compiled file, with Ultralytics' keys. ``results`` is one of ``HEADS``: the kind of
    the network's results."""
    head = network.model[-1]
    is_end2end = bool(getattr(head, "end2end", False))
    metadata: dict[str, Any] = {
        "description": "A network of Ultralytics, compiled by OpenNeutron",
        "task": task,
        "names": {str(place): str(label) for place, label in dict(network.names).items()},
        "stride": int(max(network.stride)),
        "imgsz": list(size),
        "channels": _channels(network),
        "batch": 1,
        "end2end": is_end2end and results != RAW,
        "head": results,
        "args": {
            "nms": results == BOXES and not is_end2end and task != "classify",
            "conf": CONFIDENCE,
            "iou": IOU,
            "max_det": DETECTIONS,
        },
    }
    if hasattr(head, "kpt_shape"):
        metadata["kpt_shape"] = list(head.kpt_shape)
    return metadata
