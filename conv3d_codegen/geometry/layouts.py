# SPDX-License-Identifier: Apache-2.0
"""Orders of tensor axes: names, aliases for lower ranks, and shapes.

An activation layout is a string over N C D H W; a filter layout one over D H W C N (where N is
the output channel) or O I D H W. Rank 2 has no D, rank 1 has neither D nor H and may call W "L".
"""

from __future__ import annotations

from conv3d_codegen.errors import UnknownFilterLayout, UnknownLayout

ACTIVATION_LAYOUTS = ("NCDHW", "NDHWC")
FILTER_LAYOUTS = ("DHWCN", "OIDHW", "ODHWI")

SPATIAL = "DHW"


def at_rank(layout: str, rank: int) -> str:
    """Return the layout without the axes that a problem of this rank lacks."""
    missing = SPATIAL[: len(SPATIAL) - rank]
    return "".join(letter for letter in layout if letter not in missing)


def _resolve(name: str, rank: int, layouts: tuple[str, ...]) -> str | None:
    """Return the canonical layout that `name` means at this rank, if any."""
    spelled = name.upper()
    for layout in layouts:
        short = at_rank(layout, rank)
        if spelled in {layout, short, short.replace("W", "L") if rank == 1 else short}:
            return layout
    return None


def activation_layout(name: str, rank: int) -> str:
    """Return the canonical activation layout for a name such as NDHWC, or NHWC at rank 2."""
    layout = _resolve(name, rank, ACTIVATION_LAYOUTS)
    if layout is None:
        raise UnknownLayout(
            f"layout {name}",
            f"not an activation layout of rank {rank}",
            _accepted(rank, ACTIVATION_LAYOUTS),
        )
    return layout


def filter_layout(name: str, rank: int) -> str:
    """Return the canonical filter layout for a name such as OIDHW, or OIHW at rank 2."""
    layout = _resolve(name, rank, FILTER_LAYOUTS)
    if layout is None:
        raise UnknownFilterLayout(
            f"filter layout {name}",
            f"not a filter layout of rank {rank}",
            _accepted(rank, FILTER_LAYOUTS),
        )
    return layout


def _accepted(rank: int, layouts: tuple[str, ...]) -> str:
    return ", ".join(dict.fromkeys((*(at_rank(layout, rank) for layout in layouts), *layouts)))


def activation_shape(
    layout: str, rank: int, batch: int, channels: int, size: tuple[int, int, int]
) -> tuple[int, ...]:
    """Return the shape of an activation at the user's rank."""
    extents = {"N": batch, "C": channels, **dict(zip(SPATIAL, size, strict=True))}
    return tuple(extents[letter] for letter in at_rank(layout, rank))


def filter_shape(
    layout: str, rank: int, outer: int, inner: int, kernel: tuple[int, int, int]
) -> tuple[int, ...]:
    """Return the filters' shape at the user's rank; `outer` is the axis O, or N in DHWCN."""
    extents = {"O": outer, "N": outer, "I": inner, "C": inner}
    extents.update(zip(SPATIAL, kernel, strict=True))
    return tuple(extents[letter] for letter in at_rank(layout, rank))
