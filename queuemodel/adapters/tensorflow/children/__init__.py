"""The processes that a live run starts, each a module with a ``main``; TensorFlow is loaded here.

`graph` (TensorFlow 1) or `strategy` (TensorFlow 2) trains on servers (`serve`, also as ``queuemodel serve``), `rank`
with others. `models` are what can be trained.
"""
