"""What the numbers multiply to: thresholds that can never be reached, because another one always speaks first.

Each value is fine by itself, so this is advice and not an error. The defaults need none.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from flyball.config.settings import Settings

HOUR_SECONDS: Final = 3600


class Advice(NamedTuple):
    """The key that it is about, and what is odd about its value."""

    key: str
    text: str


def advice(settings: Settings) -> Iterator[Advice]:
    """All that is odd about these settings."""
    for check in _CHECKS:
        yield from check(settings)


def _ladder(settings: Settings) -> Iterator[Advice]:
    key = "quarantine.cooldown_ladder_seconds"
    ladder, most = settings.quarantine.cooldown_ladder_seconds, settings.quarantine.max_failures_before_quarantine
    unused = len(ladder) - (most - 1)
    if unused > 0:
        text = f"of its {len(ladder)} waits the last {unused} can never come: failure {most} is quarantined already"
        yield Advice(key, f"{text} (max_failures_before_quarantine)")
    if any(after < before for before, after in itertools.pairwise(ladder)):
        yield Advice(key, "a later wait is shorter than the one before it")


def _healthy(settings: Settings) -> Iterator[Advice]:
    key = "quarantine.healthy_after_seconds"
    healthy, hours = settings.quarantine.healthy_after_seconds, settings.quarantine.auto_reset_after_hours
    most = settings.restart_policy.max_restarts_per_hour
    if healthy is None:
        return
    if healthy > hours * HOUR_SECONDS:
        yield Advice(
            key, f"{healthy:g} s are longer than the {hours:g} hours (auto_reset_after_hours) they should shorten"
        )
    if healthy * most < HOUR_SECONDS:
        text = f"a unit that fails every {healthy:g} s counts as healthy in between: it is never held, and restarted"
        yield Advice(key, f"{text} {most} times an hour (max_restarts_per_hour) for ever")


def _in_a_row(settings: Settings) -> Iterator[Advice]:
    """The hold for restarts in a row counts failures of every kind, so nothing that counts fewer kinds outlasts it."""
    held_at = settings.restart_policy.max_restarts_in_a_row + 1
    because = f"a unit is held at {held_at} failing runs in a row (restart_policy.max_restarts_in_a_row)"
    quarantined_at = settings.quarantine.max_failures_before_quarantine
    if quarantined_at > held_at:
        yield Advice("quarantine.max_failures_before_quarantine", f"{quarantined_at} are never reached: {because}")
    crash = settings.crash_policy
    halted_at = crash.flap_threshold + crash.halt_threshold - 1
    if halted_at > held_at:
        text = f"{crash.halt_threshold} flaps take {halted_at} failing runs, which are never reached: {because}"
        yield Advice("crash_policy.halt_threshold", text)


def _flap_delays(settings: Settings) -> Iterator[Advice]:
    crash = settings.crash_policy
    if crash.flapping_delay_seconds < crash.transient_delay_seconds:
        single = crash.transient_delay_seconds
        text = f"a flap waits less than a single failing exit does (transient_delay_seconds {single:g})"
        yield Advice("crash_policy.flapping_delay_seconds", text)


def _restarts_an_hour(settings: Settings) -> Iterator[Advice]:
    key = "restart_policy.max_restarts_per_hour"
    restart = settings.restart_policy
    most, total = restart.max_restarts_per_hour, restart.max_total_restarts_per_hour
    if most > total:
        text = f"{most} for one unit are never reached: all units together are held at {total}"
        yield Advice(key, f"{text} (max_total_restarts_per_hour)")
    delay = settings.crash_policy.transient_delay_seconds
    if most > HOUR_SECONDS / delay:
        text = f"{most} are never reached: with {delay:g} s after each failing exit (crash_policy."
        yield Advice(key, f"{text}transient_delay_seconds) at most {int(HOUR_SECONDS / delay)} fit into an hour")


def _fleet(settings: Settings) -> Iterator[Advice]:
    """Of restarted units no more can fail within a window than are restarted in it."""
    total = settings.restart_policy.max_total_restarts_per_hour
    safety, breaker = settings.safety, settings.circuit_breaker
    for key, most, window in (
        ("safety.global_failure_threshold", safety.global_failure_threshold + 1, safety.global_failure_window_seconds),
        ("circuit_breaker.failure_threshold", breaker.failure_threshold, breaker.window_seconds),
    ):
        if key.startswith("safety") and safety.global_failure_share is not None:
            continue
        let_through = total * math.ceil(window / HOUR_SECONDS)
        if most > let_through:
            text = f"restarts never make {most} failures within {window:g} s: {let_through} of them are let through"
            yield Advice(key, f"{text} (restart_policy.max_total_restarts_per_hour {total})")


def _breaker(settings: Settings) -> Iterator[Advice]:
    breaker = settings.circuit_breaker
    if breaker.min_units > breaker.failure_threshold:
        units = breaker.min_units
        text = f"{breaker.failure_threshold} failures never open it: it takes {units} units that fail (min_units)"
        yield Advice("circuit_breaker.failure_threshold", text)


def _rounds(settings: Settings) -> Iterator[Advice]:
    graph = settings.graph
    steps = STEPS_PER_ROUND * graph.max_rounds + STEPS_BESIDE
    if steps > graph.recursion_limit:
        text = f"{graph.max_rounds} rounds take about {steps} steps ({STEPS_PER_ROUND} a round and {STEPS_BESIDE} more)"
        yield Advice("graph.max_rounds", f"{text}: the limit of {graph.recursion_limit} (recursion_limit) comes first")


STEPS_PER_ROUND: Final = 3
STEPS_BESIDE: Final = 10
"""A deliberation's moderator, speaker and check; and what comes before and after its rounds."""


def _retry(settings: Settings) -> Iterator[Advice]:
    """Attempts are steps of one pattern in one run, so the rule's deadline and the loop limit bound them too."""
    retry = settings.retry
    key, text = "retry.max_attempts", f"{retry.max_attempts} attempts are never made"
    timeout, loop = settings.rule.timeout_seconds, settings.safety.max_loop_iterations
    waited, delay = 0.0, retry.base_delay_seconds
    for attempt in range(2, retry.max_attempts + 1):
        waited += delay
        delay *= retry.exponential_base
        if waited >= timeout:
            yield Advice(
                key, f"{text}: the waits before attempt {attempt} alone last {timeout:g} s (rule.timeout_seconds)"
            )
            return
        if attempt >= loop and waited <= settings.safety.loop_window_seconds:
            yield Advice(key, f"{text}: attempt {attempt} is a loop already (safety.max_loop_iterations)")
            return


def _budgets(settings: Settings) -> Iterator[Advice]:
    """What one session may cost is never reached where all sessions of a user, a tree or the fleet may cost less."""
    budget = settings.budget
    sessions = {"max_cost_per_session": budget.max_cost_per_session}
    sessions |= {f"tiers.{tier}": amount for tier, amount in budget.tiers.items()}
    for shared in ("per_user", "per_tree", "per_fleet"):
        most = getattr(budget, shared)
        for key, amount in sessions.items():
            if most is not None and amount > most:
                yield Advice(f"budget.{key}", f"{amount} is never reached: {shared} allows {most}")


_CHECKS: Final[tuple[Callable[[Settings], Iterator[Advice]], ...]] = (
    _ladder,
    _healthy,
    _in_a_row,
    _flap_delays,
    _restarts_an_hour,
    _fleet,
    _breaker,
    _rounds,
    _retry,
    _budgets,
)
