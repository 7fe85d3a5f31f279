"""Objects that the verbs share: contexts of a queue and a tube, the session, remembered tasks."""

from __future__ import annotations
