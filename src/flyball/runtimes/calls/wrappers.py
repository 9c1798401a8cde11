"""Guarded functions, one wrapper a colour: plain, coroutine, generator, asynchronous generator.

They differ in how they wait and in what their result is, and in nothing else. A generator is one attempt from its first
item to its last; it is tried again only as long as nobody has seen an item.
"""

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from flyball.runtimes.calls.account import ENTERED

if TYPE_CHECKING:
    from flyball.runtimes.calls.call import Call

P = ParamSpec("P")
R = TypeVar("R")


def guarded(call: "Call", function: Callable[P, R]) -> Callable[P, R]:
    """The function behind the call."""
    if not callable(function):
        raise TypeError(f"{call.name!r} guards functions; {function!r} cannot be called")
    for is_one, wrapper in (
        (inspect.iscoroutinefunction, _coroutine),
        (inspect.isasyncgenfunction, _async_generator),
        (inspect.isgeneratorfunction, _generator),
    ):
        # An object that is called like a function is what its `__call__` is.
        if is_one(function) or is_one(getattr(function, "__call__", None)):  # noqa: B004 - it is looked at, not called
            return cast("Callable[P, R]", wrapper(call, cast("Any", function)))
    return _function(call, function)


def _function(call: "Call", function: Callable[P, R]) -> Callable[P, R]:
    take, hold, spends, looks_at_result = call.take, call.holder.hold, call.spends, call.used_of is not None

    @functools.wraps(function)
    def guarded_function(*args: P.args, **kwargs: P.kwargs) -> R:
        number, before = 1, None
        while True:
            leave = take()
            if leave is None:
                leave = hold(call.asking(args, kwargs, before))
            entry = ENTERED.set((*ENTERED.get(), (call, leave))) if spends else None
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                before = None
                delay = hold(call.failing(leave, error, number))
                if delay is None:
                    raise
                before = error
            else:
                before = None
                if leave.single or looks_at_result:
                    hold(call.succeeding(leave, result))
                else:
                    leave.account.done.append(leave)
                return result
            finally:
                if entry is not None:
                    ENTERED.reset(entry)
            call.holder.sleep(delay)
            number += 1

    return guarded_function


def _coroutine(call: "Call", function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    take, hold, spends, looks_at_result = call.take, call.holder.hold_soon, call.spends, call.used_of is not None

    @functools.wraps(function)
    async def guarded_coroutine(*args: P.args, **kwargs: P.kwargs) -> R:
        number, before = 1, None
        while True:
            leave = take()
            if leave is None:
                leave = await hold(call.asking(args, kwargs, before))
            entry = ENTERED.set((*ENTERED.get(), (call, leave))) if spends else None
            try:
                result = await function(*args, **kwargs)
            except GeneratorExit:  # it is thrown away, in whatever context, and must not wait any more
                entry = None
                leave.cut = True
                call.left_early(leave)
                raise
            except BaseException as error:
                before = None
                delay = await hold(call.failing(leave, error, number))
                if delay is None:
                    raise
                before = error
            else:
                before = None
                if leave.single or looks_at_result:
                    await hold(call.succeeding(leave, result))
                else:
                    leave.account.done.append(leave)
                return result
            finally:
                if entry is not None:
                    ENTERED.reset(entry)
            await call.holder.sleep_soon(delay)
            number += 1

    return guarded_coroutine


def _generator(call: "Call", function: Callable[P, Generator[Any, Any, Any]]) -> Callable[P, Generator[Any, Any, Any]]:
    hold = call.holder.hold

    @functools.wraps(function)
    def guarded_generator(*args: P.args, **kwargs: P.kwargs) -> Generator[Any, Any, Any]:
        number, before = 1, None
        while True:
            leave = call.take()
            if leave is None:
                leave = hold(call.asking(args, kwargs, before))
            items = function(*args, **kwargs)
            seen = False
            move: Callable[[], Any] = functools.partial(next, items)
            try:
                while True:
                    # The caller's code runs between two items, and is not inside the attempt.
                    entry = ENTERED.set((*ENTERED.get(), (call, leave)))
                    try:
                        item = move()
                    finally:
                        ENTERED.reset(entry)
                    seen = True
                    try:
                        move = functools.partial(items.send, (yield item))
                    except GeneratorExit:
                        items.close()
                        call.left_early(leave)
                        raise
                    except BaseException as thrown:  # noqa: BLE001 - it is handed on, and comes out below if it is not caught
                        move = functools.partial(items.throw, thrown)
            except GeneratorExit:
                raise
            except StopIteration as end:
                hold(call.succeeding(leave, end.value))
                return end.value
            except BaseException as error:
                before = None
                delay = hold(call.failing(leave, error, number))
                if seen or delay is None:
                    raise
                before = error
            call.holder.sleep(delay)
            number += 1

    return guarded_generator


def _async_generator(
    call: "Call", function: Callable[P, AsyncGenerator[Any, Any]]
) -> Callable[P, AsyncGenerator[Any, Any]]:
    hold = call.holder.hold_soon

    @functools.wraps(function)
    async def guarded_async_generator(*args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[Any, Any]:
        number, before = 1, None
        while True:
            leave = call.take()
            if leave is None:
                leave = await hold(call.asking(args, kwargs, before))
            items = function(*args, **kwargs)
            seen = False
            move: Callable[[], Any] = functools.partial(anext, items)
            try:
                while True:
                    entry = ENTERED.set((*ENTERED.get(), (call, leave)))
                    try:
                        item = await move()
                    finally:
                        ENTERED.reset(entry)
                    seen = True
                    try:
                        move = functools.partial(items.asend, (yield item))
                    except GeneratorExit:
                        await items.aclose()
                        await hold(call.succeeding(leave))
                        raise
                    except BaseException as thrown:  # noqa: BLE001 - it is handed on, and comes out below if it is not caught
                        move = functools.partial(items.athrow, thrown)
            except GeneratorExit:
                raise
            except StopAsyncIteration:
                await hold(call.succeeding(leave))
                return
            except BaseException as error:
                before = None
                delay = await hold(call.failing(leave, error, number))
                if seen or delay is None:
                    raise
                before = error
            await call.holder.sleep_soon(delay)
            number += 1

    return guarded_async_generator
