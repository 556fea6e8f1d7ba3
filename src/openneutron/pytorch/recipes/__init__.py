# SPDX-License-Identifier: BSD-3-Clause
"""Export recipes: importing this package registers backend ``openneutron`` with ``executorch.export``.

recipe = ExportRecipe.get_recipe(OpenNeutronRecipeType.INT8_PTQ, calibration_inputs_fn=lambda: batches)
session = executorch.export.export(model, [example_inputs], recipe)
session.save_to_pte("model")
"""

from __future__ import annotations

from executorch.export import recipe_registry

from openneutron.pytorch.recipes.recipe_provider import OpenNeutronRecipeProvider, RecipeOptions
from openneutron.pytorch.recipes.recipe_types import OpenNeutronRecipeType

recipe_registry.register_backend_recipe_provider(OpenNeutronRecipeProvider())

__all__ = ["OpenNeutronRecipeProvider", "OpenNeutronRecipeType", "RecipeOptions"]
