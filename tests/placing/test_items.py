"""What is placed: units that belong together, and what one host does for all."""

import random

import pytest

from flyball.config.alerts import Alerts, Ntfy
from flyball.config.components import clash, components
from flyball.config.plan import HostPlan, Plan
from flyball.config.units import Group, Strategy, Unit
from flyball.placing.items import FREE, LISTENED_MAX, VOICE, Item, items, labelled, listened, pinned_to


def unit(name: str, *after: str, host: str = "", **labels: str) -> Unit:
    return Unit(name=name, command=("true",), after=after, host=host, host_labels=labels)


def group(name: str, *units: str) -> Group:
    return Group(name, Strategy.ALL_FOR_ONE, units)


@pytest.mark.parametrize(
    ("units", "groups", "together"),
    [
        ([unit("a"), unit("b")], [], {"a": ("a",), "b": ("b",)}),
        ([unit("a"), unit("b", "a")], [], {"a": ("a", "b")}),
        ([unit("b"), unit("a", "b")], [], {"b": ("b", "a")}),
        ([unit("a", "c"), unit("b", "c"), unit("c")], [], {"c": ("a", "b", "c")}),
        ([unit("a"), unit("b"), unit("c")], [group("g", "c", "a")], {"a": ("a", "c"), "b": ("b",)}),
        ([unit("a"), unit("b", "a"), unit("c"), unit("d", "c")], [group("g", "b", "d")], {"a": ("a", "b", "c", "d")}),
    ],
)
def test_units_that_belong_together_are_one_item(
    units: list[Unit], groups: list[Group], together: dict[str, tuple[str, ...]]
) -> None:
    """By `after` and by groups, through others too; called like the first of those that wait for nobody."""
    assert {one.name: one.units for one in components(units, groups)} == together


def test_the_order_of_the_settings_changes_no_name() -> None:
    """Hosts that read the same units in another order place the same items."""
    units = [unit("a", "m"), unit("m"), unit("z", "m"), unit("k"), unit("c", "k")]
    expected = {(one.name, frozenset(one.units)) for one in components(units, [])}
    dice = random.Random(3)
    for _ in range(20):
        dice.shuffle(units)
        assert {(one.name, frozenset(one.units)) for one in components(units, [])} == expected


def test_where_one_of_them_has_to_run_all_do() -> None:
    """A pin and the labels of one count for all that belong together."""
    (found,) = components([unit("a", zone="x"), unit("b", "a", host="h1"), unit("c", "b", gpu="yes")], [])
    assert (found.host, found.labels) == ("h1", {"gpu": "yes", "zone": "x"})


@pytest.mark.parametrize(
    ("units", "groups", "names"),
    [
        ([unit("a", host="x"), unit("b", "a", host="y")], [], ("a", "b")),
        ([unit("a", host="x"), unit("m", "a"), unit("b", "m", host="y")], [], ("a", "b")),
        ([unit("a", host="x"), unit("b", host="y")], [group("g", "a", "b")], ("a", "b")),
        ([unit("a", zone="x"), unit("b", "a", zone="y")], [], ("a", "b")),
        ([unit("a", host="x"), unit("b", "a", host="x")], [], None),
        ([unit("a", host="x"), unit("b", host="y")], [], None),
        ([unit("a", zone="x"), unit("b", "a", gpu="y")], [], None),
    ],
)
def test_units_at_odds_are_found(units: list[Unit], groups: list[Group], names: tuple[str, str] | None) -> None:
    """Two that belong together and ask for different hosts; no others."""
    found = clash(units, groups)
    assert (None if found is None else (found.first, found.second)) == names


def plan(*units: Unit, **more: object) -> Plan:
    return Plan(units=units, policies=(), own={}, jitter=0.0, quarantined_at=3, journal_max=10, source="", **more)  # type: ignore[arg-type]  # what a test gives


def test_what_one_host_does_for_all_is_an_item_where_there_is_any() -> None:
    """Alerts are sent by one host, and by none if there are no channels."""
    channels = Alerts(channels=(Ntfy(name="n", url="http://x", topic="t"),))
    assert [item.name for item in items(plan(unit("a")))] == ["a"]
    assert [item.name for item in items(plan(unit("a"), alerts=channels))] == ["a", VOICE]


@pytest.mark.parametrize(
    ("item", "queue"),
    [
        (Item(name="a"), FREE),
        (Item(name="a", host="h"), "host.h"),
        (Item(name="a", host="h", labels={"gpu": "yes"}), "host.h"),
        (Item(name="a", labels={"zone": "x", "gpu": "yes"}), "labels.gpu=yes,zone=x"),
    ],
)
def test_where_an_item_waits(item: Item, queue: str) -> None:
    """On the queue of those that may take it."""
    assert item.queue == queue


def test_a_host_listens_to_whatever_it_may_run() -> None:
    """Also to sets of its labels that no unit asks for yet: that cannot be changed later."""
    heard = listened("h", HostPlan(labels={"zone": "x", "gpu": "yes"}), [])
    assert heard == [FREE, pinned_to("h"), "labels.gpu=yes", "labels.zone=x", "labels.gpu=yes,zone=x"]


def test_a_host_with_many_labels_listens_to_what_is_asked_for_and_to_no_more_than_it_can() -> None:
    """What the settings ask for comes first, however many sets there are."""
    labels = {f"l{number:02}": "x" for number in range(30)}
    asked = Item(name="a", labels=labels)
    heard = listened(
        "h", HostPlan(labels=labels), [asked, Item(name="b", labels={"other": "y"}), Item(name="c", host="z")]
    )
    assert labelled(labels.items()) in heard
    assert "labels.other=y" not in heard
    assert pinned_to("z") not in heard
    assert len(heard) <= LISTENED_MAX
