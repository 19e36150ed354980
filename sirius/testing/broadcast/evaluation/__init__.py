"""The evaluation of the Sprinkler paper (Middleware 2013, section 5), done again with our machines.

`geoplex` runs real proxies and clients in simulated time, on `links` with latencies and bandwidths, and a `meter`
watches. `popularity` is the workload of section 5.4. `figures` has one entry for each figure of the paper that is drawn
again; `plot` draws them. `sirius sim sprinkler` is the command; docs/broadcast/evaluation.md shows what came out.
"""
