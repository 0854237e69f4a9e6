"""The processes that a live run starts, each a module to be run; TensorFlow is loaded here.

`worker` (graph style, with the graph that `worker_graph` builds) or `strategy` (TensorFlow 2) trains; `serve` is a
server, for a run here or, as ``queuemodel serve``, for one from elsewhere. `models` are what can be trained, and
`training_task` makes a model and its batches of one. Each process listens first of all to its parent (`adapters.live`).
"""
