"""Experiments of two kinds, both written down as TOML: the paper's figures, and comparisons.

A figure (`persfl reproduce`) is a set of error curves beside those of the authors' own code:

    figure_specs (figure_settings) > curves (figure_rounds, digit_curves) > figure_runs
    > agreement, claims, tuning
    what it leaves: figure_files, drawings, result_pages

A comparison (`persfl compare`, `persfl run compare`) puts methods on equal terms: the same rows to
learn from, the same rows to judge by.

    comparison_specs > comparison_sets (row_splits) > line_up > setting_choice
    (counted_questions) > comparison_cells > kept_cells > standings
    what it leaves: comparison_tables, drawings, result_pages

`persfl run published` does so by other people's protocols, beside their numbers:

    published_sets > published_runs > published_page

`trial` compares one estimator with its rivals on one table. Both kinds share `spec_files` (how TOML
is found and its types are checked) and `jobs` (pieces of work side by side).
"""
