"""A web crawler on a queue: what `jobs/crawl.py` and `jobs/demo.py` are made of.

`urls` decides what is followed, `fetch` runs on the executors, `tables` keeps what was fetched,
`frontier` what is to be fetched, by hosts. `loop` is a consumer with its order of commits, `crew`
the crawl by several of them, `screen` shows it.
"""
