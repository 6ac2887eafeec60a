"""Runs inside the wheel's own environment: everything that a user of Mooncake does, one line of output for each step.

    python everything.py MASTER METADATA all|brief

The same script runs against the C++ master and against ours; the output must be the same, so nothing that differs
from run to run (ids, addresses, times) is printed.
"""

# mypy: ignore-errors
# (the wheel is not installed where this is checked)

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time

from mooncake import store as mooncake

MIB = 1 << 20


def say(step, *results):
    print(f"{step}: {', '.join(map(repr, results))}", flush=True)


def connect(master, metadata, segment_bytes):
    store = mooncake.MooncakeDistributedStore()
    code = store.setup("127.0.0.1", metadata, segment_bytes, 16 * MIB, "tcp", "", master)
    return store, code


def config(**changes):
    made = mooncake.ReplicateConfig()
    for name, value in changes.items():
        if hasattr(made, name):  # 0.3.11 has no groups
            setattr(made, name, value)
    return made


def soft_pin():
    if hasattr(mooncake, "SoftPinAction"):
        return config(soft_pin_action=mooncake.SoftPinAction.ENABLE)
    return config(with_soft_pin=True)


def shape(store, key):
    """The parts of a descriptor that are the same in every run."""
    found = []
    for replica in store.get_replica_desc(key):
        buffer = replica.get_memory_descriptor().buffer_descriptor
        found.append((str(replica.status), buffer.size, buffer.transport_endpoint.split(":")[0]))
    return sorted(found)


def simple(store):
    say("put", store.put("k1", b"hello"))
    say("get", store.get("k1"), store.get_size("k1"), store.is_exist("k1"))
    say("get missing", store.get("no"), store.get_size("no"), store.is_exist("no"))
    say("put again is kept", store.put("k1", b"other"), store.get("k1"))
    say("descriptor", shape(store, "k1"), shape(store, "no"))
    say("empty value", store.put("empty", b""), store.is_exist("empty"))
    say("empty key", store.put("", b"x"), store.is_exist(""))
    say("long key", store.put("x" * 300, b"long"), store.get("x" * 300), store.is_exist("x" * 300))
    big = os.urandom(3 * MIB)
    say("3 MiB", store.put("big", big), store.get("big") == big, store.get_size("big"))
    say("buffer", bytes(memoryview(store.get_buffer("k1"))), store.get_buffer("no"))
    say("larger than the segment", store.put("huge", b"x" * (20 * MIB)), store.is_exist("huge"))


def batches(store):
    keys = [f"b{number}" for number in range(20)]
    values = [bytes([number]) * (number + 1) for number in range(20)]
    say("put_batch", store.put_batch(keys, values))
    say("get_batch", store.get_batch(keys) == values)
    say("get_batch with missing", store.get_batch(["b0", "no", "b2"]))
    say("batch_is_exist", store.batch_is_exist([*keys[:3], "no", ""]))
    say("batch of nothing", store.batch_is_exist([]), store.put_batch([], []))
    many = [f"many-{number:05d}" for number in range(600)]
    say("put_batch 600", store.put_batch(many, [b"x" * 64] * 600))
    say(
        "exist 600",
        sum(store.batch_is_exist(many)),
        sum(store.batch_is_exist([*many, *(f"no{n}" for n in range(400))])),
    )
    say("get_batch 600", set(store.get_batch(many)))
    say("batch twice the same key", store.put_batch(["same", "same"], [b"1", b"2"]), store.get("same"))
    described = store.batch_get_replica_desc(["b1", "b2"])
    say("batch descriptors", sorted(described), [len(found) for found in described.values()])


def buffers(store):
    memory = ctypes.create_string_buffer(4 * MIB)
    address = ctypes.addressof(memory)
    say("register", store.register_buffer(address, 4 * MIB))
    memory[:5] = b"01234"
    say("put_from", store.put_from("from", address, 5), store.get("from"))
    say(
        "batch_put_from",
        store.batch_put_from(["f1", "f2"], [address, address + 1], [2, 3]),
        store.get_batch(["f1", "f2"]),
    )
    memory[:10] = b"\0" * 10
    say("get_into", store.get_into("from", address, 100), memory[:5], store.get_into("no", address, 100))
    say("get_into too small", store.get_into("from", address, 2))
    say(
        "batch_get_into",
        store.batch_get_into(["f1", "no", "f2"], [address, address + 16, address + 32], [16, 16, 16]),
        memory[:2],
        memory[32:35],
    )
    say("unregister", store.unregister_buffer(address))


def parts_and_upserts(store):
    say("put_parts", store.put_parts("parts", b"ab", b"cd", b"e"), store.get("parts"))
    say("upsert new", store.upsert("u", b"one"), store.get("u"))
    say("upsert same size", store.upsert("u", b"two"), store.get("u"))
    say("upsert other size", store.upsert("u", b"three"), store.get("u"), store.get_size("u"))
    say("upsert_parts", store.upsert_parts("u", b"fo", b"ur"), store.get("u"))
    say("upsert_batch", store.upsert_batch(["u", "u2"], [b"five", b"six"]), store.get_batch(["u", "u2"]))


def sessions(store):
    if not hasattr(store, "batch_put_session_start"):
        return
    say("session start", store.batch_put_session_start(["s1", "s2"], [4, 4]))
    say("unfinished", store.is_exist("s1"), store.get("s1"), store.put("s1", b"x"), store.remove("s1"))
    say("unfinished stays", store.remove_by_regex("^s1$"), store.remove("s1", True))
    say("session end", store.batch_put_session_end(["s1"]), store.is_exist("s1"), store.get_size("s1"))
    say("session revoke", store.batch_put_session_revoke(["s2"]), store.is_exist("s2"), store.put("s2", b"y"))
    say("get session", store.batch_get_session_start(["s1", "no"]), store.batch_get_session_end(["s1"]))


