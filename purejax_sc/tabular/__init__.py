"""The paper's tabular study (sections 3.1 and 4.1, "Information flow", appendix A) on the library's own updates.

`mdp` makes and solves Garnet MDPs, `learner` is the algorithm, `options` names every open reading, `program` compiles
all variants and seeds into one program, `study` runs the tasks and writes files, `figures` draws them.
"""
