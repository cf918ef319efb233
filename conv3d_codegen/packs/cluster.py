# SPDX-License-Identifier: Apache-2.0
"""The workers of a Dask cluster as an executor."""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from conv3d_codegen.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor

CONNECT_SECONDS = 10


@contextmanager
def cluster_executor(address: str | None) -> Iterator[Executor | None]:
    """Connect to the scheduler at an address such as tcp://10.0.0.1:8786; None without one.

    Raises:
        RequestError: Dask is not installed, or nobody answers at the address.
    """
    if address is None:
        yield None
        return
    try:
        distributed = import_module("distributed")
    except ImportError:
        raise RequestError(
            "no-dask", "Dask is not installed; pip install 'conv3d-codegen[dask]' brings it"
        ) from None
    try:
        client = distributed.Client(address, timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise RequestError(
            "no-cluster",
            f"no Dask scheduler at {address}: {error}; accepted: its address, "
            "such as tcp://10.0.0.1:8786",
        ) from None
    with client, client.get_executor() as executor:
        yield executor
