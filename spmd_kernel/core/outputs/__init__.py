"""Outputs of the ranks, merged: every rank's output travels as the ordinary message of its kind.

What only some ranks said is marked with their label (text) or in its metadata (everything else); no
mark means every rank that ran the cell.
"""

from .cell import CellOutputs
from .ids import DisplayIds
from .labels import label, parse_label, rank_ranges
from .publish import Publish

__all__ = ["CellOutputs", "DisplayIds", "Publish", "label", "parse_label", "rank_ranges"]
