"""A Celery app for the test of three Beat processes. Each tick is one message in a Redis list."""

from __future__ import annotations

import os

from celery import Celery

app = Celery("beat_app", broker=os.environ["TEST_BROKER"])
app.conf.leasehold_store = os.environ["TEST_STORE"]
app.conf.leasehold_name = os.environ["TEST_NAME"]
app.conf.leasehold_ttl = int(os.environ["TEST_TTL"])
app.conf.result_expires = None
app.conf.beat_schedule = {"tick": {"task": "tick", "schedule": float(os.environ["TEST_INTERVAL"])}}
