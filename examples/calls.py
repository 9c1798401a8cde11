"""A provider goes down and comes back: what a program with a guarded call sees. Run it: `python examples/calls.py`.

It takes about three seconds, because the circuit here opens for one second instead of a minute.
"""

import os
import tempfile
import time

import flyball

os.environ["FLYBALL_CIRCUIT_BREAKER__RECOVERY_TIMEOUT_SECONDS"] = "1"


class Down(Exception):
    """The provider does not answer."""


def main() -> None:
    """Call it while it is well, while it is down, and after."""
    with tempfile.TemporaryDirectory() as folder, flyball.open("shop", state_dir=folder) as guard:
        well = True
        made = 0

        @guard.call("fetch", breaker="provider:example", cost="0.01", budget="1.00")
        def fetch() -> str:
            nonlocal made
            made += 1
            if not well:
                raise Down
            return "an answer"

        def call(times: int) -> None:
            before = made
            seen: dict[str, int] = {}
            for _ in range(times):
                try:
                    said = fetch()
                except (Down, flyball.Refused) as error:
                    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                seen[said] = seen.get(said, 0) + 1
            for said, count in seen.items():
                print(f"  {count:3} x {said}")
            print(f"  the provider was called {made - before} times")

        print("The provider is well:")
        call(20)
        print("It goes down, and the program does not notice:")
        well = False
        call(50)
        print("It is back, and a second later so is the program:")
        well = True
        time.sleep(1.1)
        call(20)
        print("The program calls on until its money is used up:")
        call(100)


if __name__ == "__main__":
    main()
