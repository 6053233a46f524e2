"""Run work on many things at once, and return the results in their order."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


async def in_order(
    work: Callable[[Item], Awaitable[Result]], items: Sequence[Item], limit: int
) -> list[Result]:
    """Return the result of each item; at most `limit` are worked on at once, one after another for 1.

    The first exception cancels the others and is raised.
    """
    if limit == 1:
        return [await work(one) for one in items]
    room = asyncio.Semaphore(limit)

    async def one_of(item: Item) -> Result:
        async with room:
            return await work(item)

    tasks = [asyncio.ensure_future(one_of(one)) for one in items]
    try:
        return [*await asyncio.gather(*tasks)]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
