"""Faults on real processes from one seed: every call is recorded and judged, and a report is written.

    leasehold chaos --minutes 20 --out report.html

`plan` derives the faults from the seed, `sandbox` and `network` isolate the run, `cluster` owns the processes, `faults`
carries the faults out, `clients` and `mooncake_client` record calls, `judge` checks them, `report` draws the result.
"""
