"""The row kernel: standardise, test, train, tune, one row after another, in native code.

Rows are small and follow one on the other, which is where a call into a compiled graph costs more
than the row. One function plays a row; the loop over many calls the same, so that a row gets the
same answer, bit for bit, however the stream was cut.

Features a (standardised, with a 1 for the intercept), weights y, one vector for each output. When
row t arrives the follower solves

    g_t(x, y) = loss(y . a_t, target_t)
                + forgetting/2 |y - y_t|^2_{A_t} + inertia/2 |y - y_t|^2 + penalty/2 |y|^2

- A_t = sum_i forgetting^(t-1-i) h_i a_i a_i' is the curvature of the *weighted window* of past rows
  around the weights that fit it. It has d^2 numbers however long the memory is.
- `inertia` ties the model to where it was, `penalty` (L2, not on the intercept) draws it to zero.
- For squared loss with inertia = penalty = 0 this is recursive least squares, exactly.

The leader's loss of the row is that of the prediction *before* the row is learned: test, then
train. It depends on x through all earlier followers, so each row carries the sensitivity
S_t = dy_t/dx along: the implicit function theorem, applied to g_t, gives S_{t+1} from S_t. That
is the algorithm `obax.RTHO` with its proximal step; `obax.problems.stream_row` states a row as an
`obax.Problem`, and the tests hold the two against each other.

Quadratic part first, then the row. With L = forgetting A + diag(inertia + ridge), where ridge is
the penalty without the intercept,

    L u = ridge y,  c = y - u,   L s = a,   z0 = c . a,   v = s . a,
    y_new = c + s k,             k = weight * pull(z*),   pull = -d loss / dz,

where `losses` solves for z*, K numbers instead of K d. Along a direction of x that moves ridge,
inertia and forgetting by dr, di, dl, and y by S,

    dL w   = dl (A + forgetting dA/d forgetting) w + (di + dr) w,
    dz0    = S . a - s . q,                q = dr y + ridge S - dL u,
    dv     = -s . dL s,
    dy_new = S - L^-1 (q + k dL s) + s dk,

one solve for each direction. The bandwidth of random Fourier features (see `expand`) moves a by da
and A by dA, which is carried along like dA / d forgetting (h_i held constant), and

    dL w   = forgetting dA w,
    dz0    = S . a - s . q + c . da,       q = ridge S - dL u,
    dv     = -s . dL s + 2 s . da,
    dy_new = S - L^-1 (q + k (dL s - da)) + s dk.

u, c and the inverse of L (its factors, where L is large) are left behind in `work`. Several outputs
share A, and with it L, s and v: the curvature h of a row is the mean of p (1 - p) over the classes.

A model has several *members* of this kind, one of them tuned, the others frozen, and some of the
first order, which step down the gradient. They get the same standardised row, and `mixture` says
what they say together and why that is never much worse than the best of them.

Files: `layout` and `views` (where things stand), `statistics`, `algebra`, `losses`; `columns` and
`expand` (what a row is for members); `follower`, `tuned`, `first_order` (the members), `mixture`;
`row` (one row by all of them), `teach` and `lead` (what members and leader learn of it), `record`,
`repeat`; `entry`, `whole` and `lanes` (how it is compiled).
"""

from .columns import MULTIPLIED as MULTIPLIED, WAVES as WAVES
from .entry import (
    LOSS as LOSS,
    OUTCOME as OUTCOME,
    REACH as REACH,
    SAID as SAID,
    kernel as kernel,
)
from .growth import (
    grown as grown,
    places as places,
    retaught as retaught,
    trail_places as trail_places,
)
from .layout import (
    BOUNDS as BOUNDS,
    CENTRE as CENTRE,
    EVERYONE as EVERYONE,
    LEADER as LEADER,
    Plan as Plan,
)
from .row import ABSURD as ABSURD, ACCEPTED as ACCEPTED, REJECTED as REJECTED
from .wide_layout import LONG as LONG, MOST_FULL as MOST_FULL
