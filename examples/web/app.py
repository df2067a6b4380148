"""A web application that hands its slow work to workers, and tells what became of it.

In this folder, after ``pip install shmq fastapi uvicorn``:

    uvicorn app:app --workers 2                 # the pages; any number of processes
    shmq worker app:shrink --processes 2        # the work; again at once if a worker is killed
    curl -H 'Content-Type: application/json' -d '{"picture": "tea.png", "width": 100}' \
        localhost:8000/thumbnails               # {"id": "…"}
    curl localhost:8000/thumbnails/ID           # {"state": "done", "thumbnail": "tea-100.png"}
"""

from __future__ import annotations

import contextlib
import functools
import uuid
from collections.abc import AsyncIterator
from pathlib import PurePath
from typing import Any

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field

import shmq

#: How long a result can be asked for, in seconds.
KEPT = 3600.0


@functools.cache
def broker() -> shmq.Broker:
    """The broker of this process: where SHMQ_URL or SHMQ_NAMESPACE says."""
    return shmq.connect()


@functools.cache
def jobs() -> shmq.Queue:
    """What the workers are to do; a queue that is full refuses."""
    return broker().ensure_queue("thumbnails", capacity=10_000, max_deliveries=3)


@functools.cache
def results() -> shmq.Table:
    """What became of each order."""
    return broker().ensure_table("thumbnails.results")


# ---- the pages ----


@contextlib.asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Make the queue before the first request; leave it at the end."""
    jobs()
    yield
    broker().close()


app = FastAPI(title="Thumbnails", lifespan=lifespan)


class Order(BaseModel):
    picture: str = Field(min_length=1, max_length=200)
    width: int = Field(ge=1, le=4096)


# Functions without ``async`` run in threads of FastAPI's, so they may wait for a second.
@app.post("/thumbnails", status_code=202)
def order(order: Order) -> dict[str, str]:
    """Take an order; 503 if the workers are far behind."""
    number = uuid.uuid4().hex
    results().set(number, {"state": "waiting"}, ttl=KEPT)
    try:
        jobs().put({"id": number, **order.model_dump()}, timeout=1.0, ttl=KEPT)
    except shmq.Full:
        results().delete(number)
        raise HTTPException(503, "too much to do", {"Retry-After": "5"}) from None
    return {"id": number}


@app.get("/thumbnails/{number}")
def look(number: str) -> dict[str, Any]:
    """What became of an order."""
    found: dict[str, Any] | None = results().get(number)
    if found is None:
        raise HTTPException(404, "no such order exists, or it is too old")
    return found


# ---- the work ----


def shrink(message: shmq.Message) -> None:
    """Make one thumbnail. It may be called twice for an order: the result is the same."""
    number, picture = message.body["id"], PurePath(message.body["picture"])
    if picture.suffix not in {".png", ".jpg"}:
        why = f"{picture.name} is not a picture: give a .png or .jpg"
        results().set(number, {"state": "failed", "why": why}, ttl=KEPT)
        raise shmq.Reject(why)  # no retry can help
    made = f"{picture.stem}-{message.body['width']}{picture.suffix}"
    results().set(number, {"state": "done", "thumbnail": made}, ttl=KEPT)
