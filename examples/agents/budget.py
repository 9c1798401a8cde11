"""Eight processes spend from one budget and are killed at random. Prints limit, spent and reserved, and ends by itself.

    python examples/agents/budget.py [seed]

Each process reserves the worst case of a call, makes the call (here: it says what the call cost), and settles what it
really was. Whoever is killed in between leaves a reservation behind: it counts as spent until a person settles it. The
exit code is 0 only if nobody ever spent more than there was.
"""

import json
import multiprocessing
import os
import random
import select
import subprocess
import sys
import tempfile
import time
from decimal import Decimal
from pathlib import Path

import flyball

PROCESSES = 8
KILLS = 24
SECONDS_MAX = 10
LIMIT = Decimal("2.00")
WORST = Decimal("0.02")
LEAST = Decimal("0.0005")
NAME = "shop"


def work(folder: Path, said: int, seed: int) -> None:
    """Spend until there is nothing left."""
    dice = random.Random(seed)
    with flyball.open(NAME, config=folder / "flyball.yaml", state_dir=folder / "states") as guard:
        worst = WORST
        while worst >= LEAST:
            try:
                with guard.reserve(worst, pattern="call") as money:
                    cost = (worst * dice.randint(20, 100) / 100).quantize(Decimal("0.000001"))
                    os.write(said, f"{cost}\n".encode())  # from here on it is spent
                    time.sleep(dice.uniform(0, 0.004))
                    money.settle(cost)
            except flyball.OutOfBudget:
                worst /= 2


class Crew:
    """The processes, and what they really spent. They say so on one pipe."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.dice = random.Random(seed)
        self.kills = 0
        self._hear, self._said = os.pipe()
        self._heard: list[str] = []
        self._fork = multiprocessing.get_context("fork")
        flyball.open(NAME, scratch=True).close()  # imported once, here, and not by each of them
        self._crew = [self._hire() for _ in range(PROCESSES)]

    def run(self) -> Decimal:
        """Until all is spent; now and then somebody is killed, and another comes. What they really spent."""
        ends = time.monotonic() + SECONDS_MAX
        kill_at = time.monotonic()
        while any(process.is_alive() for process in self._crew) and time.monotonic() < ends:
            if select.select([self._hear], [], [], 0.02)[0]:
                self._heard.append(os.read(self._hear, 65_536).decode())
            if self.kills < KILLS and time.monotonic() >= kill_at:
                place = self.dice.randrange(PROCESSES)
                self._crew[place].kill()
                self._crew[place].join()
                self._crew[place] = self._hire()
                self.kills += 1
                kill_at = time.monotonic() + self.dice.uniform(0.01, 0.1)
        for process in self._crew:
            process.kill()
            process.join()
        os.close(self._said)
        with os.fdopen(self._hear) as rest:
            self._heard.append(rest.read())
        return sum((Decimal(line) for line in "".join(self._heard).split()), Decimal(0))

    def _hire(self) -> multiprocessing.process.BaseProcess:
        process = self._fork.Process(target=work, args=(self.folder, self._said, self.dice.getrandbits(32)))
        process.start()
        return process


def budget(folder: Path, *settle: str) -> dict[str, Decimal]:
    """What flyball knows of the budget, perhaps after a person settled what the dead held."""
    env = {**os.environ, "FLYBALL_STATE_DIR": str(folder / "states")}
    said = b""
    for arguments in ((["settle", NAME, *settle],) if settle else ()) + (["status", NAME, "--json"],):
        command = [sys.executable, "-m", "flyball", *arguments]
        said = subprocess.check_output(command, cwd=folder, env=env)  # noqa: S603 - all of it is written above
    (known,) = json.loads(said)["units"][0]["budgets"]
    return {part: Decimal(known[part]) / 1_000_000 for part in ("limit", "spent", "reserved")}


def main() -> int:
    """The exit code: 0 if the law held."""
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "flyball.yaml").write_text(f"budget:\n  per_unit: {LIMIT}\n", encoding="utf-8")
        crew = Crew(folder, seed)
        spent = crew.run()
        known = budget(folder)
        print(f"{PROCESSES} processes, {crew.kills} of them killed while they spent; seed {seed}")
        print(f"limit           {known['limit']:>9.6f} USD")
        print(f"spent           {known['spent']:>9.6f} USD")
        print(f"reserved        {known['reserved']:>9.6f} USD held by the dead: it counts as spent")
        print(f"really spent    {spent:>9.6f} USD")
        held = known["spent"] + known["reserved"] <= known["limit"]
        held = held and known["spent"] <= spent <= known["spent"] + known["reserved"]
        known = budget(folder, "--usd", str(spent - known["spent"]))
        print(f"after `flyball settle {NAME} --usd …`: {known['spent']:f} USD spent, {known['reserved']:f} reserved")
        held = held and known["reserved"] == 0 and known["spent"] == spent <= LIMIT
    print("the law held: never more than the limit" if held else "THE LAW WAS BROKEN")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
