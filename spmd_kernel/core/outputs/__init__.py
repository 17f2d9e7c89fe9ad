"""Outputs of the ranks, merged: every rank's output travels as the ordinary message of its kind.

What only some ranks said is marked with their label (text) or in its metadata (everything else); no
mark means every rank that ran the cell.
"""

from dataclasses import replace

from .cell import CellOutputs
from .grouped import GroupedOutputs
from .ids import DisplayIds
from .labels import label, parse_label, rank_ranges
from .page import Unfinished
from .policy import MODES, Client, OutputPolicy
from .publish import Publish
from .stream import unmarked

__all__ = [
    "MODES",
    "CellOutputs",
    "Client",
    "DisplayIds",
    "GroupedOutputs",
    "OutputPolicy",
    "Publish",
    "Unfinished",
    "label",
    "outputs_of",
    "parse_label",
    "rank_ranges",
    "unmarked",
]


def outputs_of(
    ranks: tuple[int, ...], world_size: int, display_ids: DisplayIds, policy: OutputPolicy
) -> CellOutputs | GroupedOutputs:
    """The machine for one cell that ``ranks`` run, of more than one.

    A cell of ranks that the view hides altogether is shown: it was written for them.
    """
    if policy.show is not None and not set(ranks).intersection(policy.show):
        policy = replace(policy, show=None)
    outputs = CellOutputs(ranks, world_size, display_ids, policy=policy)
    return GroupedOutputs(outputs) if policy.mode == "grouped" else outputs
