"""A web crawler on a queue, for reading and for `make demo`: URLs are tasks, pages are rows of a Delta table.

The tube has a sub-queue for each host. One take at a time holds a sub-queue, so only the consumer that holds
tasks of a host fetches from it. The priority of a task is its distance from the seeds. Each consumer (`consumer`)
repeats five steps, and the order of their commits makes the crawl safe against crashes at any moment:

1. A take gets a batch, and locks its host. URLs whose pages are stored are not fetched again.
2. The others are fetched (`fetch`), and their rows are appended to the page table (`pages`): one commit.
3. Links that were never seen go into the tube: one commit (`frontier`).
4. Failures are released with a delay; the tube buries them after three attempts.
5. The rest is acked, and the host is free.

After a crash the taken tasks come back when the lease of the dead session has ended. If the pages were stored,
they are not fetched again, and step 3 takes the links from the stored rows. Links that were put are in the tube, so
the next run knows them. So nothing is lost, and each page is stored once. But a server may be asked twice, if the
crash came between its answer and the commit of the page.
"""

from __future__ import annotations
