"""The processes that a live run starts, each a module to be run; TensorFlow is loaded here.

`worker` (graph style, with the graph that `worker_graph` builds) or `strategy` (TensorFlow 2) trains on servers
(`serve`, also as ``queuemodel serve``), `rank` with others. `models` are what can be trained. Each process listens
first of all to its parent (`adapters.live`).
"""
