"""How magics are found, completed and explained."""

from __future__ import annotations

import pytest

from spmd_kernel.core.magics import MAGICS, completions, help_for


def test_each_is_found_under_the_token_that_users_write():
    assert {"%processes", "%rank", "%%rank", "%ranks"} <= set(MAGICS)
    assert all(token == magic.token for token, magic in MAGICS.items())


@pytest.mark.parametrize("token", MAGICS)
def test_each_is_documented(token):
    magic = MAGICS[token]
    assert magic.help.startswith(token)
    assert magic.summary
    assert all(option.name in magic.help for option in magic.options)
    assert all(len(line) <= 100 for line in magic.help.splitlines())


@pytest.mark.parametrize(
    ("name", "start"),
    [("%rank", "%rank SPEC EXPR"), ("%%rank", "%%rank SPEC\n"), ("%%ranks", None), ("rank", None)],
)
def test_help_for(name, start):
    text = help_for(name)
    assert text is None if start is None else text.startswith(start)


def test_no_help_for_what_is_not_ours():
    assert help_for("%time") is None
    assert help_for("processes") is None
    assert help_for("") is None


@pytest.mark.parametrize(
    ("prefix", "found"),
    [
        ("%pro", ["%processes"]),
        ("  %pro", ["%processes"]),
        ("%ra", ["%%rank", "%rank", "%ranks"]),
        ("%%ra", ["%%rank"]),
        ("%ranks", ["%ranks"]),
        ("%", sorted(MAGICS)),
        ("%tim", ["%%timeout", "%timing"]),
        ("pro", []),
        ("", []),
        ("x = ", []),
        ("%processes a", ["auto"]),
        ("%processes --f", ["--fresh"]),
        ("%processes 4 a", []),
        ("%processes 4 --on", ["--on-error", "--on-error=wait", "--on-error=stop"]),
        ("%processes 4 --on-error ", ["wait", "stop"]),
        ("%processes 4 --on-error s", ["stop"]),
        ("%processes 4 --on-error=w", ["--on-error=wait"]),
        ("%processes 4 --env ", []),
        ("%processes 4 --he", ["--help"]),
        ("%%rank a", ["all"]),
        ("%rank 0 a", []),
        ("%%timeout 5 --", ["--on", "--help"]),
        ("%time --f", []),
        ("%time %pro", []),
    ],
)
def test_completions(prefix, found):
    assert sorted(completions(prefix)) == sorted(found)
