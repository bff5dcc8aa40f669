"""How long runs are kept, and what goes after that.

``policy`` says what is due, ``removal`` takes runs or their outputs away in one transaction and names rows by ``keys``,
``purging`` goes on from batch to batch without being in anybody's way (``pacing``), ``leftovers`` clears what else
piles up, ``tasks`` is what the queue's schedule calls, one message at a time (``turns``), ``telling`` what the trail
keeps of it. ``docs/retention.md`` says exactly what stays.
"""
