"""DBOS workflows under a guard: each is a session, checkpointed by DBOS, bounded by flyball.

    guarded = Guarded(flyball.open("research"))

    @guarded.workflow(budget="2.00", resumes=3)
    def research(topic: str) -> str: ...

    @guarded.step(cost="0.05")
    def ask_model(question: str) -> str: ...

The first execution is a start, each recovery a resume, and both are counted before the workflow's own code runs. Each
step asks leave before it is made; one that DBOS replays from its checkpoint asks nothing.
"""

from flyball.integrations.dbos.errors import WorkflowLeft
from flyball.integrations.dbos.guarded import Guarded

__all__ = ["Guarded", "WorkflowLeft"]
