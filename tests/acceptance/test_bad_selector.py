"""The walk-through of the bad selector, in eight steps: the engine of rules with default settings, on simulated time.

The page is made up; a real browser and a real daemon walk the same way in examples/bad_selector, on a shorter ladder.
"""

from collections.abc import Mapping
from typing import Any

from flyball.config.rules import Action, Browse, BrowserStep, Rule
from flyball.control.past import Past
from flyball.control.shapes import UnitView
from flyball.control.text import entry_data
from flyball.control.views import Look
from flyball.core.event import Cause, Exited, Start
from flyball.core.time import SECOND
from flyball.runtimes.before import REVISIONS, revised
from flyball.runtimes.rule.deed import ActionFailed, Doing, Scene
from flyball.runtimes.rule.firing import FIRING, Fate
from flyball.testing.clock import START_OF_TIME
from tests.runtimes.rule.stage import Stage, rule

RULE = "buy"
RUN_LASTS = 3
"""Seconds of a run that fails: three attempts, with 1 and 2 s in between."""
LADDER = (1, 5, 15, 300, 1800)


class Shop(Stage):
    """A shop's page, with one button; and people who look at what happens."""

    button = "#buy-now"

    def _doing(self, kind: type) -> Doing:
        assert kind is Browse

        async def click(scene: Scene, deed: Any, seconds: float) -> Mapping[str, Any]:
            [step] = deed.steps
            self.done.append((step.target, scene.run))
            if step.target != self.button:
                raise ActionFailed("SelectorNotFound", f"nothing on the page is {step.target}", target=step.target)
            return {}

        return click

    def define(self, made: Rule) -> None:
        """Tell the governor of a definition, as a daemon does."""
        for revise, _ in revised([(made, made.revision)], self.store.states(REVISIONS)):
            self.governor.submit(revise)

    def seen(self, made: Rule) -> UnitView:
        """What `flyball status` shows."""
        return Look(self.governor, Past(), rules=[made]).unit(RULE)

    def texts(self) -> list[str]:
        """What `flyball events` shows."""
        return [entry_data(entry)["text"] for entry in self.store.entries(limit=100_000, unit=RULE)]

    def started_at(self) -> list[int]:
        """Seconds since the beginning at which its runs were granted."""
        entries = self.store.entries(events=("start",), limit=100_000, unit=RULE)
        return [round((entry.at - START_OF_TIME) / SECOND) for entry in entries if entry.verb == "proceed"]


def buys(selector: str) -> Rule:
    """A rule that clicks on what a selector names, tried three times in each run."""
    click = Browse(steps=(BrowserStep(verb="click", target=selector),))
    return rule(RULE, actions=(Action(id="click", deed=click),))


def test_eight_steps() -> None:
    """S0-46, S0-42, S0-45: a bad selector, fired again and again: each wait of the ladder can be seen, it is
    quarantined at the sixth failure, a restart changes nothing, and the change that puts it right clears its
    failures."""
    shop = Shop()

    async def work() -> None:
        # 1. A rule with a bad selector.
        bad = buys("#buy")
        await shop.up(bad)
        shop.define(bad)
        assert shop.seen(bad).state == "healthy"
        assert await shop.fire(RULE) is Fate.QUEUED
        await shop.pass_by(RUN_LASTS + 0.5)
        assert shop.seen(bad).state == "cooling"
        assert [exited.error for exited in shop.exits(RULE)] == ["SelectorNotFound"]

        # 2. It is fired again and again: that makes it run no sooner.
        for _ in range(20):
            await shop.fire(RULE)
            await shop.pass_by(1)
        await shop.pass_by(7_200)

        # 3. The ladder, in the journal and in words.
        starts = [0]
        for wait in LADDER:
            starts.append(starts[-1] + RUN_LASTS + wait)
        assert shop.started_at() == starts
        waits = [text for text in shop.texts() if text.startswith("exited")]
        assert len(waits) == 6
        for text, said in zip(waits, ("1 s", "5 s", "15 s", "5 min", "30 min"), strict=False):
            assert f"waits {said}" in text

        # 4. Quarantined at the sixth failure of one kind; nothing is lost.
        [mark] = {exited.fingerprint for exited in shop.exits(RULE)}
        view = shop.seen(bad)
        assert (view.state, view.held) == ("quarantined", True)
        assert mark[:8] in view.reasons[0].remedy
        assert "is held" in waits[-1]
        assert len(shop.store.states(FIRING)) == 21

        # 5. The supervisor is restarted.
        tried = len(shop.done)
        assert tried == 6 * 3
        await shop.down()
        await shop.up(bad)
        shop.define(bad)

        # 6. It is still quarantined, and nothing is run.
        assert await shop.fire(RULE) is Fate.QUEUED
        await shop.pass_by(7_200)
        assert shop.seen(bad).state == "quarantined"
        assert len(shop.done) == tried

        # 7. The selector is fixed.
        good = buys("#buy-now")
        assert good.revision != bad.revision
        shop.define(good)
        await shop.engine.change([good])

        # 8. Its failures are cleared by the change: it runs at once, all that waited is done.
        await shop.pass_by(1)
        assert any("cleared by change" in text for text in shop.texts())
        assert shop.seen(good).state == "healthy"
        assert shop.seen(good).failures_in_a_row == 0
        assert shop.store.states(FIRING) == {}
        assert len(shop.done) == tried + 22

    shop.run(work)
    granted = [event for event, decision in shop.journal(Start) if decision.proceeds]
    ends = [event.cause for event, _ in shop.journal(Exited) if isinstance(event, Exited)]
    assert len(granted) == len(ends) == 6 + 22
    assert ends == [Cause.ERROR] * 6 + [Cause.DONE] * 22
