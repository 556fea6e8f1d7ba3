# SPDX-License-Identifier: BSD-3-Clause
"""Element types, quantization parameters and tensors, with LiteRT's meaning."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import numpy.typing as npt


class DType(Enum):
    """Element types, named as LiteRT names them; ``value`` is the NumPy name."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    FLOAT64 = "float64"
    INT8 = "int8"
    UINT8 = "uint8"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    UINT32 = "uint32"
    INT64 = "int64"
    BOOL = "bool"
    OPAQUE = "V1"
    """A type of LiteRT that no operator here reads (strings, complex numbers, packed 4-bit integers)."""

    @property
    def numpy(self) -> np.dtype:
        return np.dtype(self.value)

    @property
    def size_bytes(self) -> int:
        return self.numpy.itemsize

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class QuantParams:
    """real = scale * (stored - zero_point), per tensor or per slice along ``axis``.

    Scales are float32 values (held as Python floats); more than one scale needs an axis.
    """

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "scales", tuple(np.asarray(self.scales, np.float32).tolist()))
        object.__setattr__(self, "zero_points", tuple(map(int, self.zero_points)))

    @property
    def per_channel(self) -> bool:
        return self.axis is not None

    @property
    def scale(self) -> float:
        """Return the one scale; asserts that the parameters are per tensor."""
        assert len(self.scales) == 1, "per-channel parameters have no single scale"
        return self.scales[0]

    @property
    def zero_point(self) -> int:
        """Return the one zero point; asserts that the parameters are per tensor."""
        assert len(self.zero_points) == 1, "per-channel parameters have no single zero point"
        return self.zero_points[0]

    def __str__(self) -> str:
        if self.axis is not None:
            return f"scale[{len(self.scales)}] axis={self.axis}"
        return f"scale={self.scale:.6g} zp={self.zero_point}"


def per_tensor(scale: float, zero_point: int) -> QuantParams:
    """Return parameters of a whole tensor."""
    return QuantParams((scale,), (zero_point,))


def per_channel(scales: npt.ArrayLike, axis: int) -> QuantParams:
    """Return symmetric parameters (zero points 0), one scale for each index along ``axis``."""
    flat = tuple(np.asarray(scales, np.float32).reshape(-1).tolist())
    return QuantParams(flat, (0,) * len(flat), axis)


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A value of the graph: int8 activations in NHWC, constants with ``data``.

    ``data`` has exactly ``shape`` and the NumPy type of ``dtype``; None for what is computed at run time.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    quant: QuantParams | None = None
    data: np.ndarray | None = field(default=None, repr=False)

    @property
    def is_constant(self) -> bool:
        return self.data is not None

    @property
    def elements(self) -> int:
        product = 1
        for extent in self.shape:
            product *= extent
        return product

    @property
    def size_bytes(self) -> int:
        return self.elements * self.dtype.size_bytes

    def __str__(self) -> str:
        extents = ",".join(str(extent) for extent in self.shape)
        quant = f" {self.quant}" if self.quant else ""
        return f"{self.dtype}[{extents}]{quant}"

    def verify(self) -> None:
        """Assert that data, shape, type and quantization parameters agree."""
        if self.data is not None:
            assert self.data.shape == self.shape, f"{self.name}: data is {self.data.shape}, shape is {self.shape}"
            assert self.data.dtype == self.dtype.numpy, f"{self.name}: data is {self.data.dtype}, type is {self.dtype}"
        if self.quant is not None and self.quant.axis is not None:
            count = self.shape[self.quant.axis]
            assert len(self.quant.scales) == count, f"{self.name}: {len(self.quant.scales)} scales for {count} channels"


def constant(name: str, data: npt.ArrayLike, quant: QuantParams | None = None) -> Tensor:
    """Return a constant tensor that holds ``data`` as it is (its NumPy type decides the element type)."""
    array = np.ascontiguousarray(data)
    array = array.reshape(np.shape(data))
    return Tensor(name, tuple(array.shape), DType(array.dtype.name), quant, array)
