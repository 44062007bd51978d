"""One model for each key, ten thousand of them side by side: see `pool`.

Files: `reading` (keys, rows and targets as they come), `store` (models in memory and on disk),
`tenant` (the model of one key), `serialise` (checkpoints), `pool`.
"""

from .pool import Pool as Pool
from .tenant import Tenant as Tenant
