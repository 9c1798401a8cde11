"""By what a message is known to its receivers: the same for each attempt, another when people are told anew."""

from flyball.config.alerts import Alerts
from flyball.control.alerts.groups import Group, Item, telling, was_told
from flyball.control.alerts.wording import message_of
from flyball.core.time import HOUR, SECOND

OPENED = 1_000 * HOUR


def test_told_again() -> None:
    """What still stands is told once more after hours, under another id: under the same, channels would take it for an
    attempt of the first, and people would see nothing. Until then the id stays the same."""
    group = Group("k", "quarantined", "critical", items={"a": Item("a")}, opened=OPENED)
    settings, ids = Alerts(), list[str]()
    for now in (OPENED + 5 * SECOND, OPENED + 5 * HOUR, OPENED + 10 * HOUR):
        said = telling(group, settings, now)
        assert said is not None
        assert said.fresh
        assert message_of(group, now).id == message_of(group, now + SECOND).id
        ids.append(message_of(group, now).id)
        group = was_told(group, said, now)
    assert len(set(ids)) == 3
