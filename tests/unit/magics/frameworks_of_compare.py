"""`%compare` of what torch, jax, pandas and scipy make; run by `test_compare` in a process of its own.

jax warns of every fork that comes after its import, and that is an error in the other tests.
"""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

from .ranks_that_compare import compare

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
pytestmark = pytest.mark.filterwarnings("ignore:.*(beta|prototype|quantized).*:UserWarning")


def shown(said: str) -> str:
    """On one line, without digests."""
    return re.sub(r"\s+", " ", re.sub(r"[0-9a-f]{12}…", "…", said))


def csr(values: list[float]) -> object:
    return torch.tensor([values, [0.0, 1.0]]).to_sparse_csr()


def module(bias: float, running: float = 0.0) -> object:
    made = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    for parameter in made.parameters():
        torch.nn.init.constant_(parameter, 1.0)
    torch.nn.init.constant_(made[0].bias, bias)
    made[1].running_mean.fill_(running)
    return made


def stepped(rate: float) -> object:
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([parameter], lr=rate)
    parameter.sum().backward()
    optimizer.step()
    return optimizer


@jax.tree_util.register_pytree_node_class
class Tree:
    def __init__(self, weight: object, name: str):
        self.weight, self.name = weight, name

    def tree_flatten(self) -> object:
        return (self.weight,), self.name

    @classmethod
    def tree_unflatten(cls, name: str, leaves: object) -> Tree:
        return cls(*leaves, name)  # type: ignore[misc]


T = torch.tensor
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    DIFFERENT = [
        (T([1.0, 2.0]), T([1.0, 4.0]), "tensor float32 (2,) sha256 … max |difference| 2 at [1]"),
        (T(0.5), T(1.5), "tensor float32 () 0.5 sha256 … rank 1 tensor float32 () 1.5 sha256 … max |difference| 1 "),
        (T([1.0], dtype=torch.bfloat16), T([1.5], dtype=torch.bfloat16), "bfloat16 (1,) 1.0 sha256 … rank 1"),
        (T([1, 2.0], dtype=torch.bfloat16), T([1, 2.5], dtype=torch.bfloat16), "|difference| 0.5 at [1]"),
        (T([1, 2.0]).to(torch.float8_e4m3fn), T([1, 4.0]).to(torch.float8_e4m3fn), "|difference| 2 at [1]"),
        (T([2**62]), T([-(2**62)]), f"tensor int64 (1,) {2**62} sha256 … rank 1 tensor int64 (1,) -{2**62}"),
        (T([True, False]), T([True, True]), "|difference| 1 at [1], 1 of 2 elements differ"),
        (T([1j, 2]), T([1j, 2 + 1j]).conj(), "tensor complex64 (2,) sha256 … max |difference| 2 at [0]"),
        (T([[1.0, 2], [3, 4]]), T([[1.0, 3], [2, 4]]).t().neg().neg(), None),
        (T([[1.0, 2], [3, 4]]), T([[1.0, 2], [3, 4]]).t(), "|difference| 1 at [0, 1], 2 of 4"),
        (T([1.0]), T([1.0], dtype=torch.float64), "float64 (1,) 1.0 sha256 … "),
        (T([1.0]), np.array([1.0], "f4"), "rank 1 ndarray float32 (1,)"),
        (torch.ones(2, device="meta"), torch.ones(3, device="meta"), "torch.float32 (3,) on meta"),
        (torch.eye(2).to_sparse(), (2 * torch.eye(2)).to_sparse(), "1 of 3 leaves differs on ranks 0-1: Tensor .values()"),
        (csr([1, 0]), csr([3, 0]), ".values() rank 0 tensor float32 (2,) sha256 …"),
        (csr([1, 0]), csr([0, 1]), ".col_indices()"),
        (torch.nested.nested_tensor([T([1.0])]), torch.nested.nested_tensor([T([3.0])]), "|difference| 2 at [0]"),
        (module(1), module(2), "1 of 7 leaves differs on ranks 0-1: Sequential 0.bias rank 0"),
        (module(1), module(1, 0.5), "1.running_mean rank 0"),
        ({"m": module(1)}, {"m": module(2)}, "['m'].0.bias rank 0"),
        (module(1).state_dict(), module(2).state_dict(), "['0.bias'] rank 0"),
        (stepped(0.1), stepped(0.2), ".state_dict()['param_groups'][0]['lr'] rank 0 float 0.1 rank 1 float 0.2"),
        (jax.numpy.ones(3), jax.numpy.zeros(3), "jax float32 (3,) sha256 … max |difference| 1 at [0]"),
        (jax.numpy.ones(2, "bfloat16"), jax.numpy.ones(2, "bfloat16") * 3, "jax bfloat16 (2,) sha256 … max |difference| 2 at [0]"),
        (jax.random.key(0), jax.random.key(1), ".key_data"),
        ({"p": Tree(jax.numpy.ones(1), "a")}, {"p": Tree(jax.numpy.zeros(1), "a")}, "['p']"),
    ]  # fmt: skip


@pytest.mark.parametrize(("base", "mine", "text"), DIFFERENT)
def test_difference(base: object, mine: object, text: str | None) -> None:
    assert compare(base, base).startswith("equal on 2 ranks: ")
    said = shown(compare(base, mine))
    if text is None:
        assert said.startswith("equal")
    else:
        assert said.startswith(("differs", "1 of", "2 of", "3 of")) and text in said


def test_a_pytree_is_more_than_its_repr() -> None:
    one, two = Tree(jax.numpy.ones(1), "a"), Tree(jax.numpy.ones(1), "a")
    assert "compared by repr" not in compare(one, two)
    assert compare(one, two).startswith("equal")


def test_what_cannot_be_read_is_compared_by_what_it_is() -> None:
    gone = jax.numpy.ones(3)
    gone.delete()
    assert "compared by repr" in compare(gone, gone)


def test_quantized() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, two = (
            torch.quantize_per_tensor(torch.ones(2), scale, 0, torch.qint8) for scale in (0.1, 0.2)
        )
    assert compare(one, one).startswith("equal")
    assert ".int_repr()" in compare(one, two)


def test_data_frames_by_column() -> None:
    pandas = pytest.importorskip("pandas")
    one = pandas.DataFrame({"a": [1, 2], "b": ["x", "y"], "c": [0.5, None]})
    two = one.copy()
    two.loc[1, "a"] = 5
    assert compare(one, one.copy()).startswith("equal on 2 ranks: DataFrame, 5 leaves")
    said = shown(compare(one, two))
    assert said.startswith(
        "1 of 5 leaves differs on ranks 0-1: DataFrame (some leaves compared by repr)"
    )
    assert "['a'] rank 0 ndarray int64 (2,) sha256 … rank 1" in said
    assert "max |difference| 3 at [1], 1 of 2 elements differ" in said
    assert "['b']" in compare(one, one.assign(b=["x", "z"]))
    assert ".index" in compare(one["a"], one["a"].set_axis([3, 4]))
    assert ".columns" in compare(one, one.rename(columns={"a": "d"}))


def test_sparse_matrices() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    assert ".data" in compare(sparse.eye(3), sparse.eye(3) * 2)
    assert compare(sparse.eye(3).tocsc(), sparse.eye(3).tocsr()).startswith("equal")
