"""`settle`: a person says what runs that died really used of what they had reserved. Until then all of it counts as
spent.

Only what is certainly dead is settled by itself: a run that exited, or whose process is gone. Of others a person has to
name the run. A program may have budgets that these settings do not know: what is stored of them is settled too.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from flyball.config.money import exact, micro
from flyball.control.context import Args, CommandError, Context, known_unit
from flyball.core.amounts import MONEY
from flyball.core.codec import decode_state
from flyball.core.event import Amounts, Settled
from flyball.core.panel import Panel
from flyball.core.policy import AnyPolicy, Key
from flyball.governor import Governor
from flyball.policies import Budget, Exclusive, Reservations
from flyball.policies.budget import State as BudgetState
from flyball.policies.exclusive import State as Leases
from flyball.policies.reservations import Held
from flyball.policies.reservations import State as Holders
from flyball.store import Snapshot

BUDGETS: Final = Budget().name
"""What the names of all budgets have in them."""


def settle(context: Context, args: Args) -> Any:
    """Settle what dead runs of a unit hold; without a unit, or with `dry_run`, only say what there is."""
    used = _used(args)
    unit = known_unit(context.look(), args["unit"]) if args["unit"] else ""
    if not unit and (used is not None or args["run"]):
        raise CommandError("bad_argument", "settle needs the name of the unit whose runs died")
    dry = args["dry_run"] or not unit
    settled, alive = [], []
    for whose, held, dead in _holders(context, unit):
        if args["run"] and held.run != args["run"]:
            continue
        if dead or args["run"]:
            settled.append((whose, held))
        else:
            alive.append((whose, held))
    if args["run"] and not settled:
        raise CommandError("not_found", f"no run {args['run']!r} of {unit} holds anything")
    shares = _shares([held.amounts for _, held in settled], used)
    if not dry:
        done = [_settle(context, *one, share) for one, share in zip(settled, shares, strict=True)]
        settled = [one for one, did in zip(settled, done, strict=True) if did]
        shares = [share for share, did in zip(shares, done, strict=True) if did]
    return {
        "settled": [{**_shown(*one), "used": dict(share)} for one, share in zip(settled, shares, strict=True)],
        "alive": [_shown(*one) for one in alive],
        "dry_run": dry,
        "unit": context.look().unit(unit) if unit else None,
    }


def _used(args: Args) -> Amounts | None:
    """What was used in all, by meter; empty: nothing; None: nobody said, so all that was reserved."""
    if args["nothing"]:
        if args["usd"] or args["used"]:
            raise CommandError("bad_argument", "say that nothing was used, or what was; not both")
        return {}
    given = [f"{MONEY}={args['usd']}"] if args["usd"] else []
    used: dict[str, int] = {}
    for pair in (*given, *(args["used"] or ())):
        meter, sign, amount = pair.partition("=")
        try:
            exactly = exact(amount)
            used[meter] = micro(exactly) if meter == MONEY else int(exactly)
            whole = meter == MONEY or exactly == int(exactly)
        except ValueError as error:
            raise CommandError("bad_argument", f"{pair!r}: the amount {error}") from None
        if not meter or not sign or not whole:
            raise CommandError("bad_argument", f"{pair!r} should be a meter and a whole number: tokens=1200")
    return used or None


def _holders(context: Context, unit: str) -> Iterator[tuple[str, Held, bool]]:
    """Who holds what, and whether it is certainly dead."""
    store = context.governor.store
    now = max(context.governor.clock.now(), store.read(()).at)
    gone = context.gone or (lambda _: False)
    for key, data in sorted(store.states(Reservations.NAME).items()):
        if unit and key.subject != unit:
            continue
        lease = Key(Exclusive.NAME, "unit", key.subject)
        live = store.read([lease]).records.get(lease)
        runs = decode_state(Leases, live).runs if live is not None else {}
        for held in _decoded(data):
            run = runs.get(held.run)
            # The run of a program, which nobody supervises, is named after its process.
            dead = gone(held.run) if run is None else run.until <= now or gone(run.holder)
            yield key.subject, held, held.ended or dead


def _decoded(data: bytes | None) -> Sequence[Held]:
    try:
        return decode_state(Holders, data).held if data is not None else ()
    except msgspec.MsgspecError:
        return ()


def _shares(reserved: Sequence[Amounts], used: Amounts | None) -> list[Amounts]:
    """What each of them used of what all used together: each up to what it had reserved, and the last one what is above
    that. Of a meter that nobody spoke of, each used all that it had."""
    if used is None:
        return list(reserved)
    if not used:
        return [{} for _ in reserved]
    shares = [{meter: amount for meter, amount in amounts.items() if meter not in used} for amounts in reserved]
    for meter, total in used.items():
        left = total
        for share, amounts in zip(shares, reserved, strict=True):
            share[meter] = min(left, amounts.get(meter, 0))
            left -= share[meter]
        if shares:
            shares[-1][meter] += left
    return list[Amounts](shares)


def _settle(context: Context, unit: str, held: Held, used: Amounts) -> bool:
    """Whether it was settled: somebody else may have been quicker."""
    governor = context.governor
    policies = (*governor.panel.policies_of(unit), *_unknown(governor, unit, held))
    key = Key(Reservations.NAME, "unit", unit)
    event = Settled(
        unit=unit,
        run=held.run,
        labels=held.labels,
        reserved=held.amounts,
        used=used,
        by=context.who,
        note=f"via {context.channel}",
    )

    def still(snapshot: Snapshot) -> bool:
        return any(
            (now.run, now.labels, now.amounts) == (held.run, held.labels, held.amounts)
            for now in _decoded(snapshot.records.get(key))
        )

    return Governor(Panel(policies), governor.store, governor.clock).submit_if(event, still) is not None


def _unknown(governor: Governor, unit: str, held: Held) -> Iterator[AnyPolicy]:
    """Budgets that hold it too, and that are not among the unit's policies here. Their limits do not matter for it."""
    known = {(policy.name, policy.by) for policy in governor.panel.policies_of(unit)}
    scopes: Mapping[str, str] = {"unit": unit, "fleet": "", **held.labels}
    for key, data in governor.store.states().items():
        if BUDGETS not in key.policy or (key.policy, key.by) in known or scopes.get(key.by) != key.subject:
            continue
        try:
            state = decode_state(BudgetState, data)
        except msgspec.MsgspecError:
            continue
        yield Budget(name=key.policy, by=key.by, meter=state.meter)


def _shown(unit: str, held: Held) -> dict[str, Any]:
    return {"unit": unit, "run": held.run, "labels": held.labels, "reserved": held.amounts}
