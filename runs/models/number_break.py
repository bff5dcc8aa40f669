"""Where numbers of runs are out of the order of creation: runs were put in that had been created before."""

from __future__ import annotations

from django.db import models


class NumberBreak(models.Model):
    """A number from which on the order begins anew: the run before it may have been created long after those behind it.

    Between two breaks a higher number means a later creation, but for runs that were created at nearly the same time.
    """

    number = models.BigIntegerField(primary_key=True)

    class Meta:
        # Nobody sees or changes it.
        default_permissions = ()

    def __str__(self) -> str:
        return f"from #{self.number}"
