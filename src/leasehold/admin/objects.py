"""Objects and storage hosts for operators: what `leasehold objects` and `leasehold hosts` show, and their routes."""

from __future__ import annotations

from typing import Final, Protocol

from aiohttp import web
from msgspec import Struct

from leasehold.admin.access import Access
from leasehold.admin.guard import Route, fields_of, json_answer
from leasehold.admin.status import Operated

PAGE_MAX: Final = 1_000
PAGE_DEFAULT: Final = 100


class ObjectLine(Struct, frozen=True):
    """One object of a listing."""

    key: str
    size: int
    replicas: int
    readable: bool
    lease_left_ms: int  # 0: no lease protects it
    pin: str = ""  # "hard", "soft" or ""


class ObjectPage(Struct, frozen=True):
    """Some objects of a tenant, in the order of the index's tables. `next`: continue there; "" at the end."""

    objects: tuple[ObjectLine, ...]
    next: str = ""


class ReplicaPlace(Struct, frozen=True):
    """One copy of an object."""

    segment: str
    endpoint: str
    address: int
    complete: bool
    owner_known: bool  # False after a complete restart, until the host's first ping


class ObjectDetails(Struct, frozen=True, kw_only=True):
    """Everything about one object."""

    key: str
    tenant: str
    size: int
    state: str
    replicas: tuple[ReplicaPlace, ...]
    lease_left_ms: int
    soft_pin_left_ms: int
    hard_pin: bool
    group: str
    client: str  # that put it
    put_n: int  # the record that started it
    changed_n: int  # the last record that changed it
    reasons: tuple[str, ...]  # why it is still here


class StoryLine(Struct, frozen=True):
    """One record of the journal that concerns an object."""

    n: int
    wall_us: int
    text: str


class ObjectStory(Struct, frozen=True):
    """The records of the journal about a key, and the conclusion."""

    lines: tuple[StoryLine, ...]
    conclusion: str
    first_n: int  # records before this one were not looked at


class HostLine(Struct, frozen=True):
    """One segment of a storage host."""

    name: str
    endpoint: str
    protocol: str
    client: str
    size: int
    used: int
    state: str
    pinged_ms: int  # time since its last ping


class HostPage(Struct, frozen=True):
    hosts: tuple[HostLine, ...]
    next: str = ""


class ObjectsFace(Protocol):
    """The part of a running node for these routes. All but `story` need the primary."""

    async def list_objects(self, tenant: str, prefix: str, after: str, limit: int) -> ObjectPage: ...

    async def show_object(self, tenant: str, key: str) -> ObjectDetails | None: ...

    async def story(self, tenant: str, key: str) -> ObjectStory: ...

    async def list_hosts(self, after: str, limit: int) -> HostPage: ...

    async def remove_host(self, name: str, force: bool) -> Operated: ...


def object_routes(face: ObjectsFace) -> tuple[Route, ...]:
    async def objects(request: web.Request) -> web.Response:
        query = request.query
        page = await face.list_objects(
            query.get("tenant", ""), query.get("prefix", ""), query.get("after", ""), _limit(request)
        )
        return json_answer(page)

    async def one(request: web.Request) -> web.Response:
        found = await face.show_object(request.query.get("tenant", ""), request.query.get("key", ""))
        if found is None:
            return json_answer({"error": "the index has no object of this name"}, 404)
        return json_answer(found)

    async def story(request: web.Request) -> web.Response:
        return json_answer(await face.story(request.query.get("tenant", ""), request.query.get("key", "")))

    async def hosts(request: web.Request) -> web.Response:
        return json_answer(await face.list_hosts(request.query.get("after", ""), _limit(request)))

    async def remove(request: web.Request) -> web.Response:
        fields = await fields_of(request)
        outcome = await face.remove_host(fields.get("name", ""), fields.get("force", "") == "true")
        return json_answer(outcome, 200 if outcome.done else 409)

    return (
        Route("GET", "/api/objects", Access.READ, objects),
        Route("GET", "/api/objects/one", Access.READ, one),
        Route("GET", "/api/objects/story", Access.READ, story),
        Route("GET", "/api/hosts", Access.READ, hosts),
        Route("POST", "/api/hosts/remove", Access.OPERATE, remove),
    )


def _limit(request: web.Request) -> int:
    text = request.query.get("limit", str(PAGE_DEFAULT))
    if not text.isdecimal() or not int(text):
        raise web.HTTPBadRequest(text=f"limit = {text!r} is not a number from 1 to {PAGE_MAX}")
    return min(int(text), PAGE_MAX)
