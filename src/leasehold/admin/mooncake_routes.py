"""Mooncake's own admin routes, with the answers of the C++ master: scripts and probes that use them keep working.

Their paths, status codes and JSON names are the C++ master's, recorded from the real binary
(`tests/node/test_mooncake_admin.py` compares them). Routes that change something need the role `operate`. A further
route is a handler in `ROUTES` that uses `json_answer` and raises `MooncakeRefused`.
"""

from __future__ import annotations

import time
from typing import Any, Final

import msgspec
from aiohttp import web

from leasehold.admin.access import Access
from leasehold.admin.guard import Route
from leasehold.admin.mooncake_metrics import Summary
from leasehold.admin.mooncake_state import FoundKey, MooncakeFace, MooncakeRefused, SegmentInfo

BAD_PARAMS: Final = -600
SEGMENT_NOT_FOUND: Final = -101
MOONCAKE: web.AppKey[MooncakeFace] = web.AppKey("mooncake")
SUMMARY: web.AppKey[Summary] = web.AppKey("summary")
_GIB: Final = 1024**3
_PLAIN: Final = "text/plain; version=0.0.4"
_UTF8: Final = "text/plain; charset=utf-8"
_FOUND_DETAILS: Final = {"disk_values": None, "local_disk_values": None, "nof_values": None}


def json_answer(value: Any, status: int = 200) -> web.Response:
    headers = {"Content-Type": "application/json; charset=utf-8"}
    return web.Response(body=msgspec.json.encode(value), status=status, headers=headers)


def refused(error: MooncakeRefused) -> web.Response:
    """The answer to a refused request."""
    return json_answer({"success": False, "error_code": error.code, "error_message": str(error)}, error.status)


def _text(value: str | bytes, status: int = 200, kind: str = _PLAIN) -> web.Response:
    body = value.encode() if isinstance(value, str) else value
    return web.Response(body=body, status=status, headers={"Content-Type": kind})


async def _summary(request: web.Request) -> web.Response:
    face = request.app[MOONCAKE]
    return _text(request.app[SUMMARY].line(time.monotonic(), face.runtime_state(), face.numbers()))


async def _role(request: web.Request) -> web.Response:
    return _text(request.app[MOONCAKE].runtime_state().role, kind=_UTF8)


async def _ha_status(request: web.Request) -> web.Response:
    return _text(request.app[MOONCAKE].runtime_state().ha_state, kind=_UTF8)


async def _leader(request: web.Request) -> web.Response:
    state = request.app[MOONCAKE].runtime_state()
    present = state.leader_address is not None
    return json_answer({"present": present, "leader_address": state.leader_address, "view_version": state.view_version})


async def _kv_events(request: web.Request) -> web.Response:
    return json_answer(request.app[MOONCAKE].kv_events())


async def _query_key(request: web.Request) -> web.Response:
    (found,) = await request.app[MOONCAKE].find_keys([_raw(request.query.get("key", ""))])
    if found.code:
        raise MooncakeRefused(404, found.code, found.error)
    return json_answer({"success": True, "data": found.buffers})


async def _batch_query_keys(request: web.Request) -> web.Response:
    if not request.query.get("keys"):
        return json_answer({"success": False, "error": "No keys provided. Use ?keys=key1,key2,..."}, 400)
    keys = request.query["keys"].split(",")
    found = await request.app[MOONCAKE].find_keys([_raw(key) for key in keys])
    data = {key: _found(each) for key, each in sorted(zip(keys, found, strict=True), key=lambda pair: pair[0])}
    return json_answer({"success": True, "data": data})


def _found(found: FoundKey) -> dict[str, Any]:
    values = None if found.code else found.buffers
    return {"ok": not found.code, "error": found.error or None, "values": values, **_FOUND_DETAILS}


