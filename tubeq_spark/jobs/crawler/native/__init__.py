"""A crawl without Spark: the tube by the native engine, the page table by `deltalake`, fetches in threads."""

from __future__ import annotations
