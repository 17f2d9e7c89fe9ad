"""Code that gives a rank the count and the ``In`` which the notebook shows.

A rank that started late, or was restarted, has run fewer cells than the notebook counts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

# `input_hist_parsed` is the list that users see as `In`; IPython appends to it whatever the count
# is, so that it must be exactly `count` long before the next cell. Ours is run in a namespace of
# its own: nothing of it is left in the user's.
_PROGRAM = """\
try:
    from IPython import get_ipython
except ImportError:
    get_ipython = lambda: None
shell = get_ipython()
if shell is not None:
    history = shell.history_manager
    for have in (history.input_hist_parsed, history.input_hist_raw):
        del have[count:]
        have.extend(inputs[len(have) - 1 : count - 1])
        have.extend([""] * (count - len(have)))
    shell.execution_count = count
"""


def padding_code(inputs: Sequence[str], count: int) -> str:
    """Code for a silent execute: the next cell gets the number ``count`` (from 1).

    ``inputs[k - 1]`` is the text of cell ``k``; what the rank has itself stays, what nobody has
    becomes ``""``.  Does nothing in a Python kernel that is not IPython's.
    """
    texts = json.dumps(list(inputs[: count - 1]))  # one literal: cheap to tokenise at any count
    values = f'{{"inputs": __import__("json").loads({texts!r}), "count": {count:d}}}'
    return f"exec({_PROGRAM!r}, {values})"
