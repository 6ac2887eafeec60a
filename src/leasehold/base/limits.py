"""Every bound in one place, each named with its unit. Settings may lower or raise some of them."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

# --- the coordination store (the numbers of real etcd, so that one program fits both) ---
store_request_bytes_max: Final = 1536 * KIB
store_txn_ops_max: Final = 128
store_lease_ttl_s_max: Final = 9_000_000_000
rpc_answer_bytes_max: Final = 1 * GIB  # the largest answer that a client takes
watch_queue_bytes_max: Final = 256 * MIB  # that a client holds of one watch for a slow reader, beside one batch

# --- the wire ---
wire_frame_bytes_max: Final = 256 * MIB  # the largest answer that a client of ours takes
wire_batch_items_max: Final = 32_768  # keys in one request: it is carried out in one go, and others wait meanwhile
regex_answer_bytes_max: Final = 64 * MIB
wire_crowded_idle_ms: Final = 30_000  # while it is crowded: Mooncake's own clients let go then, too
wire_parting_ms: Final = 2_000  # after a broken frame: for the answers before it, and for the peer to hang up
# --- the index ---
extent_alignment_bytes: Final = 64  # every extent begins and ends on a cache line; part of the records' meaning
key_bytes_max: Final = 64 * KIB
tenant_bytes_max: Final = 1 * KIB
group_bytes_max: Final = 1 * KIB
pattern_bytes_max: Final = 4 * KIB
pattern_instructions_max: Final = 1_024  # of the compiled pattern; each may be looked at for each byte of a key
object_bytes_max: Final = 16 * 1024 * GIB
segment_bytes_max: Final = 1024 * 1024 * GIB
replicas_max: Final = 16  # a replica's id is its record's number times this, plus its place
segments_max: Final = 65_536
segments_per_client_max: Final = 1_024  # mounted by one request, ended by one silence: each in one go
clients_max: Final = 65_536
tenants_max: Final = 4_096  # 128 KiB each
tenants_step: Final = 8  # that are looked at in one go: has it any object left?
preferred_segments_max: Final = 64  # by one put, and each is tried
tasks_max: Final = 16_384
tasks_fetched_max: Final = 1_000  # by one call
task_timeout_ms: Final = 300_000  # for being fetched, and then for being done
index_hints_max: Final = 100_000  # evictions not yet told to the standbys; older ones are dropped
range_record_stays_max: Final = 20_000  # put numbers in one range record: about 180 KB
range_step_objects: Final = 200  # keys that one step of a range removal, or of a listing, matches: 2 us each, twice
range_step_hits: Final = 50  # of those, that a step takes away (more only if one table has more), or tells of
absent_removes_bytes_max: Final = 256 * KIB  # of one caller, not yet durable
quarantine_step_extents: Final = 100  # whose quarantine has expired, freed in one step
segment_end_step_objects: Final = 256  # that are told of the end of their segment in one step
inline_evictions_max: Final = 256  # objects that a put may look at, to evict them, before it is answered "no space"
regex_results_max: Final = 100_000
# --- the journal ---
journal_batch_bytes_max: Final = 1 * MIB
journal_batch_records_max: Final = 8_192
journal_bulk_entries_max: Final = 10_000
journal_bulk_bytes_max: Final = 900 * KIB  # before compression
journal_hints_max: Final = 2_000
journal_pending_records_max: Final = 200_000
snapshot_step_objects: Final = 200  # of a snapshot in one step: the loop must not stand still for long
snapshot_step_extents: Final = 300  # in limbo, the same; so many at most are in its last slice
replay_piece_objects: Final = 100  # records applied, or objects renewed or evicted on another's word, in one step
journal_list_page_keys: Final = 4  # a page is applied in one go: the loop must not stand still for long
journal_trim_step_keys: Final = 32

# --- the lease-coherent cache ---
cache_key_bytes_max: Final = 4 * KIB
cache_value_bytes_max: Final = 1 * MIB
cache_keys_per_ask_max: Final = 200  # with the largest values an answer still fits in `wire_frame_bytes_max`
cache_parcel_bytes: Final = 16 * MIB  # more than one message is not packed into more
cache_term_ms_max: Final = 86_400_000
cache_writes_queued_per_key_max: Final = 1_000
cache_subscriptions_max: Final = 10_000

# --- the pool ---
pool_transfer_bytes_max: Final = 1 * GIB  # one object, in one transfer
