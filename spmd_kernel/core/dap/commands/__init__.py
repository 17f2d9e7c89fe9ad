"""Commands of the debugger.  One file each, or a few that belong together: a module of this package
with ``COMMANDS`` in it is found by itself.
"""

from __future__ import annotations

import sys

from ...found import offered
from ..base import Command
from ..routing import default

__all__ = ["COMMANDS", "default"]

COMMANDS: dict[str, Command] = {
    command.name: command for command in offered(sys.modules[__name__], "COMMANDS")
}
