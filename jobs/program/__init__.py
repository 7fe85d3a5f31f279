"""What the programs of this folder share: options, exit codes, sentences, the opened queue."""

from __future__ import annotations
