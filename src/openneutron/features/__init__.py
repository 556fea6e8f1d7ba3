# SPDX-License-Identifier: BSD-3-Clause
"""What a user does with a model beside compiling it: one folder for each."""
