"""The RPC that Mooncake's clients speak: framing, codec, schema tables, server and client."""
