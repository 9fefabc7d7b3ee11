"""Max-min fair sharing: how fast each activity goes when all of them share their resources.

Progressive filling: all rates grow together; when a resource is full, the activities that use it keep their rate and
the others go on growing. The result is the only allocation in which no rate can be raised without lowering one that is
not larger (Bertsekas and Gallager, Data Networks, 2nd edition, section 6.5.2).
"""

import numpy as np

from .arrays import Floats, Ints

SAME = 1e-12  # relative difference under which two shares are one


def fair_rates(activities: int, owner: Ints, resource: Ints, weight: Floats, capacity: Floats) -> Floats:
    """Return the rate of each activity; without a finite resource it is infinite, with one of no capacity 0.

    owner, resource, weight: (uses,) activity `owner` takes `weight` x its rate of `resource`. capacity: (resources,).
    Resources fill up in waves: in each wave, every resource that is the tightest one for all of its activities.
    """
    rate = np.full(activities, np.inf)
    used, place = np.unique(resource, return_inverse=True)
    left = capacity[used].astype(np.float64)
    finite = np.isfinite(left)[place]
    owner, place, weight = owner[finite], place[finite], weight[finite]
    while len(owner):
        demand = np.bincount(place, weight, minlength=len(left))
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(demand > 0, np.maximum(left, 0.0) / demand, np.inf)
        tightest = np.full(activities, np.inf)
        np.minimum.at(tightest, owner, share[place])
        others = np.zeros(len(left), dtype=bool)  # resources with an activity that is held back elsewhere
        others[place[tightest[owner] < share[place] * (1 - SAME)]] = True
        full = ~others[place]
        frozen = np.zeros(activities, dtype=bool)
        frozen[owner[full]] = True
        rate[frozen] = tightest[frozen]
        gone = frozen[owner]
        left -= np.bincount(place[gone], weight[gone] * rate[owner[gone]], minlength=len(left))
        owner, place, weight = owner[~gone], place[~gone], weight[~gone]
    return rate
