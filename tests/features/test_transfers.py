# SPDX-License-Identifier: Apache-2.0
"""Transfers: as few and as long as the layouts allow, and early enough to hide."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from conv3d_codegen.api import EmitOptions, emit, emit_scored, plan
from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.planner.candidates import Pricing
from conv3d_codegen.planner.problem import problems_of
from conv3d_codegen.planner.search import priced
from exactness import assert_exact

if TYPE_CHECKING:
    from conv3d_codegen.api import Kernel

shaped = ConvGeometry.from_shapes


def stores(kernel: Kernel, name: str) -> int:
    """Count the transfers to a result."""
    text = kernel.source.replace("\n", "").replace(" ", "")
    return text.count(f"dma_copy(dst={name}")


def test_neighbouring_taps_of_dw_are_stored_together() -> None:
    """A patch embedding's 64 taps are a few transfers, not one each."""
    geometry = shaped((1, 3, 2, 32, 32), (64, 1, 8, 8), stride=(1, 8, 8), gradients=("dw",))
    assert stores(emit(geometry), "dw") <= 8
    assert_exact(geometry)


def test_large_dx_is_stored_while_the_rest_is_computed() -> None:
    geometry = shaped((1, 128, 16, 32, 32), (128, 3, 1, 1), padding=(1, 0, 0), gradients=("dx",))
    assert stores(emit(geometry), "dx") > 1
    small = shaped((1, 16, 4, 6, 6), (16, 3, 1, 1), padding=(1, 0, 0), gradients=("dx",))
    assert stores(emit(small), "dx") == 1


def test_filters_of_several_dy_blocks_are_loaded_together() -> None:
    geometry = shaped((1, 128, 4, 8, 8), (384, 1, 1, 1), gradients=("dx",))
    text = emit(geometry).source
    assert text.count("src=filters") == 1
    assert_exact(geometry)


def test_dx_comes_last_where_its_filters_take_longer_than_x() -> None:
    """The tensor engine contracts dw while they arrive."""
    many = shaped((1, 256, 2, 6, 6), (256, 3, 3, 3), padding=1)
    kernel = emit(many)
    assert kernel.plan.schedule.dx_last
    assert kernel.source.index("dw_ps_0 =") < kernel.source.index("dx_ps_0 =")
    assert_exact(many)
    few = emit(shaped((1, 16, 8, 28, 28), (32, 1, 1, 1)))
    assert not few.plan.schedule.dx_last


def test_filters_of_later_channels_arrive_while_dx_of_the_first_is_computed() -> None:
    geometry = shaped((1, 896, 36, 36), (128, 3, 3), padding=1)
    kernel = emit(geometry)
    assert kernel.plan.schedule.filters_late
    text = kernel.source
    turned = [text.index(f"w_turned_{block} =") for block in range(3)]
    assert turned[0] < text.index("dx_ps_0 =") < turned[1] < turned[2]
    assert_exact(geometry)


def test_passes_of_dw_load_the_channels_that_they_stream() -> None:
    """Of two passes each reads all of the stationary tensor, and its own half of the channels of the other one."""
    geometry = shaped((1, 256, 3, 8, 8), (256, 3, 3, 3), padding=1, gradients=("dw",))
    scored = next(
        scored
        for scored in priced(geometry, problems_of(geometry), EmitOptions(), 10_000)
        if scored.schedule.wgrad.moving_block == 128 and scored.schedule.wgrad.moving == "wide"
    )
    chains = Pricing(geometry, scored.problem).chains(scored.schedule.wgrad)

    def bytes_read(passes: int) -> int:
        schedule = replace(scored.schedule, woven=False, chains_per_pass=chains // passes)
        return emit_scored(geometry, replace(scored, schedule=schedule)).plan.counts.dma_bytes_in

    assert bytes_read(2) - bytes_read(1) == 2 * math.prod(geometry.dy_shape)


def test_packs_of_groups_load_their_filters_once() -> None:
    """Loaded while the pack before is contracted, and not again when it is their turn."""
    geometry = shaped((1, 384, 60), (384, 8), padding=4, groups=8, gradients=("dx",))
    counts = plan(geometry).counts
    assert counts.dma_bytes_in == 2 * (
        math.prod(geometry.dy_shape) + math.prod(geometry.filter_shape)
    )


def test_lines_move_in_pieces_of_long_runs() -> None:
    """Work starts before all of a line without planes is there, and dx leaves before all of it is done."""
    geometry = shaped((1, 128, 8192), (128, 1), gradients=("dx",))
    kernel = emit(geometry)
    assert stores(kernel, "dy_win_0[0:128,0,0:1,0:1,0:1024]") == 1
    assert stores(kernel, "dy_win_0") == 4
    slabs = 8192 // kernel.plan.schedule.slabs.sizes[3]
    assert stores(kernel, "dx_view") > slabs


def test_loads_run_a_slab_ahead_of_stores() -> None:
    """A DMA queue starts its transfers in their order: a store that waits for its data would hold up a load."""
    geometry = shaped((2, 128, 4, 28, 28), (128, 1, 1, 1), gradients=("dx",))
    kernel = emit(geometry)
    assert kernel.plan.schedule.loads_ahead
    text = kernel.source
    loads = [text.index(f"dst=dy_win_{slab}[") for slab in range(3)]
    stored = [text.index(f"src=dx_out_{slab}[") for slab in range(2)]
    assert loads[1] < stored[0] < loads[2] < stored[1]
    assert_exact(geometry)
