"""Rewriting SQL so that the database itself says which version of which row a statement saw or wrote.

`plans.Plans` is the way in: text to `plan.Plan`, cached. Below it, one module per kind of statement finds the places
in the text, `splice` puts pieces there, and `extract` reads the answers. SQL is never generated anew from a parse
tree: what the application wrote stays as it is, byte for byte, around what is added.
"""
