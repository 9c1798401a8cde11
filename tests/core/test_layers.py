"""Layers: which of the five a code speaks of."""

import pytest

from flyball.core.layers import CODES, LAYERS, layer_of


@pytest.mark.parametrize(
    ("code", "layer"),
    [
        ("max_steps", 1),
        ("GraphRecursionError", 1),
        ("GraphRecursionError: Recursion limit of 55 reached", 1),
        ("preflight", 2),
        ("max_rounds", 3),
        ("hard_cap_15_rounds", 3),
        ("consensus", 3),
        ("timeout", 4),
        ("idle_timeout", 4),
        ("cost_budget_exceeded", 5),
        ("going_in_circles", None),
        ("paused", None),
        ("", None),
    ],
)
def test_layer_of(code: str, layer: int | None) -> None:
    """S1-65: which layer fired is known by the code of its reason; what no layer did is none's."""
    assert layer_of(code) == layer


def test_every_layer_has_a_name_and_a_code() -> None:
    """S1-01: five layers, each with something that it can say."""
    assert [*LAYERS] == [1, 2, 3, 4, 5]
    assert {*CODES.values()} == {*LAYERS}
