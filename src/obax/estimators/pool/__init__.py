"""One model for each key, ten thousand of them in one stacked state: see `pool`.

Files: `entry` (many slots in one compiled call), `stack` (slots), `cold` (models on disk), `models`
(where each is), `shard` (rows by them), `rows`, `keys`, `reading` (what comes in), `crew`
(threads), `tenant` and `look` (what was learned), `state` (checkpoints), `pool`.
"""

from .pool import Pool as Pool
from .tenant import Tenant as Tenant