def configs(store):
    say("soft pin", store.put("soft", b"x", soft_pin()), store.get("soft"))
    say("hard pin", store.put("hard", b"x", config(with_hard_pin=True)), store.get("hard"))
    say("group", store.put("grouped", b"x", config(group_ids=["g"])), store.get("grouped"))
    say(
        "preferred",
        store.put("preferred", b"x", config(preferred_segment=store.get_hostname())),
        store.get("preferred"),
    )
    say(
        "preferred elsewhere", store.put("elsewhere", b"x", config(preferred_segment="nowhere")), store.get("elsewhere")
    )
    say("no replicas", store.put("none", b"x", config(replica_num=0)), store.is_exist("none"))
    say(
        "more replicas than segments",
        store.put("three", b"x", config(replica_num=3)),
        len(store.get_replica_desc("three")),
    )


def removes(store):
    say("remove leased", store.get("k1"), store.remove("k1"), store.is_exist("k1"))
    say("remove forced", store.remove("k1", True), store.is_exist("k1"), store.remove("k1", True))
    say("remove unleased", store.put("r", b"x"), store.remove("r"), store.is_exist("r"))
    say("remove missing", store.remove("no"), store.remove(""))
    say("again after remove", store.put("k1", b"new"), store.get("k1"))
    store.put_batch([f"rx-{number}" for number in range(5)], [b"x"] * 5)
    store.is_exist("rx-3")
    say("regex skips leased", store.remove_by_regex("^rx-"), [store.is_exist(f"rx-{number}") for number in range(5)])
    say("regex forced", store.remove_by_regex("^rx-", True), store.is_exist("rx-3"))
    say("regex bad", store.remove_by_regex("("), store.remove_by_regex("[z-a]"))
    say("regex nothing", store.remove_by_regex("^nothing-such$"))
    store.put_batch(["m1", "m2"], [b"1", b"2"])
    store.is_exist("m2")
    say("batch_remove", store.batch_remove(["m1", "m2", "no"]), store.batch_remove(["m2", "no"], True))
    say("clear", store.put("clear", b"x"), store.batch_replica_clear(["clear", "no"]), store.is_exist("clear"))


def two_clients(store, master, metadata):
    """Another process with a segment of its own: each reads what the other wrote, and an object in both."""
    other = subprocess.Popen(
        [sys.executable, __file__, master, metadata, "other"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    for line in other.stdout:
        if line.startswith("ready "):
            name = line.split()[1]
            break
        print("other", line, end="")
    say("two replicas", store.put("both", b"in both", config(replica_num=2)), len(store.get_replica_desc("both")))
    say("put at the other", store.put("theirs", b"sent over", config(preferred_segment=name)), store.get("theirs"))
    say("put here", store.put("mine", b"local", config(preferred_segment=store.get_hostname())))
    print("read", file=other.stdin, flush=True)
    print(other.stdout.readline(), end="")
    say("read what the other wrote", store.get("from other"), store.get_batch(["from other", "both"]))
    say("copy", *tasks(store, "mine", name))
    print("close", file=other.stdin, flush=True)
    say("other ended", other.wait(120))
    say(
        "its memory was unmounted",
        store.is_exist("theirs"),
        store.get("theirs"),
        store.get("both"),
        store.is_exist("from other"),
    )


def tasks(store, key, target):
    """Copy an object to another client's segment by a task, and wait until it is done."""
    task, code = store.create_copy_task(key, [target])[:2]
    deadline = time.time() + 20
    while code == 0 and time.time() < deadline:
        view = store.query_task(task)[0]
        if str(view.status).endswith(("SUCCESS", "FAILED")):
            return code, str(view.status), len(store.get_replica_desc(key))
        time.sleep(0.1)
    bad = store.create_copy_task("no", [target])[1]
    return code, "no end", bad


def other(master, metadata):
    store, code = connect(master, metadata, 16 * MIB)
    say("setup of another", code)
    print("ready", store.get_hostname(), flush=True)
    for line in sys.stdin:
        if line.strip() == "read":
            written = store.put("from other", b"written by the other", config(preferred_segment=store.get_hostname()))
            say("the other reads", store.get("mine"), store.get("theirs"), store.get("both"), written)
        else:
            store.close()
            return


def brief(master, metadata):
    """Enough to see that clients find each other's memory."""
    store, code = connect(master, metadata, 16 * MIB)
    say("setup", code, store.health_check())
    simple(store)
    batches(store)
    return store


def main(master, metadata):
    store = brief(master, metadata)
    buffers(store)
    parts_and_upserts(store)
    sessions(store)
    configs(store)
    removes(store)
    two_clients(store, master, metadata)
    say("remove_all skips leased", store.is_exist("u"), store.remove_all(), store.is_exist("u"))
    say("remove_all forced", store.remove_all(True), store.is_exist("u"), store.is_exist("hard"))
    reader, code = connect(master, metadata, 0)
    say("a client without memory", code, store.put("k", b"v"), reader.get("k"), reader.put("k2", b"w"), store.get("k2"))
    say("close", reader.close(), store.close())


if __name__ == "__main__":
    {"other": other, "brief": brief, "all": main}[sys.argv[3]](*sys.argv[1:3])
