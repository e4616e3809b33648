"""Running a federation: its folder, the SuperLink behind a proxy, nodes, and the run itself
(extra `flower`).
"""
