"""Transactions: compares of everything, branches, nesting, one revision, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence

from leasehold.mvcc.errors import Code
from leasehold.mvcc.model import (
    Compare,
    CompareResult,
    CompareTarget,
    DeleteRange,
    DeleteResult,
    Op,
    Put,
    PutResult,
    Range,
    RangeResult,
    Txn,
    TxnResult,
)
from leasehold.testing.conformance.kit import Kit, NotConforming, expect

EQUAL, GREATER, LESS, NOT_EQUAL = CompareResult


async def holds(kit: Kit, *compare: Compare) -> bool:
    return (await kit.coord.txn(compare)).succeeded


async def a_transaction_is_one_revision(kit: Kit) -> None:
    before = await kit.put("a", "1")
    result = await kit.coord.txn((), [Put(kit.key("b"), b"2"), Put(kit.key("c"), b"3"), DeleteRange(kit.key("a"))])
    expect((result.succeeded, result.header.revision), (True, before + 1))
    expect([(await kit.one(name)).mod_revision for name in "bc"], [before + 1] * 2)
    expect([type(item) for item in result.results], [PutResult, PutResult, DeleteResult])


async def a_transaction_sees_its_own_writes(kit: Kit) -> None:
    result = await kit.coord.txn((), [Put(kit.key("a"), b"1"), Range(kit.key("a")), Range(kit.prefix, kit.end)])
    read, ranged = result.results[1], result.results[2]
    if not isinstance(read, RangeResult) or not isinstance(ranged, RangeResult):
        raise NotConforming(f"a read in a transaction answered {read!r} and {ranged!r}")
    expect([kv.value for kv in read.kvs], [b"1"])
    expect((read.kvs[0].mod_revision, read.header.revision), (result.header.revision,) * 2)
    expect(ranged.count, 1)


async def a_transaction_that_writes_nothing_makes_no_revision(kit: Kit) -> None:
    before = await kit.put("a")
    result = await kit.coord.txn((), [Range(kit.key("a")), DeleteRange(kit.key("no"))], [Put(kit.key("a"))])
    expect(result.header.revision, before)
    expect((await kit.coord.txn()).succeeded, True, "an empty transaction")


async def the_other_branch_is_taken_if_any_compare_fails(kit: Kit) -> None:
    await kit.put("a", "1")
    good = Compare(kit.key("a"), CompareTarget.VALUE, EQUAL, b"1")
    bad = Compare(kit.key("a"), CompareTarget.VERSION, EQUAL, 5)
    result = await kit.coord.txn([good, bad], [Put(kit.key("x"))], [Put(kit.key("y")), Range(kit.key("a"))])
    expect((result.succeeded, len(result.results)), (False, 2))
    expect((await kit.exists("x"), await kit.exists("y")), (False, True))


async def every_compare_of_every_target(kit: Kit) -> None:
    lease = await kit.coord.lease_grant(60, (1 << 62) + 12345)
    await kit.put("a", "m")
    await kit.put("a", "m", lease=lease.id)
    kv = await kit.one("a")
    operands: dict[CompareTarget, int | bytes] = {
        CompareTarget.VERSION: kv.version,
        CompareTarget.CREATE: kv.create_revision,
        CompareTarget.MOD: kv.mod_revision,
        CompareTarget.LEASE: kv.lease,
        CompareTarget.VALUE: kv.value,
    }
    for target, same in operands.items():
        lower: int | bytes = same - 1 if isinstance(same, int) else b"a"
        higher: int | bytes = same + 1 if isinstance(same, int) else b"z"
        for result, verdicts in {
            EQUAL: (False, True, False),
            GREATER: (True, False, False),
            LESS: (False, False, True),
            NOT_EQUAL: (True, False, True),
        }.items():
            found = [
                await holds(kit, Compare(kit.key("a"), target, result, operand)) for operand in (lower, same, higher)
            ]
            expect(tuple(found), verdicts, f"{target.name} {result.name}")
    await kit.coord.lease_revoke(lease.id)


async def compares_of_a_missing_key(kit: Kit) -> None:
    key = kit.key("no")
    for target in (CompareTarget.VERSION, CompareTarget.CREATE, CompareTarget.MOD, CompareTarget.LEASE):
        expect(await holds(kit, Compare(key, target, EQUAL, 0)), True, f"{target.name} of nothing is 0")
        expect(await holds(kit, Compare(key, target, LESS, 1)), True)
    for result in CompareResult:
        found = await holds(kit, Compare(key, CompareTarget.VALUE, result, b""))
        expect(found, False, f"the value of nothing compares with nothing ({result.name})")


async def compares_of_ranges_must_hold_for_every_key(kit: Kit) -> None:
    await kit.put("r/a", "1")
    await kit.put("r/b", "1")
    start, end = kit.key("r/"), kit.key("r0")
    value = CompareTarget.VALUE
    expect(await holds(kit, Compare(start, value, EQUAL, b"1", end)), True)
    await kit.put("r/b", "2")
    expect(await holds(kit, Compare(start, value, EQUAL, b"1", end)), False)
    expect(await holds(kit, Compare(start, value, LESS, b"3", end)), True)
    empty = kit.key("s"), kit.key("t")
    expect(await holds(kit, Compare(empty[0], value, EQUAL, b"1", empty[1])), False, "no keys, by value")
    expect(await holds(kit, Compare(empty[0], CompareTarget.CREATE, EQUAL, 0, empty[1])), True, "no keys, by create")


async def transactions_nest(kit: Kit) -> None:
    await kit.put("a", "1")
    here = Compare(kit.key("a"), CompareTarget.VERSION, GREATER, 0)
    gone = Compare(kit.key("b"), CompareTarget.VERSION, GREATER, 0)
    inner = Txn((gone,), (Put(kit.key("x")),), (Put(kit.key("y")), Range(kit.key("a"))))
    result = await kit.coord.txn([here], [Put(kit.key("c")), inner])
    nested = result.results[1]
    if not isinstance(nested, TxnResult):
        raise NotConforming(f"a nested transaction answered {nested!r}")
    expect((nested.succeeded, len(nested.results)), (False, 2))
    expect((await kit.one("y")).mod_revision, (await kit.one("c")).mod_revision, "one revision for all")


async def a_key_may_be_written_only_once(kit: Kit) -> None:
    duplicate = "etcdserver: duplicate key given in txn request"
    a, b = Put(kit.key("a")), Put(kit.key("b"))
    refused: dict[str, Sequence[Op]] = {
        "two puts": [a, b, a],
        "put and deletion": [a, DeleteRange(kit.key("a"))],
        "put and deletion of a range around it": [DeleteRange(kit.prefix, kit.end), a],
        "put, and put in a nested transaction": [a, Txn((), (a,))],
        "deletion, and put in a nested transaction": [DeleteRange(kit.key("a")), Txn((), (), (a,))],
    }
    for ops in refused.values():
        await kit.refuses(kit.coord.txn((), ops), duplicate, Code.INVALID_ARGUMENT)
        await kit.refuses(kit.coord.txn((), (), ops), duplicate, Code.INVALID_ARGUMENT)
    await kit.coord.txn((), [a], [a])
    await kit.coord.txn((), [Txn((), (a,), (a,)), b])
    await kit.coord.txn((), [DeleteRange(kit.key("a")), DeleteRange(kit.prefix, kit.end)])


async def a_transaction_has_a_size(kit: Kit) -> None:
    puts = [Put(kit.key(f"{number:03}")) for number in range(129)]
    too_many = "etcdserver: too many operations in txn request"
    await kit.refuses(kit.coord.txn((), puts), too_many, Code.INVALID_ARGUMENT)
    compares = [Compare(kit.key("a"), CompareTarget.VERSION, EQUAL, 0)] * 129
    await kit.refuses(kit.coord.txn(compares), too_many, Code.INVALID_ARGUMENT)
    expect(len((await kit.coord.txn((), puts[:128])).results), 128)


async def a_bad_operation_refuses_all(kit: Kit) -> None:
    empty = "etcdserver: key is not provided"
    for op in (Put(b""), Range(b""), DeleteRange(b"")):
        await kit.refuses(kit.coord.txn((), [Put(kit.key("a")), op]), empty, Code.INVALID_ARGUMENT)
    compare = Compare(b"", CompareTarget.VERSION, EQUAL, 0)
    await kit.refuses(kit.coord.txn([compare], [Put(kit.key("a"))]), empty, Code.INVALID_ARGUMENT)
    unknown_lease = Put(kit.key("b"), lease=987654321)
    await kit.refuses(
        kit.coord.txn((), [Put(kit.key("a")), unknown_lease]), "etcdserver: requested lease not found", Code.NOT_FOUND
    )
    expect(await kit.exists("a"), False)


async def reads_in_transactions_take_options(kit: Kit) -> None:
    first = await kit.put("a", "1")
    await kit.put("a", "2")
    result = await kit.coord.txn((), [Range(kit.key("a"), revision=first), Range(kit.prefix, kit.end, count_only=True)])
    old, count = result.results
    if not isinstance(old, RangeResult) or not isinstance(count, RangeResult):
        raise NotConforming(f"reads in a transaction answered {result.results!r}")
    expect((old.kvs[0].value, count.count, count.kvs), (b"1", 1, ()))
    future = kit.coord.txn((), [Range(kit.key("a"), revision=first + 1_000_000), Put(kit.key("b"))])
    await kit.refuses(future, "etcdserver: mvcc: required revision is a future revision", Code.OUT_OF_RANGE)
    expect(await kit.exists("b"), False)
