"""`mussurana serve`: takes in fragments, keeps them safe, verifies them in rounds and says what it found.

    ingest ── commit ── log ── feed ── verify ── tell ── journal, violations ── board ── query, metrics, http, web
                         │               │                    └ webhook
                         └ sequences     └ checkpointing ── checkpoint

Fragments come in over gRPC (`ingest`), are appended and synced together (`commit`, `log`) and only then acknowledged.
One thread reads the log's tail and feeds the round machine (`verify`); what a round found is durable (`journal`) before
anybody can see it (`board`). The machine itself is in `rounds/` and knows nothing of files, sockets and clocks.
"""
