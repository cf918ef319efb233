# SPDX-License-Identifier: Apache-2.0
"""Program and plan to source text."""
