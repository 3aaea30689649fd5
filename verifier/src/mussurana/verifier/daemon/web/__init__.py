"""The web page: what the daemon knows, for people with a browser. Read-only.

    board ── sampler ── hour ─┐
    query, gaps, statements ──┼── api ──┐
    violations ── documents ──┘         ├── site ── http
    static/ ── assets ──────────────────┤
    tokens ── access ───────────────────┘

`hour` is the last hour in a ring of intervals; `sampler` fills it. `api` answers with JSON; `documents` turns a
violation into what can be downloaded. `assets` are the page's own files, the same for everybody and without any data.
`access` decides who may have data, and `site` puts it together. The verifying thread never waits for any of it.
"""
