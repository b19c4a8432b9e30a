"""Several processes that train one model together: how they find each other, what they exchange, how they end.

A process is a *rank*, counted from 0. Rank 0 leads: it reads the configuration's run, evaluates, logs and saves; the
others follow its commands. ``docs/scale.md`` says what a user must know.
"""
