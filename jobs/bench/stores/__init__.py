"""The queue on an object store: requests and seconds of each verb, and what workers get done together.

`server` finds a store on this host, `proxy` stands before it: it delays each request as a network does, and counts them.
"""
