"""Versions that several transactions saw and replaced, of which `VersionChains.clash` names only the first.

Where somebody goes on updating what is long replaced there may be thousands. Who leaves them out does so at once: each
one by itself would take a round of its own.
"""

from __future__ import annotations

import numpy as np

from mussurana.verifier.engine.graph import Graph
from mussurana.verifier.history import Ints


def clashing_versions(graph: Graph) -> Ints:
    """The versions that have several successors, and these. Pre: there is a clash, and no lists are read."""
    chains, key, txn = graph.chains, graph.version_key.astype(np.int64), graph.version_txn.astype(np.int64)
    assert chains.clash is not None
    key_count = int(key.max()) + 1
    installed = np.flatnonzero((txn >= 0) & ~graph.version_new)
    code = txn[installed] * key_count + key[installed]
    installed, code = installed[order := np.argsort(code)], code[order]
    seen = np.repeat(np.arange(len(key)), np.diff(chains.reader_start))
    wanted = chains.reader.astype(np.int64) * key_count + key[seen]
    at = np.minimum(np.searchsorted(code, wanted), len(code) - 1)
    replaced = (code[at] == wanted) & (installed[at] != seen)
    links = np.unique(np.stack([seen[replaced], installed[at[replaced]]]), axis=1)
    versions, successors = np.unique(links[0], return_counts=True)
    several = versions[successors > 1]
    after = links[1, np.isin(links[0], several)]
    found: Ints = np.unique(np.concatenate([chains.clash, several, after]))
    return found
