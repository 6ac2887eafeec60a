"""Every fixed bound, named with its unit. Some are only the defaults or the limits of a setting."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

# --- the coordination store (etcd's own limits, so that a program works with either store) ---
store_request_bytes_max: Final = 1536 * KIB
store_txn_ops_max: Final = 128
store_lease_ttl_s_max: Final = 9_000_000_000
rpc_answer_bytes_max: Final = 1 * GIB  # largest response that a client accepts
watch_queue_bytes_max: Final = 256 * MIB  # queued per watch for a slow reader, plus one batch

# --- the wire ---
wire_frame_bytes_max: Final = 256 * MIB  # largest response that our client accepts
wire_batch_items_max: Final = 32_768  # keys in one request: it runs in one step, and other requests wait
regex_answer_bytes_max: Final = 64 * MIB
wire_crowded_idle_ms: Final = 30_000  # idle limit near connections_max; Mooncake's clients use the same
wire_parting_ms: Final = 2_000  # after a malformed frame: time to send earlier answers and for the peer to close
# --- the index ---
extent_alignment_bytes: Final = 64  # extents begin and end on a cache line; records depend on this value
key_bytes_max: Final = 64 * KIB
tenant_bytes_max: Final = 1 * KIB
group_bytes_max: Final = 1 * KIB
pattern_bytes_max: Final = 4 * KIB
pattern_instructions_max: Final = 1_024  # in the compiled pattern; each may run once per byte of a key
object_bytes_max: Final = 16 * 1024 * GIB
segment_bytes_max: Final = 1024 * 1024 * GIB
replicas_max: Final = 16  # a replica's id is its record number times this, plus its position
segments_max: Final = 65_536
segments_per_client_max: Final = 1_024  # one request mounts them all, one timeout removes them all: each in one step
clients_max: Final = 65_536
tenants_max: Final = 4_096  # 128 KiB each
shared_values_max: Final = 4_096  # names and sizes that objects share, remembered
tenants_step: Final = 8  # tenants checked for emptiness in one step
preferred_segments_max: Final = 64  # in one put; each is tried
tasks_max: Final = 16_384
tasks_fetched_max: Final = 1_000  # in one call
task_timeout_ms: Final = 300_000  # until a task is fetched, and again until it is done
index_hints_max: Final = 100_000  # evictions not yet sent to the standbys; older ones are dropped
range_record_stays_max: Final = 20_000  # put numbers in one range record: about 180 KB
range_step_objects: Final = 200  # keys matched in one step of a range removal or a listing: 2 us each, twice
range_step_hits: Final = 50  # of those, removed or listed in one step (more only if one table has more)
absent_removes_bytes_max: Final = 256 * KIB  # per caller, not yet durable
quarantine_step_extents: Final = 100  # extents whose quarantine has expired, freed in one step
segment_end_step_objects: Final = 256  # objects updated in one step when their segment is unmounted
discard_step_objects: Final = 2_000  # objects freed in one step when a node drops its index: 0.3 us each
inline_evictions_max: Final = 256  # eviction candidates that a put checks before it is answered "no space"
drain_jobs_max: Final = 1_000  # the oldest finished ones are forgotten
drain_concurrency_max: Final = 1_024  # moves under way of one job
drain_segments_max: Final = 4_096  # named by one job
drain_step_objects: Final = 64  # objects that a drain job looks at in one step
disk_replicas_max: Final = 4  # of one version; the newest are kept
disk_record_bytes_max: Final = 64 * KIB  # keys in one record about versions on disk
offload_handed_out_max: Final = 10_000  # objects in one answer to a disk owner's heartbeat
offload_retries_max: Final = 60  # an owner that could not write an object gets it again this often
promotion_counted_keys_max: Final = 65_536  # keys on disk whose reads are counted; the least recently read leave
quota_bytes_max: Final = 2**63 - 1  # the C++ master's bound
regex_results_max: Final = 100_000
# --- the journal ---
journal_batch_bytes_max: Final = 1 * MIB
journal_batch_records_max: Final = 8_192
batch_record_keys_max: Final = 256  # keys that share one record
unlogged_entries_max: Final = 10_000
unlogged_bytes_max: Final = 900 * KIB  # before compression
journal_hints_max: Final = 2_000
journal_pending_records_max: Final = 200_000
snapshot_step_objects: Final = 200  # objects written in one step of a snapshot: short steps keep the loop responsive
snapshot_step_extents: Final = 300  # quarantined extents, likewise; also the most in its last slice
replay_piece_objects: Final = 100  # records applied, or objects renewed or evicted by a batch, in one step
journal_list_page_keys: Final = 4  # a page is applied in one step: small pages keep the loop responsive
journal_trim_step_keys: Final = 32

# --- the lease-coherent cache ---
cache_key_bytes_max: Final = 4 * KIB
cache_value_bytes_max: Final = 1 * MIB
cache_keys_per_ask_max: Final = 200  # with values of the largest size the answer fits in `wire_frame_bytes_max`
cache_parcel_bytes: Final = 16 * MIB  # several messages share a frame only up to this size
cache_term_ms_max: Final = 86_400_000
cache_writes_queued_per_key_max: Final = 1_000
cache_subscriptions_max: Final = 10_000

# --- the pool ---
pool_transfer_bytes_max: Final = 1 * GIB  # one object, in one transfer

# --- the HTTP metadata server ---
metadata_key_bytes_max: Final = 4 * KIB
metadata_value_bytes_max: Final = 4 * MIB
metadata_values_bytes_max: Final = 256 * MIB  # of all values, as stored: etcd has 2 GiB for everything by default
metadata_keys_max: Final = 100_000
metadata_connections_max: Final = 1_024
