"""A Jupyter kernel that runs every cell on N persistent rank processes at once."""

__version__ = "0.1.0"
