"""Where boxes, edges and labels of a picture stand. Numbers only: drawing is left to `svg.py`.

Boxes stand on a grid of lanes and columns (`placement.py`). The space between lanes is a *street*, street i above
lane i; the space between columns is an *alley*, alley i left of column i. An edge leaves its box through the top or the
bottom, runs along a row of a street and enters the other box through its top or bottom; where lanes lie between, it
crosses them in a free column or in an alley (`ways.py`). How wide all that is says `grid.py`, where edges meet a box
`ports.py`, which row of a street they take and where on it their label stands `streets.py`; `routing.py` puts it
together. So neither lines nor labels ever cover a box.
"""
