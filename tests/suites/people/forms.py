# SPDX-License-Identifier: BSD-3-Clause
"""Models as they come: exported, in train mode, with parametrizations, with other calibration data."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export
from torch.nn.utils import parametrizations, prune, weight_norm

from tests.suites.people.case import Call, case
from tests.suites.people.vision import conv_norm, image, normal

forms = partial(case, kind="forms")


def small(train: bool = False) -> nn.Module:
    """Return a convolution with batch normalization and a linear layer."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(800, 4)
    )
    return model.train() if train else model.eval()


def exported(model: nn.Module, **fields: Any) -> ExportedProgram:
    return export(model, (torch.randn(1, 3, 12, 12),), **fields)


def pruned() -> nn.Module:
    layer = nn.Conv2d(3, 8, 3)
    prune.l1_unstructured(layer, "weight", 0.5)
    return nn.Sequential(layer, nn.BatchNorm2d(8), nn.ReLU())


class WithRefinement(nn.Module):
    """A model with an attribute that is no module, default arguments and a branch on a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.scale, self.refine = nn.ModuleList(nn.Linear(8, 8) for _ in range(3)), 0.5, True

    def forward(self, x: Tensor, gain: float = 2.0) -> Tensor:
        for layer in self.layers:
            x = x + self.scale * layer(x).relu()
        return x * gain if self.refine else x


class FromScratch(nn.Module):
    """A convolution and a normalization with parameters of their own, written with functions."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.g, self.b = (
            nn.Parameter(torch.randn(8, 3, 3, 3) * 0.2),
            nn.Parameter(torch.ones(8)),
            nn.Parameter(torch.zeros(8)),
        )
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("var", torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.conv2d(x, self.w)
        return torch.nn.functional.batch_norm(y, self.mean, self.var, self.g, self.b).relu()


class Standardized(nn.Conv2d):
    """A convolution whose weights are standardized in each forward pass."""

    def forward(self, x: Tensor) -> Tensor:
        w = self.weight
        w = (w - w.mean((1, 2, 3), keepdim=True)) / (w.std((1, 2, 3), keepdim=True) + 1e-5)
        return self._conv_forward(x, w, self.bias)


class SharedLayer(nn.Module):
    """One layer that runs three times."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = self.layer(x).relu()
        return x


class TiedWeights(nn.Module):
    """An autoencoder whose decoder has the weights of the encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(8, 16) * 0.3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(torch.nn.functional.linear(x, self.w).relu(), self.w.t())


picture = normal(1, 3, 12, 12)
forms("exported", lambda: exported(small()), picture)
forms("exported_strict", lambda: exported(small(), strict=True), picture)
forms(
    "exported_in_train_mode",
    lambda: exported(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Dropout(0.0), nn.Conv2d(8, 4, 3)).train()),
    picture,
)
forms("exported_and_decomposed", lambda: exported(small()).run_decompositions(), picture)
forms(
    "exported_dynamic_batch",
    lambda: export(small(), (torch.randn(2, 3, 12, 12),), dynamic_shapes=({0: Dim("n", min=1, max=8)},)),
    normal(2, 3, 12, 12),
)
forms(
    "exported_dynamic_height",
    lambda: export(
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval(),
        (torch.randn(1, 3, 12, 12),),
        dynamic_shapes=({2: Dim("h", min=4, max=64)},),
    ),
    picture,
)
forms("weight_norm", lambda: nn.Sequential(weight_norm(nn.Conv2d(3, 8, 3)), nn.BatchNorm2d(8), nn.ReLU()), picture)
forms(
    "parametrized_weight_norm",
    lambda: nn.Sequential(parametrizations.weight_norm(nn.Conv2d(3, 8, 3)), nn.BatchNorm2d(8), nn.ReLU()),
    picture,
)
forms("spectral_norm", lambda: nn.Sequential(parametrizations.spectral_norm(nn.Conv2d(3, 8, 3)), nn.ReLU()), picture)
forms(
    "orthogonal_linear",
    lambda: nn.Sequential(nn.Flatten(), parametrizations.orthogonal(nn.Linear(16, 16))),
    normal(1, 16),
)
forms("pruned", pruned, picture)
forms("standardized_weights", lambda: nn.Sequential(Standardized(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU()), picture)
forms("written_from_scratch", FromScratch, picture)
forms("attributes_and_defaults", WithRefinement, normal(1, 8))
forms("one_layer_three_times", SharedLayer, normal(1, 4, 8, 8))
forms("tied_weights", TiedWeights, normal(1, 16))
forms(
    "sequential_of_copies",
    lambda: nn.Sequential(*(copy.deepcopy(layer) for layer in [nn.Linear(8, 8)] * 3)),
    normal(1, 8),
)
forms("identity_and_dropout_alone", lambda: nn.Sequential(nn.Identity(), nn.Dropout(), nn.Linear(8, 4)), normal(1, 8))
forms(
    "module_dict_and_list",
    lambda: Call(
        lambda s, x: s.m["b"](s.m["a"](x).relu()), m=nn.ModuleDict({"a": nn.Linear(8, 8), "b": nn.Linear(8, 4)})
    ),
    normal(1, 8),
)
forms("in_place_operators", lambda: Call(lambda s, x: s.l(x).relu_().mul_(2).add_(1), l=nn.Linear(8, 8)), normal(1, 8))
forms(
    "slice_assignment",
    lambda: Call(
        lambda s, x: s.zeroed(s.l(x)), l=nn.Linear(8, 8), zeroed=lambda y: [y := y.clone(), y[:, :2].zero_()][0]
    ),
    normal(1, 8),
)
forms(
    "list_of_results_stacked",
    lambda: Call(
        lambda s, x: torch.stack([layer(x) for layer in s.l], 1), l=nn.ModuleList(nn.Linear(8, 4) for _ in range(3))
    ),
    normal(1, 8),
)
forms(
    "shape_arithmetic",
    lambda: Call(lambda s, x: s.l(x.reshape(x.shape[0], x.size(1) * x.shape[2] // 2, -1)), l=nn.Linear(2, 4)),
    normal(1, 4, 6),
)
forms(
    "squeezed_and_unsqueezed",
    lambda: Call(lambda s, x: s.l(x.squeeze(1).unsqueeze(0)).squeeze(), l=nn.Linear(8, 4)),
    normal(1, 1, 8),
)
forms(
    "scalar_result",
    lambda: Call(lambda s, x: s.l(x).sum(), l=nn.Linear(8, 4)),
    normal(1, 8),
    bar=20,
    reason="a sum of values of either sign",
)
forms("no_batch_axis", lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)), normal(8))
forms("image_without_batch", lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), normal(3, 12, 12))
forms(
    "half_of_the_model_frozen",
    lambda: nn.Sequential(conv_norm(3, 8).requires_grad_(False), nn.Flatten(), nn.Linear(2048, 4)),
    image(),
)
forms(
    "not_finite_weight",
    lambda: (lambda m: (m[0].weight.data[0, 0].fill_(float("nan")), m)[1])(nn.Sequential(nn.Linear(8, 8), nn.ReLU())),
    normal(1, 8),
    refused=("0.weight",),
)
forms("not_finite_sample", lambda: nn.Linear(8, 4), lambda: torch.full((1, 8), float("inf")), refused=("sample",))
forms("wrong_width", lambda: nn.Sequential(nn.Linear(8, 8), nn.Linear(9, 4)), normal(1, 8), refused=("Linear",))
