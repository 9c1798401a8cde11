"""What a page leaves to its reader: what stands before its Python, so that it can be run as one program.

A page that is not here needs nothing. One that cannot be run is in NOT_RUN; it is compiled, and what it imports of
flyball is imported.
"""

from collections.abc import Mapping
from typing import Final

GRAPH: Final = """
from typing import TypedDict
from langgraph.graph import END, START, StateGraph

class State(TypedDict, total=False):
    question: str
    recommendation: str
    should_stop: bool
    rounds: int

builder = StateGraph(State)
builder.add_node("persona", lambda state: {"rounds": state.get("rounds", 0) + 1})
builder.add_node("synthesise", lambda state: {"recommendation": "later"})
builder.add_edge(START, "persona")
builder.add_edge("persona", "synthesise")
builder.add_edge("synthesise", END)
"""

GIVEN: Final[Mapping[str, str]] = {
    "README.md": GRAPH + "from langgraph.checkpoint.memory import InMemorySaver\nsaver = InMemorySaver()\n",
    "docs/how-to/budgets.md": """
from types import SimpleNamespace

def call_the_model(**_):
    return SimpleNamespace(cost="0.02", usage={"input_tokens": 1200, "output_tokens": 100})
""",
    "docs/how-to/dbos.md": """
from types import SimpleNamespace

def call(question):
    return SimpleNamespace(price="0.01", text="They turn their heads.")
""",
    "docs/how-to/deliberation.md": """
from typing import TypedDict
from langgraph.graph import END, START, StateGraph

class State(TypedDict, total=False):
    question: str
    should_stop: bool

graph = StateGraph(State)
for name in ("facilitator", "persona", "vote", "synthesise"):
    graph.add_node(name, lambda state: {})
for begins, ends in (
    (START, "facilitator"), ("facilitator", "cost_guard"), ("persona", "check_convergence"), ("vote", "synthesise"),
    ("synthesise", END),
):
    graph.add_edge(begins, ends)
question = "Should we move to the cloud?"
""",
    "docs/how-to/frameworks.md": GRAPH
    + """
import os
from agents import Agent as OpenAIAgent
from agents import Runner, set_tracing_disabled
from opentelemetry.sdk.trace import TracerProvider
from pydantic_ai import Agent
from tests.integrations.model_stub import ModelStub, Reply, always

stub = ModelStub(always(Reply(text="Under the mat.")))
os.environ |= {"OPENAI_BASE_URL": stub.url, "OPENAI_API_KEY": "key"}
set_tracing_disabled(True)
agent = OpenAIAgent(name="seeker", model="gpt-4o-mini")
provider = TracerProvider()
graph, state = builder.compile(), {"question": "Where is the key?"}

def look_up(word: str) -> str:
    return word
""",
    "docs/how-to/guarded-calls.md": """
from unittest.mock import MagicMock
client = MagicMock()
pybreaker = tenacity = MagicMock()

def upload(): ...
""",
    "docs/how-to/langgraph.md": GRAPH + "def paid_search(question): return []\n",
    "docs/how-to/python-agents.md": "async def fetch(page): return 'text'\n",
    "docs/how-to/sessions.md": "def read(source): return source\ndef limited(): return False\n",
    "docs/how-to/temporal.md": """
from unittest.mock import MagicMock
from temporalio import activity, workflow
client = Worker = Research = think = fetch = ask = MagicMock()
""",
}

THEN: Final[Mapping[str, str]] = {
    "docs/how-to/dbos.md": """
import time

ends = time.monotonic() + 30
while any(one.status != "SUCCESS" for one in DBOS.list_workflows()):
    assert time.monotonic() < ends, DBOS.list_workflows()
    time.sleep(0.05)
guarded.close()
DBOS.destroy()
""",
    "docs/how-to/frameworks.md": "assert len(stub.requests) == 2, stub.requests\n",
    "docs/how-to/webhook-alerts.md": """
from flyball.signing import sign

at, secret = str(int(time.time())), "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQ="
headers = {"webhook-id": "msg_1", "webhook-timestamp": at, "webhook-signature": sign(secret, "msg_1", at, b"{}")}
assert is_ours(headers, b"{}", secret)
assert not is_ours(headers, b"{ }", secret)
""",
    "docs/how-to/write-a-policy.md": "test_errors()\n",
}
"""What the reader does with it."""

NOT_RUN: Final[Mapping[str, str]] = {}
