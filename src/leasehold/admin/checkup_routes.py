"""The routes for `leasehold doctor` and `leasehold config`."""

from __future__ import annotations

from aiohttp import web

from leasehold.admin.access import Access
from leasehold.admin.checkup import CheckupFace
from leasehold.admin.guard import Route, json_answer


def checkup_routes(face: CheckupFace) -> tuple[Route, ...]:
    async def clock(_: web.Request) -> web.Response:
        return json_answer(face.clock())

    async def config(_: web.Request) -> web.Response:
        return json_answer(face.config())

    async def checkup(_: web.Request) -> web.Response:
        return json_answer(await face.checkup())

    return (
        Route("GET", "/api/clock", Access.READ, clock),
        Route("GET", "/api/config", Access.READ, config),
        Route("GET", "/api/checkup", Access.READ, checkup),
    )
