"""What every test may use: real servers, shared by the session."""

pytest_plugins = ["leasehold.testing.pytest_plugin"]
