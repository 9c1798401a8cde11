"""A session that always pauses: it is resumed three times, from its checkpoint, and then not any more.

    FLYBALL_STATE_DIR=$(mktemp -d) python examples/sessions/resume_loop.py
    flyball sessions --json     # with the same FLYBALL_STATE_DIR

What it did is kept. Run it again, and it is refused at once; `flyball resume digest` gives it another three.
"""

import logging
import sys

import flyball

PAGES = [f"page {number}" for number in range(1, 101)]


def digest(session: flyball.SessionContext) -> list[str]:
    """Reads one page, then the provider's limit is reached, again and again."""
    notes: list[str] = session.checkpoint.get("notes", [])
    for page in session.input["pages"][len(notes) :]:
        with session.stage(page, cost="0.01") as stage:
            notes.append(f"summary of {page}")
            session.checkpoint["notes"] = notes
            stage.spent("0.004")
        print(f"read {page}; resumed {session.resumed} times so far")
        session.pause("rate_limit", resume_after=0.3)
    return notes


def main() -> None:
    """Run it until it is done, or has failed."""
    logging.basicConfig(level=logging.INFO, format="flyball: %(message)s", stream=sys.stdout)
    with flyball.open("digests") as guard:
        work = guard.session("digest", digest, input={"pages": PAGES})
        try:
            work.run(wait=True)
        except flyball.SessionFailed as failed:
            print(f"\nfailed: {failed}\nwhat to do: {failed.remedy}\nmetadata: {failed.metadata}")
        print(f"\nstatus: {work.status}; kept: {', '.join(f'{kept.id} ({kept.stage})' for kept in work.checkpoints)}")


if __name__ == "__main__":
    main()
