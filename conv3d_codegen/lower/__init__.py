# SPDX-License-Identifier: Apache-2.0
"""Schedule to program: what each slab loads, multiplies, evicts and stores."""
