"""The panel: whom an event concerns, and where their states are kept."""

import pytest

from flyball.core.event import Beat, Booted, Cause, Event, Exited, Released, Resume, Revise, Start, Step
from flyball.core.panel import DOCKETS_MAX, REFUSED, Panel
from flyball.core.policy import AnyPolicy, Key
from flyball.policies import Breaker, Budget, Deadline, Exclusive, Limit, Manual, Quarantine, Revision, Storm

EVERYONE: tuple[AnyPolicy, ...] = (
    Quarantine(),
    Deadline(),
    Storm(),
    Breaker(by="provider"),
    Manual(),
    Manual(by="fleet"),
    Revision(),
)


def keys(event: Event, panel: Panel | None = None) -> set[Key]:
    """Where the states of those are that the event concerns."""
    docket = (panel or Panel(EVERYONE)).concerning(event)
    return set(docket.keys)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            Exited(unit="u", run="r", labels={"provider": "p"}, cause=Cause.DONE),
            {
                Key("quarantine", "unit", "u"),
                Key("deadline", "run", "u/r"),
                Key("storm", "fleet", ""),
                Key("breaker", "provider", "p"),
                Key("manual", "unit", "u"),
                Key("manual", "fleet", ""),
            },
        ),
        (
            Beat(unit="u", run="r"),
            {Key("deadline", "run", "u/r"), Key("manual", "unit", "u"), Key("manual", "fleet", "")},
        ),
        (Booted(holder="h"), {Key("storm", "fleet", ""), Key("manual", "fleet", "")}),
        (
            Start(unit="u"),
            {
                Key("quarantine", "unit", "u"),
                Key("storm", "fleet", ""),
                Key("manual", "unit", "u"),
                Key("manual", "fleet", ""),
                Key(REFUSED, "start", "u"),
            },
        ),
        (
            Revise(unit="u", revision="a"),
            {
                Key("quarantine", "unit", "u"),
                Key("storm", "fleet", ""),
                Key("manual", "unit", "u"),
                Key("manual", "fleet", ""),
                Key("revision", "unit", "u"),
                Key(REFUSED, "revise", "u"),
            },
        ),
    ],
    ids=lambda case: type(case).__name__,
)
def test_whom_it_concerns(event: Event, expected: set[Key]) -> None:
    """Those who hear such events and in whose scope it is: an event without a run concerns no policy of runs, and one
    without a label none of that label. A request also concerns the note of the last refusal."""
    assert keys(event) == expected


def test_in_one_order() -> None:
    """Policies, keys and initial states go together; the note of the refusal comes last and is nobody's."""
    docket = Panel(EVERYONE).concerning(Start(unit="u", run="r"))
    assert [key.policy for key in docket.keys] == [*(policy.name for policy in docket.policies), REFUSED]
    assert list(docket.initials) == [policy.initial() for policy in docket.policies]
    assert docket.refused == docket.keys[-1]
    assert docket.kind == "start"


def test_who_rests() -> None:
    """A policy that such an event cannot wake rests, as long as nothing is stored of it."""
    docket = Panel([Quarantine(), Deadline(), Limit()]).concerning(Start(unit="u", run="r"))
    resting = dict(zip((policy.name for policy in docket.policies), docket.resting, strict=True))
    assert resting["quarantine"] is None
    assert resting["deadline"] == Deadline().initial()


def test_rest_depends_on_the_cause() -> None:
    """The same unit and run, with another cause, is another docket: a failure wakes whom a clean exit does not."""
    panel = Panel([Quarantine()])
    assert panel.concerning(Exited(unit="u", run="r", cause=Cause.DONE)).resting == [None]
    assert panel.concerning(Exited(unit="u", run="r", cause=Cause.ERROR)).resting == [Quarantine().initial()]


def test_units_of_their_own() -> None:
    """A unit may stand under a set of its own; giving it another one takes effect at once."""
    panel = Panel([Manual()], {"special": [Manual(), Deadline()]})
    step = Step(unit="special", run="r")
    assert Key("deadline", "run", "special/r") in keys(step, panel)
    assert Key("deadline", "run", "plain/r") not in keys(Step(unit="plain", run="r"), panel)
    panel.put("special", [Budget()])
    assert {key.policy for key in keys(step, panel)} == {"budget", REFUSED}
    assert [policy.name for policy in panel.policies_of("special")] == ["budget"]
    assert [policy.name for policy in panel.policies_of("plain")] == ["manual"]


def test_all_are_replaced() -> None:
    """Other policies take effect at once, for everybody and for units of their own; if they do not fit together, none
    does."""
    panel = Panel([Manual()], {"special": [Manual(), Deadline()]})
    step = Step(unit="special", run="r")
    keys(step, panel)
    with pytest.raises(ValueError, match="two policies"):
        panel.replace([Deadline()], {"other": [Budget(), Budget()]})
    assert Key("deadline", "run", "special/r") in keys(step, panel)
    panel.replace([Deadline()], {"other": [Budget()]})
    named = {unit: [policy.name for policy in panel.policies_of(unit)] for unit in ("", "special", "other")}
    assert named == {"": ["deadline"], "special": ["deadline"], "other": ["budget"]}
    assert Key("manual", "unit", "special") not in keys(step, panel)


def test_two_of_one_name_are_an_error() -> None:
    """Two policies under one key would overwrite each other's state; by another scope it is another key."""
    with pytest.raises(ValueError, match="two policies named 'manual' by 'unit'"):
        Panel([Manual(), Manual()])
    with pytest.raises(ValueError, match="two policies"):
        Panel([], {"special": [Manual(), Manual()]})
    Panel([Manual(), Manual(by="fleet")])


def test_dockets_are_bounded() -> None:
    """However many units and runs there are."""
    panel = Panel([Exclusive()])
    for number in range(DOCKETS_MAX + 10):
        panel.concerning(Beat(unit="u", run=str(number)))
    assert len(panel._dockets) <= DOCKETS_MAX


def test_the_same_labels_with_other_values() -> None:
    """What is kept ready for one subject is not handed out for another."""
    panel = Panel([Breaker(by="provider")])
    for value in ("a", "b", "a"):
        event = Resume(unit="u", run="r", labels={"provider": value})
        assert panel.concerning(event).keys[0] == Key("breaker", "provider", value)


def test_a_release_reaches_everybody_of_the_unit() -> None:
    """Orders are heard by all; whom they free is for them to see."""
    assert Key("quarantine", "unit", "u") in keys(Released(unit="u"))


def test_no_two_runs_share_a_state() -> None:
    """Run c of unit a/b is not run b/c of unit a."""
    assert keys(Beat(unit="a/b", run="c")).isdisjoint(keys(Beat(unit="a", run="b/c")) - {Key("manual", "fleet", "")})
