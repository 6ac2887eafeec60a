"""Events about stored and removed objects, for routers: what is published when, and how a subscriber follows."""
