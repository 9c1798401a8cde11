"""Command lines of agents: how each is called without a person at the terminal, and what makes it go on with its last
conversation. As their own documentation has it; each is offered only if it is installed."""

import shutil
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from flyball.starting.found import Offer

ON_PATH: Final = "PATH"
"""Where it was found."""
TASK: Final = "Fix the failing tests, then stop."


class Agent(NamedTuple):
    """One command line."""

    program: str
    called: str
    arguments: tuple[str, ...]
    continue_args: tuple[str, ...]
    """Added after a failure: it goes on with its last conversation in that folder."""


AGENTS: Final = (
    Agent("claude", "Claude Code", ("-p", TASK), ("--continue",)),
    Agent("codex", "Codex CLI", ("exec", TASK), ("resume", "--last")),
    Agent("gemini", "Gemini CLI", ("--prompt", TASK), ("--resume", "latest")),
    Agent("qwen", "Qwen Code", ("-p", TASK), ("--continue",)),
    Agent("copilot", "GitHub Copilot CLI", ("-p", TASK), ("--continue",)),
    Agent("cursor-agent", "Cursor CLI", ("-p", TASK), ("--continue",)),
    Agent("opencode", "OpenCode", ("run", TASK), ("--continue",)),
    Agent("goose", "goose", ("run", "--name", "flyball", "--text", TASK), ("--resume",)),
    Agent("aider", "Aider", ("--yes-always", "--message", TASK), ("--restore-chat-history",)),
)


def find(which: Callable[[str], str | None] = shutil.which) -> Iterator[Offer]:
    """Those that are installed."""
    for agent in AGENTS:
        if which(agent.program) is not None:
            yield Offer(
                name=agent.program,
                source=ON_PATH,
                command=(agent.program, *agent.arguments),
                more={"continue_args": list(agent.continue_args), "deadline": "2h"},
                note=f"{agent.called}. What it may do without asking is set by its own options.",
            )
