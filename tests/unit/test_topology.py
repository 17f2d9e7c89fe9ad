"""A rank's environment, variable by variable."""

from __future__ import annotations

from spmd_kernel.core.model import Settings
from spmd_kernel.core.topology import World, rank_environment, report

WORLD = World(size=4, incarnation=2, master_port=29501, jax_port=29502, run_id="kernel-1")


def settings(linux: bool = True, **environ: str) -> Settings:
    return Settings(session="s", environ=environ, linux=linux)


def test_a_rank_has_the_variables_of_torchrun_and_jax() -> None:
    variables, unset = rank_environment(settings(), WORLD, 3, {})
    assert variables == {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "3",
        "LOCAL_WORLD_SIZE": "4",
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
        "ROLE_RANK": "3",
        "ROLE_WORLD_SIZE": "4",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29501",
        "TORCHELASTIC_RUN_ID": "kernel-1",
        "TORCHELASTIC_RESTART_COUNT": "2",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "JAX_COORDINATOR_ADDRESS": "127.0.0.1:29502",
        "JAX_COORDINATOR_BIND_ADDRESS": "127.0.0.1:29502",
        "JAX_PROCESS_ID": "3",
        "JAX_NUM_PROCESSES": "4",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    assert unset == frozenset()


def test_a_world_of_one_is_a_world_but_keeps_its_cores_and_devices() -> None:
    world = World(1, 0, 1, 2, "run")
    variables, _ = rank_environment(settings(), world, 0, {}, gpus=True)
    assert (variables["RANK"], variables["WORLD_SIZE"], variables["JAX_NUM_PROCESSES"]) == (
        "0", "1", "1",
    )  # fmt: skip
    assert not {"OMP_NUM_THREADS", "JAX_LOCAL_DEVICE_IDS"} & variables.keys()


def test_what_the_user_set_before_stays() -> None:
    inherited = settings(OMP_NUM_THREADS="6", TORCH_NCCL_ASYNC_ERROR_HANDLING="3")
    variables, _ = rank_environment(inherited, WORLD, 0, {})
    assert "OMP_NUM_THREADS" not in variables
    assert variables["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "3"


def test_with_gpus_a_rank_has_the_one_of_its_local_rank() -> None:
    assert rank_environment(settings(), WORLD, 2, {}, gpus=True)[0]["JAX_LOCAL_DEVICE_IDS"] == "2"
    assert "JAX_LOCAL_DEVICE_IDS" not in rank_environment(settings(), WORLD, 2, {})[0]


def test_elsewhere_than_on_linux_the_loopback_has_another_name() -> None:
    assert "GLOO_SOCKET_IFNAME" not in rank_environment(settings(linux=False), WORLD, 0, {})[0]


def test_the_job_around_us_is_cleared() -> None:
    inherited = settings(
        SLURM_PROCID="7", SLURM_LOCALID="7", SLURM_NTASKS="64", SLURM_JOB_ID="1", PMI_RANK="7",
        PMIX_RANK="7", PMIX_NAMESPACE="x", OMPI_COMM_WORLD_RANK="7", PMIXED="stays", HOME="/h",
    )  # fmt: skip
    _, unset = rank_environment(inherited, WORLD, 0, {})
    assert unset == {
        "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "PMI_RANK", "PMIX_RANK", "PMIX_NAMESPACE",
        "OMPI_COMM_WORLD_RANK",
    }  # fmt: skip
    assert report(inherited, WORLD, {})[1] == [
        "OMPI_COMM_* (1)", "PMIX_* (2)", "PMI_* (1)", "SLURM_LOCALID", "SLURM_NTASKS",
        "SLURM_PROCID",
    ]  # fmt: skip


def test_the_users_own_variables_win_over_everything() -> None:
    extra = {"OMP_NUM_THREADS": "2", "SLURM_PROCID": "0", "RANK": "9", "LR": "0.1"}
    inherited = settings(SLURM_PROCID="7", SLURM_NTASKS="8")
    variables, unset = rank_environment(inherited, WORLD, 1, extra)
    assert extra.items() <= variables.items()
    assert unset == {"SLURM_NTASKS"}
    assert report(inherited, WORLD, extra) == (
        ["OMP_NUM_THREADS=2", "SLURM_PROCID=0", "RANK=9", "LR=0.1"],
        ["SLURM_NTASKS"],
    )


def test_the_report_tells_what_may_surprise_and_nothing_else() -> None:
    assert report(settings(), WORLD, {}) == (["OMP_NUM_THREADS=1"], [])
    assert report(settings(OMP_NUM_THREADS="4"), WORLD, {}) == ([], [])
    assert report(settings(), World(1, 0, 1, 2, "run"), {}) == ([], [])
    replaced = settings(OMP_NUM_THREADS="4", GLOO_SOCKET_IFNAME="eth0")
    assert report(replaced, WORLD, {}) == (["GLOO_SOCKET_IFNAME=lo"], [])
