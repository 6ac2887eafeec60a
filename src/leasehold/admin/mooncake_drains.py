"""Mooncake's admin routes for drain jobs."""

from __future__ import annotations

from typing import Final

import msgspec
from aiohttp import web
from msgspec import Struct

from leasehold.admin.access import Access
from leasehold.admin.guard import Route, body_of
from leasehold.admin.mooncake_routes import BAD_PARAMS, MOONCAKE, json_answer
from leasehold.admin.mooncake_state import MooncakeRefused
from leasehold.base.decoding import UNDECODABLE


class _Drain(Struct):
    segments: list[str] = []
    target_segments: list[str] = []
    max_concurrency: int = 4


async def _start(request: web.Request) -> web.Response:
    try:
        wanted = msgspec.json.decode(await body_of(request), type=_Drain)
    except UNDECODABLE as error:
        raise MooncakeRefused(400, BAD_PARAMS, f"Invalid JSON body: {error}") from None
    job = await request.app[MOONCAKE].start_drain(wanted.segments, wanted.target_segments, wanted.max_concurrency)
    return _answer(job, "CREATED")


async def _query(request: web.Request) -> web.Response:
    return json_answer(await request.app[MOONCAKE].query_drain(request.query.get("job_id", "")))


async def _cancel(request: web.Request) -> web.Response:
    job = request.query.get("job_id", "")
    await request.app[MOONCAKE].cancel_drain(job)
    return _answer(job, "CANCELED")


def _answer(job: str, status: str) -> web.Response:
    return json_answer({"success": True, "job_id": job, "status": status, "error_code": 0, "error_message": ""})


ROUTES: Final = (
    Route("POST", "/api/v1/drain_jobs", Access.OPERATE, _start, pages=False),
    Route("GET", "/api/v1/drain_jobs/query", Access.READ, _query),
    Route("POST", "/api/v1/drain_jobs/cancel", Access.OPERATE, _cancel, pages=False),
)
