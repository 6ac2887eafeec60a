"""Mooncake's RPC: framing, struct_pack codec, a table per release; Leasehold's own calls use the same framing.

schema.py     wire types: each has its type literal, and reads and writes values
frame.py      the 20 and 16 byte frame headers
body.py       hash, literal and widths before every payload
tables/       types and functions of each Mooncake release
messages.py   Python classes for those types
rpc.py        functions of our own, typed by msgspec Structs
server.py     many connections, one loop, one write per burst
client.py     one connection with many calls in flight; the typed client on top
"""
