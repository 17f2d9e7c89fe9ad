"""Lets ``jax.distributed.initialize()`` without arguments find the world in the environment.

JAX (0.10) reads JAX_COORDINATOR_ADDRESS by itself, but not how many processes there are nor which
one it is in: those it asks of a "cluster environment".  Executed by path in a rank; must not need
our package, nor import jax before the user does.
"""

from __future__ import annotations

import os
from typing import Any

REQUIRED = ("JAX_COORDINATOR_ADDRESS", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES")


def register(clusters: Any) -> None:
    """Put ours first among the environments of the module ``jax._src.clusters``."""

    class SpmdKernelCluster(clusters.ClusterEnv):  # type: ignore[misc]
        name = "spmd_kernel"

        @classmethod
        def is_env_present(cls) -> bool:
            return all(os.environ.get(variable) for variable in REQUIRED)

        @classmethod
        def get_coordinator_address(
            cls, timeout_secs: Any = None, override_coordinator_port: Any = None
        ) -> str:
            address = os.environ["JAX_COORDINATOR_ADDRESS"]
            if override_coordinator_port is None:
                return address
            return f"{address.rsplit(':', 1)[0]}:{override_coordinator_port}"

        @classmethod
        def get_process_count(cls) -> int:
            return int(os.environ["JAX_NUM_PROCESSES"])

        @classmethod
        def get_process_id(cls) -> int:
            return int(os.environ["JAX_PROCESS_ID"])

        @classmethod
        def get_local_process_id(cls) -> int | None:
            device = os.environ.get("JAX_LOCAL_DEVICE_IDS", "")
            return int(device) if device.isdigit() else None  # None: all devices

    # Subclassing appended it, but Slurm or MPI around us would be found before.
    types = clusters.ClusterEnv._cluster_types
    types.remove(SpmdKernelCluster)
    types.insert(0, SpmdKernelCluster)
