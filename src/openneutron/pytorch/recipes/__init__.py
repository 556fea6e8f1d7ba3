# SPDX-License-Identifier: BSD-3-Clause
"""Export recipes: importing this package registers backend ``openneutron`` with ``executorch.export``.

recipe = ExportRecipe.get_recipe(OpenNeutronRecipeType.INT8_PTQ, calibration_inputs_fn=lambda: batches)
session = executorch.export.export(model, [example_inputs], recipe)
session.save_to_pte("model")

Recipes of ExecuTorch's NXP backend have the same names here: ``NXPRecipeType`` and ``NeutronRecipeConfig``.
"""

from executorch.export import recipe_registry

from openneutron.pytorch.recipes.nxp_recipe_provider import NeutronRecipeConfig, NXPRecipeProvider
from openneutron.pytorch.recipes.nxp_recipe_types import NXPRecipeType
from openneutron.pytorch.recipes.recipe import OpenNeutronRecipeProvider, OpenNeutronRecipeType, RecipeOptions

__all__ = [
    "NXPRecipeProvider",
    "NXPRecipeType",
    "NeutronRecipeConfig",
    "OpenNeutronRecipeProvider",
    "OpenNeutronRecipeType",
    "RecipeOptions",
]

for _provider in (OpenNeutronRecipeProvider(), NXPRecipeProvider()):
    recipe_registry.register_backend_recipe_provider(_provider)