async def _all_keys(request: web.Request) -> web.StreamResponse:
    parts = request.app[MOONCAKE].all_keys()
    first = await anext(parts, b"")  # before the status is sent: this node may not lead
    answer = web.StreamResponse(headers={"Content-Type": _PLAIN})
    await answer.prepare(request)
    await answer.write(first)
    async for part in parts:
        await answer.write(part)
    await answer.write_eof()
    return answer


async def _all_segments(request: web.Request) -> web.Response:
    """One name on a line; SGLang waits until there is one."""
    segments = await request.app[MOONCAKE].segments()
    return _text("".join(f"{name}\n" for name in dict.fromkeys(each.segment_name for each in segments)))


async def _segments_detail(request: web.Request) -> web.Response:
    segments = await request.app[MOONCAKE].segments()
    return json_answer({"total_segments": len(segments), "segments": [_detail(each) for each in segments]})


def _detail(segment: SegmentInfo) -> dict[str, Any]:
    return {
        "segment_name": segment.segment_name,
        "segment_id": segment.segment_id,
        "client_id": segment.client_id,
        "base_address": hex(segment.base),
        "size_bytes": segment.size_bytes,
        "size_human": f"{segment.size_bytes / _GIB:g} GiB",
        "te_endpoint": segment.te_endpoint,
        "protocol": segment.protocol,
        "status": segment.status_name,
        "allocator_used_bytes": segment.used_bytes,
        "allocator_capacity_bytes": segment.size_bytes,
        "allocator_usage_percent": segment.used_bytes / segment.size_bytes * 100,
    }


async def _query_segment(request: web.Request) -> web.Response:
    name = request.query.get("segment", "")
    named = [each for each in await request.app[MOONCAKE].segments() if each.segment_name == name]
    if not named:
        return _text("Failed to query segment", 500)
    used, capacity = sum(each.used_bytes for each in named), sum(each.size_bytes for each in named)
    return _text(f"{name}\nUsed(bytes): {used}\nCapacity(bytes) : {capacity}\n")


async def _segment_status(request: web.Request) -> web.Response:
    name = request.query.get("segment", "")
    if not name:
        raise MooncakeRefused(400, BAD_PARAMS, "Missing segment query parameter")
    for each in await request.app[MOONCAKE].segments():
        if each.segment_name == name:
            status = {"success": True, "segment": name, "status": each.status, "status_name": each.status_name}
            return json_answer({**status, "error_code": 0, "error_message": ""})
    raise MooncakeRefused(404, SEGMENT_NOT_FOUND, "SEGMENT_NOT_FOUND")


async def _remove_all(request: web.Request) -> web.Response:
    force = request.query.get("force", "") in ("true", "1")
    count = await request.app[MOONCAKE].remove_all(force, _raw(request.query.get("tenant_id", "")))
    return json_answer({"success": True, "removed_count": count})


def _raw(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


ROUTES: Final = (
    Route("GET", "/metrics/summary", Access.READ, _summary),
    Route("GET", "/role", Access.OPEN, _role),
    Route("GET", "/ha_status", Access.OPEN, _ha_status),
    Route("GET", "/leader", Access.READ, _leader),
    Route("GET", "/kv_events/status", Access.READ, _kv_events),
    Route("GET", "/query_key", Access.READ, _query_key),
    Route("GET", "/batch_query_keys", Access.READ, _batch_query_keys),
    Route("GET", "/get_all_keys", Access.READ, _all_keys),
    Route("GET", "/get_all_segments", Access.READ, _all_segments),
    Route("GET", "/get_segments_detail", Access.READ, _segments_detail),
    Route("GET", "/query_segment", Access.READ, _query_segment),
    Route("GET", "/api/v1/segments/status", Access.READ, _segment_status),
    Route("POST", "/api/v1/remove_all", Access.OPERATE, _remove_all, pages=False),
)


def install(app: web.Application, face: MooncakeFace) -> None:
    """Prepare for the routes. `/health` and `/metrics` are shared with our own, and are in `server.py`."""
    app[MOONCAKE] = face
    app[SUMMARY] = Summary(time.monotonic())
