"""What a rank's environment says about the world: torchrun's variables and JAX's.

Pure: everything comes from `Settings` and `World`.  The names and their meaning are torchrun's
(``torch.distributed.run``, "Environment Variables") and those of ``jax.distributed.initialize``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .model import Rank, Settings

LOOPBACK = "127.0.0.1"

# They describe the job around us; read by a rank, they would name the wrong world.
SCRUBBED = frozenset({"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"})
SCRUBBED_PREFIXES = ("PMI_", "PMIX_", "OMPI_COMM_")
SHARED = frozenset(  # one value for all ranks of a world
    [
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "ROLE_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCHELASTIC_RESTART_COUNT",
        "JAX_COORDINATOR_ADDRESS",
        "JAX_COORDINATOR_BIND_ADDRESS",
        "JAX_NUM_PROCESSES",
    ]
)


@dataclass(frozen=True, slots=True)
class World:
    """One incarnation of the group: it ends when all its ranks are replaced."""

    size: int
    incarnation: int  # how often the group was started before
    master_port: int  # torch's store; a new one per incarnation, or the rendezvous can hang
    jax_port: int  # the JAX coordinator's; never `master_port`
    run_id: str  # the same for the kernel's whole life


def world_of(settings: Settings, size: int, incarnation: int) -> World:
    """The next world; one of the port pairs that the kernel holds, in turn."""
    ports = settings.ports or (29500, 29501)
    pair = 2 * (incarnation % (len(ports) // 2))
    return World(size, incarnation, ports[pair], ports[pair + 1], settings.session)


@dataclass(frozen=True, slots=True)
class Environments:
    """What one world puts into its ranks' environments; `rank_environment` for all of them."""

    settings: Settings
    world: World
    extra: Mapping[str, str]  # the user's
    gpus: bool = False

    def of(self, rank: Rank) -> tuple[dict[str, str], frozenset[str]]:
        return rank_environment(self.settings, self.world, rank, self.extra, gpus=self.gpus)

    def change(self, rank: Rank, before: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
        """What a live rank that got ``before`` is to set, and to unset.

        What all ranks must agree on always; the rest only where it differs, for the user may have
        given it another value.
        """
        after, _ = self.of(rank)
        told = {k: v for k, v in after.items() if k in SHARED or before.get(k) != v}
        return told, sorted(before.keys() - after.keys())

    def report(self) -> tuple[list[str], list[str]]:
        return report(self.settings, self.world, self.extra)


def rank_environment(
    settings: Settings, world: World, rank: Rank, extra: Mapping[str, str], *, gpus: bool = False
) -> tuple[dict[str, str], frozenset[str]]:
    """Variables to set and variables to unset, on top of ``settings.environ``.

    ``extra`` is the user's (``--env K=V``) and wins over everything.  ``gpus``: each rank gets the
    device of its local rank.
    """
    variables = {
        **_torchrun(world, rank),
        **_torchelastic(settings, world),
        **_jax(world, rank, gpus),
        **_defaults(settings, world),
        **extra,
    }
    return variables, frozenset(_scrubbed(settings.environ)) - variables.keys()


def common_environment(settings: Settings, size: int, extra: Mapping[str, str]) -> dict[str, str]:
    """The variables that are the same on all ranks, and in the next world too."""
    return {**_defaults(settings, World(size, 0, 0, 0, "")), **extra}


def report(
    settings: Settings, world: World, extra: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """What a user would want to know of `rank_environment`: words for "set", words for "cleared".

    torchrun's and JAX's own variables are the point of a rank and not worth a word.
    """
    defaults = {
        name: value
        for name, value in _defaults(settings, world).items()
        if name == "OMP_NUM_THREADS" or settings.environ.get(name, value) != value
    }
    told = [f"{name}={value}" for name, value in {**defaults, **extra}.items()]
    return told, _folded([name for name in _scrubbed(settings.environ) if name not in extra])


def _torchrun(world: World, rank: Rank) -> dict[str, str]:
    number, size = str(rank), str(world.size)
    return {
        "RANK": number,
        "WORLD_SIZE": size,
        "LOCAL_RANK": number,
        "LOCAL_WORLD_SIZE": size,
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
        "ROLE_RANK": number,
        "ROLE_WORLD_SIZE": size,
        "MASTER_ADDR": LOOPBACK,
        "MASTER_PORT": str(world.master_port),
    }


def _torchelastic(settings: Settings, world: World) -> dict[str, str]:
    handling = settings.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    return {
        "TORCHELASTIC_RUN_ID": world.run_id,
        "TORCHELASTIC_RESTART_COUNT": str(world.incarnation),
        "TORCHELASTIC_MAX_RESTARTS": "0",
        # There is no agent whose store could be used: rank 0 hosts it, on MASTER_PORT.
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": handling,
    }


def _jax(world: World, rank: Rank, gpus: bool) -> dict[str, str]:
    address = f"{LOOPBACK}:{world.jax_port}"
    variables = {
        "JAX_COORDINATOR_ADDRESS": address,
        "JAX_COORDINATOR_BIND_ADDRESS": address,  # its default is every interface
        "JAX_PROCESS_ID": str(rank),
        "JAX_NUM_PROCESSES": str(world.size),
    }
    if gpus and world.size > 1:  # a world of one keeps all the devices it sees
        variables["JAX_LOCAL_DEVICE_IDS"] = str(rank)
    return variables


def _defaults(settings: Settings, world: World) -> dict[str, str]:
    """What is not the world's shape, but makes N processes on one machine behave."""
    variables = {}
    if world.size > 1 and "OMP_NUM_THREADS" not in settings.environ:
        variables["OMP_NUM_THREADS"] = "1"  # as torchrun: N ranks times all cores is slower
    if settings.linux:
        variables["GLOO_SOCKET_IFNAME"] = "lo"  # else gloo listens where the host name leads
    return variables


def _scrubbed(environ: Mapping[str, str]) -> list[str]:
    return [name for name in environ if name in SCRUBBED or name.startswith(SCRUBBED_PREFIXES)]


def _folded(names: list[str]) -> list[str]:
    """Names as they are, except that those of one family are one word: ``PMIX_* (7)``."""
    words: dict[str, int] = {}
    for name in sorted(names):
        family = next((prefix for prefix in SCRUBBED_PREFIXES if name.startswith(prefix)), "")
        word = f"{family}*" if family else name
        words[word] = words.get(word, 0) + 1
    return [f"{word} ({count})" if word.endswith("*") else word for word, count in words.items()]
