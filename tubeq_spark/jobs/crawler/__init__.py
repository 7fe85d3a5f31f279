"""A web crawler on a queue: the parts of `tubeq crawl` and `jobs/demo.py`.

`urls` decides which URLs are followed, and `fetch` fetches them. `loop` is a consumer with its order of commits,
`crew` the crawl by several consumers, and `screen` shows it. `parts` declares the storage of a crawl. There are two
storages: `native`, in this process, and `on_spark`, with `frontier` and `tables` as DataFrames.
"""
