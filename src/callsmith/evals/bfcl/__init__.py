"""The Berkeley Function-Calling Leaderboard: its cases and its own checker, fetched when they are first needed."""
