"""Which tools a request gets, and how a run of them becomes one answer."""
