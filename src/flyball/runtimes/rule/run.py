"""One run of a rule: its actions, one after the other, each attempt a step that the governor grants before it is made.

What ends it is an ending like any other's, for the driver to report: done, an action that failed for good, a safeguard
that said no, a person who did. Whatever an action started is gone when the run is over.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from flyball.config import templates
from flyball.config.rules import Action, Deed, OnError
from flyball.config.templates import TemplateError
from flyball.core.decision import Decision, Verb
from flyball.core.event import Cause, Event, Step, Stepped, Work
from flyball.core.failure import FINGERPRINT_VERSION, call_fingerprint, fingerprint, result_fingerprint
from flyball.core.time import Instant, Span, later, seconds
from flyball.errors import StoreError
from flyball.governor import NO_ROWS, Governor, Rows
from flyball.runtimes.bridge import submit
from flyball.runtimes.driver import OVERDUE, TROUBLE_WAIT, Ending
from flyball.runtimes.refusal import Refused
from flyball.runtimes.rule.deed import TIMED_OUT, ActionFailed, Doing, Scene

log = logging.getLogger(__name__)

NOT_APPROVED: Final = "not_approved"
"""How a run ends that a person did not allow to go on."""
SPARE: Final = 10.0
"""Seconds beyond an action's time until it is cancelled from here. It ends what it started by itself when its time is
over, in a grace, and can say where that was."""
RESULT_SHOWN_MAX: Final = 4_096
"""Characters of a result that its fingerprint is made of."""

Asking = Callable[[Action, str], Awaitable[bool]]
"""Has a person approve an action, by that text."""
Names = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""What templates may name now, with the results of the actions so far."""
Doings = Callable[[type], Doing]
"""How each kind of deed is done."""
Until = Callable[[Instant], Awaitable[None]]
"""Waits for an instant."""
Troubled = Callable[[StoreError | None], None]
"""Told when the store cannot be written, and, by None, when it can be again."""


class Told(Exception):
    """The governor refused a step: the run has to end."""

    def __init__(self, decision: Decision) -> None:
        super().__init__()
        self.decision = decision


class Heard(Protocol):
    """Told of every answer that is not a plain yes."""

    def __call__(self, event: Event, decision: Decision) -> None: ...


