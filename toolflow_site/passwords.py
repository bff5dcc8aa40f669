"""What a new password must not be, beyond Django's own rules."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.password_validation import UserAttributeSimilarityValidator


class RepeatedAttributeValidator(UserAttributeSimilarityValidator):
    """Refuses what resembles the user's name or address, also where it repeats one: “edededed” for “ed”."""

    def validate(self, password: str, user: Any = None) -> None:
        """Raise ``ValidationError`` for such a password."""
        super().validate(password, user)
        # Moved by its shortest repeated part, a text is the same again; without such a part, by its whole length.
        text = password.lower()
        super().validate(text[: (text * 2).find(text, 1)], user)
