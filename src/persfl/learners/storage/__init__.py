"""Learners and their models as plain data, and back: one codec per family, for disk and wire.

Nothing here can name a type or hold code. Everything that is read is checked before it is used: no
index leads out of its tree, every number is finite, every size is known.
"""
