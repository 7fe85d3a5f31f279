"""A web crawler on a queue: what `jobs/crawl.py` and `jobs/demo.py` are made of.

`urls` decides what is followed, `fetch` runs on the executors, `tables` keeps what was fetched,
`loop` is the crawl itself with its order of commits, `screen` shows it.
"""
