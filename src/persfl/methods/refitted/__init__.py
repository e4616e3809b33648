"""Blend for models that are refitted (trees, forests, boosting, any of scikit-learn's), where all
rows are in one place.
"""
