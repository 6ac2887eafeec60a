"""Mooncake's admin routes for the quotas of tenants."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from aiohttp import web
from msgspec import Struct

from leasehold.admin.access import Access
from leasehold.admin.guard import Route, body_of
from leasehold.admin.mooncake_routes import BAD_PARAMS, MOONCAKE, json_answer
from leasehold.admin.mooncake_state import MooncakeRefused, TenantQuotaInfo
from leasehold.base.decoding import UNDECODABLE
from leasehold.base.limits import quota_bytes_max

NOT_FOUND: Final = -704


class _Policy(Struct):
    requested_quota_bytes: int = 0


async def _quotas(request: web.Request) -> web.Response:
    quotas = await request.app[MOONCAKE].quotas()
    if not request.query.get("tenant_id"):
        return json_answer({"success": True, "data": quotas})
    tenant = _tenant(request)
    for quota in quotas:
        if quota.tenant_id.encode(errors="surrogateescape") == tenant:
            return _answer(quota)
    raise MooncakeRefused(404, NOT_FOUND, "OBJECT_NOT_FOUND")


async def _set_quota(request: web.Request) -> web.Response:
    tenant = _tenant(request)
    try:
        wanted = msgspec.json.decode(await body_of(request), type=_Policy).requested_quota_bytes
    except UNDECODABLE as error:
        raise MooncakeRefused(400, BAD_PARAMS, f"Invalid JSON body: {error}") from None
    if not 0 < wanted <= quota_bytes_max:
        raise MooncakeRefused(400, BAD_PARAMS, "Tenant quota must be in [1, 2^63 - 1] bytes")
    return _answer(await request.app[MOONCAKE].set_quota(tenant, wanted))


async def _delete_quota(request: web.Request) -> web.Response:
    return _answer(await request.app[MOONCAKE].delete_quota(_tenant(request)))


def _tenant(request: web.Request) -> bytes:
    tenant = request.query.get("tenant_id", "").encode(errors="surrogateescape")
    if not tenant:
        raise MooncakeRefused(400, BAD_PARAMS, "Missing or invalid tenant_id")
    return tenant


def _answer(quota: TenantQuotaInfo) -> web.Response:
    answer: dict[str, Any] = {"success": True, "data": quota}
    return json_answer(answer)


ROUTES: Final = (
    Route("GET", "/api/v1/tenant_quotas", Access.READ, _quotas),
    Route("PUT", "/api/v1/tenant_quotas", Access.OPERATE, _set_quota, pages=False),
    Route("DELETE", "/api/v1/tenant_quotas", Access.OPERATE, _delete_quota, pages=False),
)
