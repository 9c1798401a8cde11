"""`raise`: a person allows more than a budget says, for the period at hand; and, if told so, what waits because of it
goes on. First the one, then the other: whoever is let go before there is money only stops again.

The settings stay as they are. What each run may spend is raised while the run lives: the next one has its own.
"""

from collections.abc import Sequence
from typing import Any, Final

from flyball.config.money import exact, micro
from flyball.control import orders
from flyball.control.context import Args, CommandError, Context, known_unit, meant
from flyball.control.text import counted
from flyball.control.views import Look, states_of
from flyball.core.amounts import MONEY, amount_text
from flyball.core.event import Raised, Released, Start
from flyball.policies import Budget, Restart
from flyball.policies.budget import OVER_BUDGET, State

OWN: Final = ("unit", "run")
"""Whose budgets are one unit's alone."""
FLEET: Final = "fleet"
USER: Final = "user"
NOTHING_TO_RESUME: Final = frozenset(("running", "not_paused"))
"""Codes of a session that goes on by itself, or is done: then more money is all that it gets."""


def raise_(context: Context, args: Args) -> Any:
    """Raise the budget of a unit, of a user, or of the fleet."""
    target = _target(args)
    meter = args["meter"]
    more = _amount(meter, args["more"])
    look = context.look()
    unit = known_unit(look, args["unit"]) if target == "unit" else ""
    run, labels, budget, before = _budget(context, look, target=target, unit=unit, user=args["user"] or "", meter=meter)
    event = Raised(
        unit=unit,
        run=run,
        scope=budget.by,
        labels=labels,
        more={meter: more},
        by=context.who,
        note=orders.note_of(context, args["note"] or ""),
    )
    released = []
    if not args["dry_run"]:
        context.governor.submit(event)
        released = _resumed(context, look, unit, labels) if args["resume"] else []
        if context.poke is not None and unit not in released:
            context.poke(unit, "raise")  # who waits for the next period asks again
    after = before.raised + more
    whose = f"the {budget.by} {labels[budget.by]}" if budget.by in labels else unit if unit else "the fleet"
    effect = f"{whose}: {amount_text(meter, more)} more, {amount_text(meter, budget.limit + after)} in all"
    if released:
        effect += f"; {counted(len(released), 'unit')} resumed"
    return {
        "meter": meter,
        "by": budget.by,
        "subject": labels.get(budget.by, unit),
        "more": more,
        "raised": after,
        "limit": budget.limit + after,
        "spent": before.spent,
        "reserved": before.reserved,
        "resumed": released,
        "unit": context.look().unit(unit) if unit else None,
        "effect": effect,
        "daemon": context.poke is not None,
        "dry_run": args["dry_run"],
    }


def _target(args: Args) -> str:
    """Whose budget: exactly one has to be named."""
    given = [name for name in ("unit", USER, FLEET) if args[name]]
    if len(given) != 1:
        text = "raise needs a unit, a user, or the fleet; one of them"
        raise CommandError("bad_argument", text, remedy="`flyball budgets` shows whose budgets there are.")
    return given[0]


def _amount(meter: str, text: str) -> int:
    """Money in millionths, anything else counted whole. CommandError if it is no amount, or nothing."""
    try:
        amount = exact(text)
        whole = micro(amount) if meter == MONEY else int(amount)
    except ValueError as error:
        raise CommandError("bad_argument", f"more is {text!r}: it {error}", remedy="Write it like 1.00.") from None
    if not whole or (meter != MONEY and whole != amount):
        text = f"more is {text!r}: it should be {'more than nothing' if meter == MONEY else 'a whole number above 0'}"
        raise CommandError("bad_argument", text, remedy="Write it like 1.00; other meters than money like 500.")
    return whole


def _budget(
    context: Context, look: Look, *, target: str, unit: str, user: str, meter: str
) -> tuple[str, dict[str, str], Budget, State]:
    """The budget that is meant: of which run, with which label, and what is known of it. CommandError if there is no
    such budget."""
    labels = {USER: user} if target == USER else {}
    if target == USER:
        orders.units_of(context, user)  # a user of whom nobody knows anything is a slip of the keyboard
    opinions = look.opinions(unit) if unit else context.governor.opinions(Start(labels=labels))
    known = [
        (policy, policy.current(state, look.now), said)
        for policy, state, said in opinions
        if isinstance(policy, Budget) and isinstance(state, State) and policy.meter == meter
    ]
    found = [(policy, state) for policy, state, _ in known if policy.by in (OWN if unit else (target,))]
    refusing = [policy.by for policy, _, said in known if not said.proceeds]
    if unit and (not found or (refusing and not set(OWN) & set(refusing))):
        raise _other_budget(context, look, unit, meter, refusing or [policy.by for policy, _, _ in known])
    if not found:
        whose = f"the user {user}" if user else "the fleet"
        meters = sorted({policy.meter for policy, _, _ in opinions if isinstance(policy, Budget)})
        text = f"{whose} has no budget of {meter}; {meant(meter, meters, nothing='none is set')}"
        raise CommandError("no_budget", text, remedy=f"Set one: `budget.per_{target}` in the settings.")
    budget, state = max(found, key=lambda one: (one[1].spent + one[1].reserved) / (one[0].limit + one[1].raised or 1))
    run = look.unit(unit).live[0].run if budget.by == "run" else ""
    return run, labels, budget, state


def _other_budget(context: Context, look: Look, unit: str, meter: str, shared: Sequence[str]) -> CommandError:
    """Why it is not the unit's own budget that is to be raised, and what is."""
    policies = context.governor.panel.policies_of(unit)
    own = [p for p in policies if isinstance(p, Budget) and p.by in OWN and p.meter == meter]
    user = look.labels(unit).get(USER)
    text = f"{unit} has no budget of {meter} of its own"
    if own:
        text = f"what {unit} may spend of its own is not what holds it back"
    if USER in shared and user:
        return CommandError("no_budget", text, remedy=f"Raise that of its user: `flyball raise --user {user} AMOUNT`.")
    if FLEET in shared:
        return CommandError("no_budget", text, remedy="Raise that of the fleet: `flyball raise --fleet AMOUNT`.")
    if own:
        text = f"{unit} does not run, and each run of it has {amount_text(meter, own[0].limit)} of its own"
        return CommandError("no_budget", text, remedy=f"To begin another run with that: `flyball resume {unit}`.")
    return CommandError("no_budget", text, remedy="Nothing of that bounds it; `flyball budgets` shows what there is.")


def _resumed(context: Context, look: Look, unit: str, labels: dict[str, str]) -> list[str]:
    """Let go what waits: the unit as `resume` does; of a user, or of the fleet, what ended for want of money."""
    if unit:
        args = {"units": [unit], "all": False, "user": None, "checkpoint": None, "dry_run": False}
        try:
            orders.resume(context, args)
        except CommandError as error:
            if error.code not in NOTHING_TO_RESUME:
                raise
            return []
        return [unit]
    units = orders.units_of(context, labels[USER]) if labels else look.units()
    bankrupt = [one for one in units if _ended_for_money(look, one)]
    for one in bankrupt:
        released = Released(unit=one, policies=(Restart().name,), **orders.released_by(context, "resume"))
        context.governor.submit(released)
        if context.poke is not None:
            context.poke(one, "resume")
    return bankrupt


def _ended_for_money(look: Look, unit: str) -> bool:
    return any(state.ended_for == OVER_BUDGET for _, state, _ in states_of(Restart, look.opinions(unit), "unit"))
