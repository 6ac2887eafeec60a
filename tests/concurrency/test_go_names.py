"""Every test of Go's package that we mirror, and every test of the first proposal, is named in a docstring here."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

CONCURRENCY = """TestGet TestResumeElection ExampleElection_Campaign ExampleMutex_TryLock ExampleMutex_Lock
ExampleSTM_apply TestMutexLockSessionExpired TestMutexUnlock TestSessionOptions TestSessionTTLOptions TestSessionCtx"""
ELECTION = """TestElectionWait TestElectionFailover TestElectionSessionRecampaign TestElectionOnPrefixOfExistingKey
TestElectionOnSessionRestart TestElectionObserveCompacted TestElectionObserveFreshResponsesOnProclaim"""
STM = """TestSTMConflict TestSTMPutNewKey TestSTMAbort TestSTMSerialize TestSTMApplyOnConcurrentDeletion
TestSTMSerializableSnapshotPut"""
SERVICES = """TestV3LockLockWaiter TestV3ElectionCampaign TestV3ElectionObserve TestCtlV3Lock TestCtlV3LockWithCmd
TestCtlV3Elect TestLeaseRevoke_IgnoreOldLeader TestLeaseRevoke_ClientSwitchToOtherMember TestLeaseRevokeDuringRenew"""
RECIPES = """TestMutexLockSingleNode TestMutexLockMultiNode TestMutexTryLockSingleNode TestMutexTryLockMultiNode
TestMutexSessionRelock TestMutexWaitsOnCurrentHolder BenchmarkMutex4Waiters TestRWMutexSingleNode
TestRWMutexMultiNode TestBarrierSingleNode TestBarrierMultiNode TestBarrierWaitNonexistentKey TestDoubleBarrier
TestDoubleBarrierTooManyClients TestDoubleBarrierFailover TestQueueOneReaderOneWriter TestQueueManyReaderOneWriter
TestQueueOneReaderManyWriter TestQueueManyReaderManyWriter TestPrQueueOneReaderOneWriter
TestPrQueueManyReaderManyWriter"""
LEASE = """TestLeaseNotFoundError TestLeaseGrant TestLeaseRevoke TestLeaseKeepAliveOnce TestLeaseKeepAlive
TestLeaseKeepAliveSeconds TestLeaseKeepAliveHandleFailure TestLeaseKeepAliveNotFound TestLeaseGrantErrConnClosed
TestLeaseKeepAliveFullResponseQueue TestLeaseGrantNewAfterClose TestLeaseRevokeNewAfterClose
TestLeaseKeepAliveCloseAfterDisconnectRevoke TestLeaseKeepAliveInitTimeout TestLeaseKeepAliveTTLTimeout
TestLeaseTimeToLive TestLeaseTimeToLiveLeaseNotFound TestLeaseLeases TestLeaseRenewLostQuorum
TestLeaseKeepAliveLoopExit TestV3LeaseFailureOverlap TestLeaseWithRequireLeader"""
PROPOSED = """TestNewSession TestSessionLease TestSessionClose TestSessionExpiry TestLockUnlock TestConcurrentLock
TestTryLock TestLeaseExpiry TestContextCancel TestCampaignResign TestLeaderQuery TestObserve TestLeaderFailover
TestMultiNodeMutex TestMultiNodeElection TestFailureRecovery TestMutexStaleUnlockDoesNotDeleteSameSessionRelock"""

LISTS = {
    "concurrency": CONCURRENCY,
    "election": ELECTION,
    "stm": STM,
    "services": SERVICES,
    "recipes": RECIPES,
    "lease client": LEASE,
    "proposed": PROPOSED,
}


@cache
def names_mentioned() -> set[str]:
    """The words of the docstrings of all test functions here."""
    names: set[str] = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"):
                names |= set((ast.get_docstring(node) or "").replace(",", " ").replace(":", " ").split())
    return names


@pytest.mark.parametrize("group", LISTS)
def test_every_name_is_there(group: str) -> None:
    missing = [name for name in LISTS[group].split() if name not in names_mentioned()]
    assert missing == []