@dataclass(slots=True, kw_only=True)
class RuleRun:
    """One life of a rule. It begins when it is made."""

    scene: Scene
    governor: Governor
    labels: Mapping[str, str]
    doings: Doings
    names: Names
    approve: Asking
    until: Until
    heard: Heard
    troubled: Troubled
    condition: Exception | None = None
    """Why its condition could not be judged: then this is how it ends."""
    _results: dict[str, Any] = field(default_factory=dict)
    _done: list[Action] = field(default_factory=list)
    _task: "asyncio.Task[Ending]" = field(init=False)

    def __post_init__(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._live())

    async def ended(self) -> Ending:
        """Wait until it is over."""
        return await asyncio.shield(self._task)

    async def end(self, grace: Span) -> None:
        """Make it end. What its action started is ended in order, then by force."""
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def _live(self) -> Ending:
        try:
            return await self._act()
        except asyncio.CancelledError:
            return Ending(Cause.STOPPED, error="stopped", detail=self._so_far())
        except Told as told:
            return self._told_to_end(told.decision)
        except Refused as refused:  # while it waited for a person
            return self._told_to_end(refused.decision)
        except ActionFailed as failed:
            return self._failed(failed, "")
        except Exception as error:  # a fault of ours is the end of this run, not of the daemon
            log.exception("%s: its run failed", self.scene.rule.name)
            return self._failed(ActionFailed(type(error).__name__, str(error), final=True), "")
        finally:
            await self._clean_up()

    async def _clean_up(self) -> None:
        while self.scene.ends:
            end = self.scene.ends.pop()
            try:
                await end()
            except Exception:
                log.exception("%s: what its run used could not be ended", self.scene.rule.name)

    async def _act(self) -> Ending:
        rule = self.scene.rule
        if self.condition is not None:
            raise ActionFailed("ConditionError", str(self.condition), target=rule.when, final=True)
        failure: Ending | None = None
        for action in rule.actions:
            try:
                approved = await self._approved(action)
                if not approved:
                    await self._undo()
                    detail = f"action {action.id} was not approved\n{self._so_far()}".rstrip()
                    return Ending(Cause.STOPPED, error=NOT_APPROVED, detail=detail)
                self._results[action.id] = await self._insist(action, action.deed, action.id)
            except ActionFailed as failed:
                ending = self._failed(failed, action.id)
                failure = failure or ending
                if rule.on_error is OnError.CONTINUE:
                    log.info("%s: the next action is done all the same", rule.name)
                    continue
                await self._undo()
                return failure
            self._done.append(action)
        return failure or Ending(Cause.DONE)

    async def _approved(self, action: Action) -> bool:
        if action.approve is None:
            return True
        return await self.approve(action, self._filled_text(action.approve.text, action.id))

    async def _insist(self, action: Action, deed: Deed, step: str) -> Mapping[str, Any]:
        """Try it as often as its settings say."""
        attempts = action.attempts
        number = 1
        while True:
            try:
                return await self._attempt(action, deed, step)
            except ActionFailed as failed:
                if failed.final or number >= attempts.most:
                    if attempts.most > 1:
                        failed.add_note(f"attempt {number} of {attempts.most}")
                    raise
                wait = max(round(attempts.first * attempts.factor ** min(number - 1, 64)), failed.asks_to_wait)
                log.info("%s: %s failed (%s), tried again in %.3g s", self.scene.rule.name, step, failed, seconds(wait))
            await self.until(later(self.governor.clock.now(), wait))
            number += 1

    async def _attempt(self, action: Action, deed: Deed, step: str) -> Mapping[str, Any]:
        scene = self.scene
        filled = self._filled_deed(deed, action.id)
        pattern = f"{step}:{scene.rule.name}"
        call = call_fingerprint(type(deed).__name__, _said(filled))
        await self._leave(pattern, call)
        scene.rows.clear()
        begun = time.monotonic_ns()
        result: Mapping[str, Any] = {}
        failed: ActionFailed | None = None
        try:
            async with asyncio.timeout(seconds(action.timeout) + SPARE) as limit:
                result = await self.doings(type(deed))(scene, filled, seconds(action.timeout))
        except TimeoutError:
            if not limit.expired():
                raise
            failed = ActionFailed(TIMED_OUT, f"it took longer than {seconds(action.timeout):g} s", target=action.id)
        except ActionFailed as error:
            failed = error
        work = Work(
            pattern=pattern,
            call=call,
            result=result_fingerprint(failed.error if failed else _shown(result)),
            error=failed is not None,
            lasted=(time.monotonic_ns() - begun) // 1000,
        )
        rows = dict(scene.rows) if failed is None else {}
        stepped = Stepped(unit=scene.rule.name, run=scene.run, labels=self.labels, done=(work,))
        await self._submit(stepped, rows)
        if failed is not None:
            raise failed
        for kept in scene.kept:
            kept()
        scene.kept.clear()
        return result

    async def _leave(self, pattern: str, call: str) -> None:
        """Ask for leave to make a step; wait for it, where that is the answer."""
        scene = self.scene
        step = Step(unit=scene.rule.name, run=scene.run, labels=self.labels, pattern=pattern, call=call)
        while True:
            decision = await self._submit(step)
            if decision.proceeds:
                return
            self.heard(step, decision)
            if decision.verb is not Verb.WAIT:
                raise Told(decision)
            await self.until(decision.until)

    async def _submit(self, event: Event, rows: Rows = NO_ROWS) -> Decision:
        """Put it to the governor until the store could write it down: what was not is not done, and what was done is
        not forgotten. A full disk is no failure of the rule."""
        in_trouble = False
        while True:
            try:
                decision = await submit(self.governor, event, rows)
            except StoreError as error:
                if not error.passes:
                    raise
                in_trouble = True
                self.troubled(error)
            else:
                if in_trouble:
                    self.troubled(None)
                return decision
            await self.until(later(self.governor.clock.now(), TROUBLE_WAIT))

    async def _undo(self) -> None:
        """Take back what was done, the last action first. What cannot be taken back is said, and the rest still is."""
        if self.scene.rule.on_error is not OnError.ROLLBACK:
            return
        while self._done:
            action = self._done.pop()
            if action.undo is None:
                continue
            try:
                await self._insist(action, action.undo, f"undo-{action.id}")
            except ActionFailed as failed:
                log.error("%s: %s could not be undone: %s", self.scene.rule.name, action.id, failed)

    # Templates.

    def _filled_text(self, text: str, action: str) -> str:
        try:
            return templates.fill_text(text, self.names(self._results))
        except TemplateError as error:
            raise _unfilled(error, action) from None

    def _filled_deed(self, deed: Deed, action: str) -> Deed:
        try:
            return templates.filled(deed, self.names(self._results))
        except TemplateError as error:
            raise _unfilled(error, action) from None

    # Endings.

    def _failed(self, failed: ActionFailed, action: str) -> Ending:
        rule = self.scene.rule.name
        notes = "".join(f" ({note})" for note in getattr(failed, "__notes__", ()))
        where = f"action {action}{notes}: " if action else ""
        detail = f"{where}{failed}"
        log.info("%s: failed: %s", rule, detail)
        if failed.detail:
            detail += f"\n{failed.detail}"
        mark = fingerprint(
            rule,
            failed.error,
            target=failed.target or action,
            message="" if failed.target else str(failed),
            code=failed.code,
            signal=failed.signal,
            status=failed.status,
            errno=failed.errno,
        )
        cause = Cause.STARVED if failed.starved else Cause.TIMEOUT if failed.error == TIMED_OUT else Cause.ERROR
        return Ending(cause, mark, FINGERPRINT_VERSION, failed.error, failed.code, failed.signal, detail)

    def _told_to_end(self, decision: Decision) -> Ending:
        """It did not fail by itself. What was told to stop is not started again by itself."""
        reason = decision.primary
        code, policy = (reason.code, reason.policy) if reason else ("stopped", "")
        cause = Cause.TIMEOUT if code in OVERDUE else Cause.STOPPED
        detail = f"{reason.text if reason else ''}\n{self._so_far()}".strip()
        mark = fingerprint(self.scene.rule.name, code)
        return Ending(cause, mark, FINGERPRINT_VERSION, code, detail=detail, policy=policy)

    def _so_far(self) -> str:
        done = ", ".join(self._results)
        return f"done before: {done}" if done else ""


def _unfilled(error: TemplateError, action: str) -> ActionFailed:
    return ActionFailed("TemplateError", str(error), target=action, final=True)


def _said(deed: Deed) -> bytes:
    """A deed in canonical form. Only its hash is kept."""
    return msgspec.json.encode(deed, order="deterministic", enc_hook=str)


def _shown(result: Mapping[str, Any]) -> str:
    try:
        return msgspec.json.encode(result, order="deterministic").decode()[:RESULT_SHOWN_MAX]
    except (TypeError, ValueError):
        return ""
