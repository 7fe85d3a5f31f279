"""What the verbs share: the context of a queue and of a tube, its session, its memory."""

from __future__ import annotations
