"""The Markov chain of a small network: the truth for any discipline and phase-type service.

`routes` says where customers go next; `states` what a station of each kind has to remember, and how it changes;
`transitions` joins the stations to all states of the network and the rates between them; `steady` solves the balance
equations of each set of states that is never left, and `solver` turns that into a `Solution`.
"""

from .solver import MarkovChain

__all__ = ["MarkovChain"]
