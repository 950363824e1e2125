"""The documentation: its pages, links and blocks of code."""
