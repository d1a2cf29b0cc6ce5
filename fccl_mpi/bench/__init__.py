"""What a federation costs beside its bare computation, and what it would cost with more participants.

`measure` runs the real federation for a few rounds and, between them, its `floor`; `summary` makes one file
of what all ranks have found, `model` predicts from such files, `show` prints.
"""
