"""The commands that show and answer what units ask people. An answer is submitted to the governor with who gave it and
by which channel; whoever waits for it reads it from the journal."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from flyball.control.context import Args, CommandError, Context, known_unit, known_units
from flyball.control.shapes import OpenQuestionView, QuestionView
from flyball.control.text import counted, question_text
from flyball.core.event import NOTE_MAX, Answered
from flyball.core.time import SECOND
from flyball.policies import Question

YES: Final = frozenset(("yes", "y", "approve", "allow", "ok"))
"""Choices that mean yes, in any case of letters. Nothing that a question does not offer is taken for one."""


def questions(context: Context, args: Args) -> Any:
    """What is open: unit by unit, who asks for longest first."""
    look = context.look()
    kept = context.governor.store.states(Question.NAME)
    units = known_units(look, args["units"] or ()) or sorted({key.subject for key in kept if key.by == "unit"})
    asked = [(unit, sorted(look.unit(unit).questions, key=lambda one: one.at)) for unit in units]
    asked = sorted([(unit, open_) for unit, open_ in asked if open_], key=lambda one: one[1][0].at)
    return {
        "questions": [
            OpenQuestionView(unit=unit, **msgspec.structs.asdict(question))
            for unit, open_ in asked
            for question in open_
        ],
        "at": look.now / SECOND,
    }


def answer(context: Context, args: Args) -> Any:
    """Answer the one open question of a unit, the one whose id begins so, or all of them alike."""
    look = context.look()
    unit = known_unit(look, args["unit"])
    open_ = look.unit(unit).questions
    if args["all"] and args["id"]:
        raise CommandError("bad_argument", "one question, or all of them; not both", remedy="Leave --id or --all out.")
    chosen = open_ if args["all"] and open_ else [_the_one(unit, open_, args["id"])]
    # All are looked at before one is answered: a wrong word leaves everything as it was.
    given = [(question, _allowed(question, args["answer"].strip())) for question in chosen]
    late: list[CommandError] = []
    answered: list[dict[str, Any]] = []
    for question, said in given:
        try:
            _submit(context, unit, question, said)
        except CommandError as error:
            late.append(error)
        else:
            answered.append({"question": question, "answer": said})
    if not answered:
        raise late[0]
    return {
        "unit": context.look().unit(unit),
        "question": answered[0]["question"],
        "answer": answered[0]["answer"],
        "answered": answered,
        "too_late": [str(error) for error in late],
        "effect": "; ".join(f"{one['question'].text}: {one['answer']}" for one in answered),
    }


def approve(context: Context, args: Args) -> Any:
    """Say yes to the one open question of a unit that can be answered so, or to the one whose id begins so. It is the
    same answer as any other."""
    unit = known_unit(context.look(), args["unit"])
    open_ = context.look().unit(unit).questions
    with_yes = [question for question in open_ if _yes(question) is not None]
    question = _the_one(unit, with_yes if with_yes and not args["id"] else open_, args["id"])
    yes = _yes(question)
    if yes is None:
        offered = f"it takes {', '.join(question.choices)}" if question.choices else "it takes any words"
        text = f"{question.text!r} is not answered by a yes: {offered}"
        raise CommandError("bad_argument", text, remedy=f"Say it: `flyball answer {unit} --id {question.id} TEXT`.")
    return answer(context, {"unit": unit, "answer": yes, "id": question.id, "all": False})


def _yes(question: QuestionView) -> str | None:
    """Which of its choices is a yes, if one is."""
    return next((choice for choice in question.choices if choice.casefold() in YES), None)


def _submit(context: Context, unit: str, question: QuestionView, said: str) -> None:
    """Write the answer down. CommandError if somebody else was quicker."""
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


def _the_one(unit: str, questions: Sequence[QuestionView], prefix: str | None) -> QuestionView:
    found = [question for question in questions if question.id.startswith(prefix or "")]
    if len(found) == 1:
        return found[0]
    there_are = "; ".join(
        f"{question.id}: {question_text(question.text, question.choices)}" for question in found or questions
    )
    if found:
        remedy = f"Say which one: `flyball answer {unit} --id {found[0].id} TEXT`; or answer all alike: --all."
        raise CommandError("ambiguous", f"{unit} asks {counted(len(found), 'question')}: {there_are}", remedy=remedy)
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
