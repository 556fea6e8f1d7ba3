# SPDX-License-Identifier: BSD-3-Clause
"""What ``import openneutron`` gives: models and files compiled with one call, and compiled files opened."""
