# SPDX-License-Identifier: Apache-2.0
"""Problem to schedule: index maths between blocks, prices, search."""
