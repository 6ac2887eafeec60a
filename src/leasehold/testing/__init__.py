"""The test kit, shipped to users: real etcd clusters, faults as verbs, the simulator, checkers, conformance."""
