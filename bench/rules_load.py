"""How long it takes to read and check many rules, as a daemon's plan: each with one trigger, one condition that is its
own, and one action with a template.

    python -m bench.rules_load [RULES]
"""

import sys
import tempfile
from pathlib import Path
from typing import Final

from bench.measure import seconds
from flyball.config.planning import read_plan

FILES: Final = 100
"""Files of the folder that they are spread over."""
SECONDS_MAX: Final = 2.0
"""For ten thousand of them."""


def rule(number: int) -> str:
    """One rule, as YAML."""
    return f"""\
watch-{number}:
  triggers:
    - every: {number % 50 + 10}m
  when: time.hour >= {number % 24} && units["unit-{number % 100}"].state == "healthy" && values.level < {number}
  actions:
    - notify: "{{{{ rule.name }}}} was fired at {{{{ trigger.at }}}}"
"""


def load(count: int, *, files: int = FILES) -> float:
    """Seconds to read and check so many rules, in a folder of so many files; 0: all of them in flyball.yaml itself."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "flyball.yaml"
        if files:
            file.write_text("rules_dir: rules\n")
            folder = Path(place) / "rules"
            folder.mkdir()
            for number in range(files):
                some = range(number, count, files)
                (folder / f"{number:03}.yaml").write_text("".join(rule(each) for each in some))
        else:
            indented = "".join(f"  {line}\n" for number in range(count) for line in rule(number).splitlines())
            file.write_text(f"rules:\n{indented}")
        found = 0

        def work() -> None:
            nonlocal found
            plan, _ = read_plan(file, {})
            found = len(plan.rules)

        took = seconds(work)
        assert found == count, (found, count)
        return took


def main(arguments: list[str]) -> int:
    """Print how long it took, in both shapes."""
    count = int(arguments[0]) if arguments else 10_000
    load(1)  # What is imported once is no part of it.
    for files, shape in ((FILES, f"{FILES} files of a folder"), (0, "one file")):
        print(f"{count:,} rules in {shape}: {load(count, files=files):.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
