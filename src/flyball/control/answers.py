"""The command that answers what a unit asks a person. The answer is submitted to the governor with who gave it and by
which channel; whoever waits for it reads it from the journal."""

from collections.abc import Sequence
from typing import Any

from flyball.control.context import Args, CommandError, Context, known_unit
from flyball.control.shapes import QuestionView
from flyball.control.text import question_text
from flyball.core.event import NOTE_MAX, Answered


def answer(context: Context, args: Args) -> Any:
    """Answer the one open question of a unit, or the one whose id begins so."""
    look = context.look()
    unit = known_unit(look, args["unit"])
    question = _the_one(unit, look.unit(unit).questions, args["id"])
    said = _allowed(question, args["answer"].strip())
    before = context.governor.store.read(()).seq
    mine = Answered(
        unit=unit,
        run=question.run,
        id=question.id,
        answer=said,
        heard=True,
        by=context.who,
        note=f"via {context.channel}",
    )
    context.governor.submit(mine)
    first = context.governor.first_answer(unit, question.id, after=before)
    if first is not None and first != mine:
        text = f"{question.text!r} was answered a moment before: {first.answer or 'it waits no more'}"
        by = f" by {first.by}" if first.by else ""
        raise CommandError("not_found", text + by, remedy=f"`flyball why {unit}` shows what it does now.")
    return {"unit": look.unit(unit), "question": question, "answer": said}


def _the_one(unit: str, questions: Sequence[QuestionView], prefix: str | None) -> QuestionView:
    found = [question for question in questions if question.id.startswith(prefix or "")]
    if len(found) == 1:
        return found[0]
    there_are = "; ".join(
        f"{question.id}: {question_text(question.text, question.choices)}" for question in found or questions
    )
    if found:
        remedy = f"Say which one: `flyball answer {unit} --id {found[0].id} TEXT`."
        raise CommandError("ambiguous", f"{unit} asks {len(found)} questions: {there_are}", remedy=remedy)
    if questions:
        text = f"{unit} has no open question with an id that begins with {prefix!r}; there are {there_are}"
        raise CommandError("not_found", text, remedy="Leave out the id if there is only one.")
    remedy = "`flyball status` shows who asks something. A question is open until it is answered or its run ends."
    raise CommandError("not_found", f"{unit} asks nothing", remedy=remedy)


def _allowed(question: QuestionView, said: str) -> str:
    """The answer as it was offered. CommandError if it is none that can be given."""
    if not said:
        raise CommandError("bad_argument", "an answer without a text", remedy="Say it: `flyball answer UNIT TEXT`.")
    if len(said) > NOTE_MAX:
        text = f"an answer of {len(said)} characters; allowed: {NOTE_MAX}"
        raise CommandError("bad_argument", text, remedy="Answer in short, and say where the rest can be read.")
    if not question.choices or said in question.choices:
        return said
    for choice in question.choices:
        if choice.casefold() == said.casefold():
            return choice
    offered = ", ".join(question.choices)
    text = f"{said!r} is no answer to {question.text!r}; there are {offered}"
    raise CommandError("bad_argument", text, remedy="Give one of these.")
