"""The paper's tabular study (sections 3.1 and 4.1, "Information flow", appendix A) on the library's own updates.

`mdp` samples and solves Garnet MDPs, `model` holds the learned tables as a `Model`, `learner` the algorithm on them,
`options` the settings and readings of the paper, `compiled` makes one program of all variants and seeds, `study` runs
the tasks and writes files, `figures` draws them.
"""
