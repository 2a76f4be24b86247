"""Pictures of graphs: one layout of our own, written as SVG, DOT or one HTML page.

`picture` says what is shown, `layout` where it stands; `svg`, `dot` and `html` write it down. No
program and no package beside this one is needed.
"""
