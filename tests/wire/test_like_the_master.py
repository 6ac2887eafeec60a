"""Call by call our master answers as the C++ one does, also where a feature is off and where the call is nonsense."""

from __future__ import annotations

from tests.wire.conftest import need
from tests.wire.conversation import STEPS, talk

from leasehold.testing.mooncake import NEWEST, MooncakeMaster, StandaloneMaster
from leasehold.wire.tables import V0_3_13

# Where we differ on purpose, by the number of the step: what we say instead, and why.
ON_PURPOSE: dict[int, tuple[str, str]] = {
    73: (
        "-1300",
        "the tier is off: a copy on disk that is not recorded must not be acknowledged (P1)",
    ),
    75: ("-704", "the C++ master created an object in step 73"),
    76: ("-704", "as above"),
    78: (
        "-704",
        "the C++ master creates an object for a reported copy on disk (step 73), of an unknown version",
    ),
    79: ("-704", "as above"),
    88: (
        "PingResponse(view_version=0, client_status=1)",
        "a mount registers its client immediately; the C++ master needs every call twice",
    ),
    104: (
        "-703",
        "an unfinished put is not thrown away while its writer may be writing, also not by an upsert (schedule 8c)",
    ),
    210: (
        "0",
        "objects are removed with their memory; the C++ master clears them later, and may still count them",
    ),
    217: (
        "-102",
        "the id of a segment that is there, with other data: the C++ master says yes, and keeps the old data",
    ),
    266: ("False", "tenants are apart; the C++ master has only one, unless --enable_multi_tenants"),
    267: ("-704", "as above"),
}


def test_every_function_is_called() -> None:
    assert {step[0] for step in STEPS} == set(V0_3_13.functions)


async def test_the_whole_conversation_is_the_same() -> None:
    need(NEWEST)
    with (
        MooncakeMaster("--default_kv_lease_ttl=60000", "--client_ttl=600") as theirs,
        StandaloneMaster("--lease-ttl", "60s", "--client-ttl", "600s") as ours,
    ):
        expected = await talk("127.0.0.1", theirs.rpc_port)
        found = await talk("127.0.0.1", ours.rpc_port)
    for number, (answer, _why) in ON_PURPOSE.items():
        expected[number] = expected[number].rpartition(" -> ")[0] + " -> " + answer
    assert found == expected
