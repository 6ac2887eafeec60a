"""Mooncake's RPC: framing, struct_pack codec, a table per release; and the same carrier for Leasehold's own calls.

schema.py     types of the wire: each knows its literal, writes and reads its values
frame.py      the 20 and 16 bytes in front of every body
body.py       hash, literal and widths in front of every payload
tables/       what each Mooncake release says: types and functions, as tables
messages.py   the Python side of those types
rpc.py        functions of our own, typed by msgspec Structs
server.py     many connections, one loop, one write per burst
client.py     one connection with many calls in flight; the typed client on top
"""
