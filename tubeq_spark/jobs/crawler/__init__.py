"""A web crawler on a queue: what `tubeq crawl` and `jobs/demo.py` are made of.

`urls` decides what is followed, `fetch` fetches it. `loop` is a consumer with its order of commits,
`crew` the crawl by several of them, `screen` shows it. `parts` says what these need of a storage, and
there are two: `native`, in this process, and `on_spark`, with `frontier` and `tables` as DataFrames.
"""
